"""Put the reports of the committed comparisons side by side: ``results/README.md``, and the results in README.

    python results/summary.py

It takes the first sentence of advice and the first table of each report as they are. ``as-lightning-report FOLDER``
writes a report anew from the records in its folder.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from as_lightning.benchmark.report.record import ComparisonRecord

RESULTS = Path(__file__).resolve().parent
README = RESULTS.parent / "README.md"
WRITTEN = re.compile(r"(?<=<!-- written by results/summary.py -->\n)(.*?\n)(?=\n<!-- end -->)", re.DOTALL)
# folders of a data set, and what they add to its name
COMPARISONS = {
    "fine_tuned": ", fine-tuned",
    "fine_tuned_longer": ", fine-tuned for twice as long",
    "fine_tuned_other": ", fine-tuned: other losses",
    "comparison": "",
    "other_losses": ": other losses",
    "lr_scale": ": AS-Speed's learning rate in a window of k batches",
}
SWEEPS = {"delta/report": "margins", "label_noise/report": "wrong labels"}
UNTUNED = ["## At one learning rate", "", "Nothing in these sweeps is tuned: they show what a setting does.", ""]


def reports(folder: str) -> dict[str, str]:
    """The reports in folders of that name: data set and address, in the order of the data sets."""
    pages = [page.relative_to(RESULTS) for page in sorted(RESULTS.glob(f"*/{folder}/report.md"))]
    return {page.parts[0]: page.as_posix() for page in pages}


def advice_and_table(address: str) -> tuple[str, list[str]]:
    """What a report says in bold, and its first table."""
    lines = (RESULTS / address).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| method "))
    advice = next(line.strip("*") for line in lines if line.startswith("**"))
    return advice, lines[start : lines.index("", start)]


def full_budget(table: list[str]) -> list[str]:
    """Of AS-Softmax and AS-Speed, trained as long as the baseline: difference in points with its interval, and word."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in reversed(table[2:])]
    rows = {
        row[0].removeprefix("multilabel_").split()[0]: row for row in cells
    }  # of each method the first, the full budget
    return [f"{rows[m][3]}: {rows[m][4].partition(' (')[0]}" for m in ("as_softmax", "as_speed")]


def mean_over_data_sets(differences: Sequence[Sequence[float]], resamples: int = 10_000) -> tuple[float, float, float]:
    """The mean over data sets, and its 95% interval by a stratified bootstrap over data sets and seeds.

    Each resample draws data sets with replacement, and for each of them its seeds with replacement. ``differences`` are
    of each data set those of its seeds. Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice", NeurIPS 2021 (rliable).
    """
    generator, count = np.random.default_rng(0), len(differences)
    # of each data set as many draws of its seeds' mean as it can be drawn itself
    draws = [generator.choice(seeds, (resamples, count, len(seeds))).mean(-1) for seeds in differences]
    chosen = generator.integers(count, size=(resamples, count))
    means = np.stack(draws)[chosen, np.arange(resamples)[:, None], np.arange(count)].mean(-1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(np.mean([np.mean(seeds) for seeds in differences])), float(low), float(high)


def over_data_sets(method: str, folder: str = "comparison") -> str:
    """The mean difference of a method at the full budget over comparisons of a kind, and how often which word fell."""
    differences, words = [], Counter[str]()
    for report in reports(f"{folder}/report").values():
        record = ComparisonRecord.read((RESULTS / report).parents[1])
        name = next(each for each in record.methods if each.removeprefix("multilabel_") == method)
        verdict = next(found for found in record.verdicts() if found.arm == (name, record.full_budget))
        scores = record.scores()
        own, base = scores[verdict.arm], scores[record.reference]
        differences.append([own[seed] - base[seed] for seed in own.keys() & base.keys()])
        words[verdict.word] += 1
    mean, low, high = mean_over_data_sets(differences)
    count = ", ".join(f"{word} on {number}" for word, number in words.most_common())
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f}): {count}"


def all_words() -> str:
    """How often which word fell in all comparisons, also for smaller budgets."""
    records = [
        ComparisonRecord.read((RESULTS / page).parents[1])
        for of in COMPARISONS
        for page in reports(f"{of}/report").values()
    ]
    found = [(verdict, record.same_as) for record in records for verdict in record.verdicts()]
    words = Counter(verdict.word for verdict, same_as in found if verdict.arm.method not in same_as)
    count = ", ".join(f"{number} {word}" for word, number in words.most_common())
    none = "" if words["undecided"] else ", none undecided"
    same = f"in {len(found) - words.total()} validation chose the baseline's own setting, which makes them equal"
    return f"{len(found)} verdicts in {len(records)} comparisons: {same}; of the others {count}{none}."


def main() -> None:
    """Write the tables of both pages."""
    long, short = [all_words(), ""], ["| data set | AS-Softmax | AS-Speed |", "| --- | --- | --- |"]
    for folder, title in COMPARISONS.items():
        for name, address in reports(f"{folder}/report").items():
            advice, table = advice_and_table(address)
            long += [f"## {name}{title}", "", f"{advice} ([report]({address}))", "", *table, ""]
            if folder in ("fine_tuned", "comparison"):
                short.append(f"| [{name}{title}](results/{address}) | {' | '.join(full_budget(table))} |")
    for folder, title in (("fine_tuned", "fine-tuned"), ("comparison", "from scratch")):
        if len(reports(f"{folder}/report")) < 3:
            continue
        means = (over_data_sets(method, folder) for method in ("as_softmax", "as_speed"))
        short.append(f"| mean, {title} | {' | '.join(means)} |")
    scaled = (f"{method} {over_data_sets(method, 'lr_scale')}" for method in ("as_speed", "as_speed_linear"))
    long += [f"Mean difference to `as_speed_none` over these data sets: {'; '.join(scaled)}.", "", *UNTUNED]
    for folder, title in SWEEPS.items():
        long.append(f"* {title}: {', '.join(f'[{name}]({address})' for name, address in reports(folder).items())}")
    for page, lines in ((RESULTS / "README.md", long), (README, short)):
        before, _, after = WRITTEN.split(page.read_text(encoding="utf-8"))
        page.write_text("\n".join([before, *lines, after]), encoding="utf-8")


if __name__ == "__main__":
    main()
