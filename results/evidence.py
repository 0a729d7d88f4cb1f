"""Recompute every number of the evidence on README.md and the pages from the committed runs.

    python results/evidence.py

Each script below reads ``design.json`` and ``runs.csv`` (or a table of runs) and writes its parts
of the pages. This one runs them all, names the pages that were not up to date, and exits with 1 if
there are any. What the pages say in words of their own is checked by ``docs/checks/claims.py``.
"""

import runpy
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent
ROOT = RESULTS.parent
SCRIPTS = ["summary.py", "claims.py"]
SCRIPTS += [f"where_it_pays/{name}.py" for name in ("map", "prior", "margin_time", "probe")]
PAGES = ["README.md", "results/README.md", "results/where_it_pays/README.md"]
PAGES += ["results/where_it_pays/map.svg", "docs/which_loss.md", "docs/claims.md"]


def texts() -> dict[str, str]:
    """The pages as they are."""
    return {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}


def main() -> int:
    """Run the scripts; return how many pages they changed."""
    before = texts()
    sys.argv = sys.argv[:1]
    for script in SCRIPTS:
        place = RESULTS / script
        sys.path.insert(0, str(place.parent))
        runpy.run_path(str(place), run_name="__main__")
    changed = [page for page, text in texts().items() if text != before[page]]
    for page in changed:
        print(f"{page} was not what the runs say: written anew")
    return len(changed)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
