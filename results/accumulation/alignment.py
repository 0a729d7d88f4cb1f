"""How often Lightning's rule for windows has shortened those of AS-Speed, and how many more steps that made.

    python results/accumulation/alignment.py

``alignment.csv`` has, for each run of AS-Speed in the committed comparisons as it was recorded up to 0.4, its windows,
those shorter than wanted, and the steps that windows of the wanted lengths would take. Writes ``alignment.md`` and a
sentence of ``docs/accumulation.md``.
"""

import sys
from pathlib import Path
from textwrap import fill

import pandas as pd

RESULTS = Path(__file__).resolve().parents[1]
PAGE, DOCS = RESULTS / "accumulation" / "alignment.md", RESULTS.parent / "docs" / "accumulation.md"
sys.path.insert(0, str(RESULTS))
from written import written  # noqa: E402

RUNS = RESULTS / "accumulation" / "alignment.csv"
FEW = {
    "wnut17/fine_tuned": "on WNUT-17",
    "accumulation/processes": "on two processes",
}  # few batches an epoch
COLUMNS = ["runs", "windows", "shortened, %", "additional steps, %"]


def comparisons() -> pd.DataFrame:
    """A row for each comparison with runs of AS-Speed."""
    rows = {}
    for name, runs in pd.read_csv(RUNS).groupby("comparison"):
        total = runs.sum(numeric_only=True)
        shortened = 100 * total["shortened"] / total["windows"]
        additional = 100 * (total["windows"] / total["steps"] - 1)
        rows[name] = [len(runs), int(total["windows"]), shortened, additional]
    return pd.DataFrame.from_dict(rows, "index", columns=COLUMNS)


def pages() -> dict[Path, str]:
    """The table of the comparisons, and the page with its sentence."""
    table = comparisons()
    lines = [
        f"| [{row.Index}](../{row.Index}/report/report.md) | {row[1]} | {row[2]:,} | {row[3]:.1f} "
        f"| {row[4]:.1f} |"
        for row in table.itertuples()
    ]
    header = f"| comparison | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}\n"
    text = (
        PAGE.read_text(encoding="utf-8").split("| comparison |")[0]
        + header
        + "\n".join(lines)
        + "\n"
    )
    many, additional = table.drop(index=list(FEW)), table[COLUMNS[3]]
    few = ", ".join(f"{additional[name]:.1f}% {place}" for name, place in FEW.items())
    sentence = (
        f"In {len(many)} comparisons and sweeps with AS-Speed ([{many['runs'].sum()} "
        "runs](../results/accumulation/"
        f"alignment.md)), at most {many[COLUMNS[2]].max():.1f}% of the windows of one were shorter "
        "than wanted because "
        f"of it, and the rule with the epoch's end made at most {many[COLUMNS[3]].max():.1f}% more "
        "steps. (With few "
        f"batches an epoch it made more, mostly at the ends of epochs: {few}.)"
    )
    return {
        PAGE: text,
        DOCS: written(DOCS, "results/accumulation/alignment.py", fill(sentence, 120)),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
