"""Write docs/compatibility.md from the table of tests/compatibility.

python docs/compatibility_table.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from compatibility import features, matrix, ways_to_differentiate  # two of them fill the table

if __name__ == "__main__":
    assert features.__doc__
    assert ways_to_differentiate.__doc__
    matrix.PAGE.write_text(matrix.page(), encoding="utf-8")
