"""Put the reports of the committed comparisons side by side: ``results/README.md``, and the results in README.

    python results/summary.py

It takes the first sentence of advice and the first table of each report as they are. ``as-lightning-report FOLDER``
writes a report anew from the records in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).resolve().parent
README = RESULTS.parent / "README.md"
START, END = "<!-- written by results/summary.py -->", "<!-- end -->"
COMPARISONS = {"comparison": "", "other_losses": "other losses"}  # folders of a data set, and what they add to its name
SWEEPS = {"": "all methods", "delta": "margins", "label_noise": "wrong labels"}


def reports(folder: str) -> Iterator[tuple[str, Path]]:
    """The reports in folders of that name: data set and page, in the order of the data sets."""
    for page in sorted(RESULTS.glob("/".join(part for part in ("*", folder, "report/report.md") if part))):
        yield page.relative_to(RESULTS).parts[0], page


def advice(page: str) -> str:
    """What the page says in bold."""
    return next(line.strip("*") for line in page.splitlines() if line.startswith("**"))


def table(page: str) -> list[str]:
    """The first table of the page."""
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| method "))
    return lines[start : lines.index("", start)]


def full_budget(rows: list[str]) -> list[str]:
    """Of AS-Softmax and AS-Speed, trained as long as the baseline: difference in points with its interval, and word."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    (epochs,) = {row[1] for row in cells if row[4] == "baseline"}
    found = {
        row[0].removeprefix("multilabel_"): f"{row[3]}: {row[4].partition(' (')[0]}"
        for row in cells
        if row[1] == epochs
    }
    return [found[method] for method in ("as_softmax", "as_speed")]


def main() -> None:
    long = [
        "# Results",
        "",
        "Written by `python results/summary.py` from the reports, and these by `as-lightning-report` from the records",
        "below (`runs.jsonl`). Scores are of the test split, over seeds that tuning did not see. The runs",
        "of a comparison take turns on a two-core machine, one thread a run. [How to read it](../docs/compare.md).",
        "",
        "These comparisons were searched before the baseline's trials were shared: each method had its own four to six",
        "trials, and AS-Softmax could not choose `delta=1`, which is softmax. *Worse* means worse as searched then.",
        "",
    ]
    short = ["", "| data set | AS-Softmax | AS-Speed |", "| --- | --- | --- |"]
    for folder, title in COMPARISONS.items():
        for name, path in reports(folder):
            page, address = path.read_text(encoding="utf-8"), path.relative_to(RESULTS).as_posix()
            heading = f"{name}: {title}" if title else name
            long += [f"## {heading}", "", f"{advice(page)} ([report]({address}))", "", *table(page), ""]
            if not title:
                short.append(f"| [{name}](results/{address}) | {' | '.join(full_budget(table(page)))} |")
    long += [
        "## At one learning rate",
        "",
        "Older sweeps: nothing in them is tuned. They are a check, not a ranking.",
        "",
    ]
    for folder, title in SWEEPS.items():
        links = [f"[{name}]({path.relative_to(RESULTS).as_posix()})" for name, path in reports(folder)]
        long.append(f"* {title}: {', '.join(links)}")
    long += ["", "## Speed and memory", "", "* the losses and heads: [performance](performance)"]
    long += [
        "* very many classes: [python_code](python_code/README.md)",
        "* callbacks: [accumulation](accumulation)",
        "",
    ]
    (RESULTS / "README.md").write_text("\n".join(long), encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    README.write_text("\n".join([f"{before}{START}", *short, "", f"{END}{after}"]), encoding="utf-8")


if __name__ == "__main__":
    main()
