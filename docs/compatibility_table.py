"""Write docs/compatibility.md from the table of tests/compatibility: ``python docs/compatibility_table.py``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

if __name__ == "__main__":
    from compatibility import features, matrix  # noqa: F401 - the rows of the table

    matrix.PAGE.write_text(matrix.page(), encoding="utf-8")
