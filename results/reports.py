"""Write the reports of the committed comparisons anew, from their ``design.json`` and ``runs.csv``.

python results/reports.py
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from as_lightning.report.page import write_report
from as_lightning.report.record import DESIGN_FILE, ComparisonRecord

RESULTS = Path(__file__).resolve().parent


def folders() -> list[Path]:
    """Return the folders of comparisons that have a report."""
    return [
        file.parent
        for file in sorted(RESULTS.rglob(DESIGN_FILE))
        if (file.parent / "report").exists()
    ]


def main() -> None:
    """Write the reports: pages in Markdown, each with its figure."""
    for folder in folders():
        with TemporaryDirectory() as place:
            page = write_report(ComparisonRecord.read(folder), place).markdown
            shutil.rmtree(folder / "report")
            shutil.copytree(page.parent / "figures", folder / "report" / "figures")
            shutil.copy(page, folder / "report")


if __name__ == "__main__":
    main()
