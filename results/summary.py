"""Put the reports of the committed comparisons side by side: ``results/README.md``, and the answer
in README.

    python results/summary.py

All is taken from the records, as ``as-lightning-report FOLDER`` takes it, which writes a report
anew.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats
from written import written

from as_lightning.report.advice import advice
from as_lightning.report.findings import Findings, findings
from as_lightning.report.page import deciding, table
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.verdicts import Verdict

RESULTS = Path(__file__).resolve().parent
README = RESULTS.parent / "README.md"
SIMULATION = RESULTS / "statistics" / "simulation.md"
# folders of a data set, and what they add to its name
COMPARISONS = {
    "fine_tuned": ", fine-tuned",
    "fine_tuned_longer": ", fine-tuned for twice as long",
    "fine_tuned_whole": ", all layers fine-tuned on a GPU",
    "fine_tuned_other": ", fine-tuned: other losses",
    "comparison": "",
    "other_losses": ": other losses",
    "lr_scale": ": AS-Speed's learning rate in a window of k batches",
}
NAMES = {  # of data sets whose folders do not say it
    "clinc150_20_shots": "clinc150, 20 examples a class",
    "goemotions_10k": "goemotions, first 10,000 examples",
}
# those in which AS-Softmax is compared
OF_THE_PAPER = ("fine_tuned", "fine_tuned_longer", "fine_tuned_whole", "comparison")
COSTS = 1.0  # points that half the epochs may cost a training that is at its end
SWEEPS = {"delta/report": "margins", "label_noise/report": "wrong labels"}
UNTUNED = [
    "## At one learning rate",
    "",
    "Nothing in these sweeps is tuned: they show what a setting does.",
    "",
]


def reports(folder: str) -> dict[str, str]:
    """The reports in folders of that name: data set and address, in the order of the data sets."""
    pages = [page.relative_to(RESULTS) for page in sorted(RESULTS.glob(f"*/{folder}/report.md"))]
    return {page.parts[0]: page.as_posix() for page in pages}


def comparisons(folder: str) -> dict[str, Findings]:
    """What the comparisons in folders of that name have found, by the addresses of
    their reports.
    """
    return {
        page: findings(ComparisonRecord.read((RESULTS / page).parents[1]))
        for page in reports(f"{folder}/report").values()
    }


def half_the_epochs(address: str) -> Findings | None:
    """What is known of the baseline at half the epochs, which was judged apart; None if nothing."""
    folder = (RESULTS / address).parents[1] / "half"
    return findings(ComparisonRecord.read(folder)) if folder.exists() else None


def trained_to_the_end(address: str) -> bool:
    """Whether half the epochs cost softmax at most a point: else a comparison is of trainings that
    are cut short.

    Comparisons without half the epochs go by the one of the same data and model that has them.
    """
    data, folder, *_ = address.split("/")
    main = (
        "fine_tuned"
        if folder == "fine_tuned_other"
        else "comparison"
        if folder not in OF_THE_PAPER
        else folder
    )
    found = half_the_epochs(f"{data}/{main}/report/report.md")
    halves = [] if found is None else found.verdicts
    return folder == "fine_tuned_longer" or all(verdict.difference > -COSTS for verdict in halves)


def answer() -> str:
    """How often AS-Softmax is better than softmax, and what a true gain would look like, in
    sentences.
    """
    told = {True: "", False: ""}
    for ended in told:
        chosen, better, total = 0, [], 0
        for folder in OF_THE_PAPER:
            for address, found in comparisons(folder).items():
                if trained_to_the_end(address) != ended:
                    continue
                verdict = next(each for each in found.verdicts if each.arm.endswith("as_softmax"))
                total += 1
                chosen += verdict.arm in found.record.same_as
                if verdict.word == "better":
                    data = address.partition("/")[0]
                    better.append(
                        f"[{NAMES.get(data, data)}{COMPARISONS[folder]}](results/{address})"
                    )
        where = ", ".join([*better, f"tuning chose plain softmax in {chosen}"])
        told[ended] = f"{len(better)} of {total} ({where})"
    seen = re.search(r"better at \+0.5.*?\| ([\d.]+)%", SIMULATION.read_text(encoding="utf-8"))
    share = f"{float(seen[1]):.0f}" if seen else "?"
    text = (
        "Of networks trained from scratch or fine-tuned, both losses tuned alike, where training is "
        "long enough (halving the epochs loses at most a point), AS-Softmax is *better* than softmax in "
        f"{told[True]}; where it is cut short, in {told[False]}. Where runs scatter by 0.6 points, "
        f"one of eight candidates that gains half a point is seen in {share}% of comparisons."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def mean_over_data_sets(differences: Sequence[float]) -> tuple[float, float, float]:
    """The mean over data sets, and its 95% interval by Student's t: where the mean over all data
    sets of the kind lies.

    ``differences`` are the mean of each data set's seeds. Their own error is in their spread.
    """
    low, high = stats.t.interval(
        0.95, len(differences) - 1, np.mean(differences), stats.sem(differences)
    )
    return float(np.mean(differences)), float(low), float(high)


def over_data_sets(method: str, folder: str = "comparison") -> str:
    """The mean difference of a method over comparisons of a kind; how often each verdict fell.

    Those where validation chose the baseline's own setting are counted, and are not in the mean.
    Those that are not trained to the end are in neither.
    """
    verdicts: list[Verdict] = []
    chosen = 0
    for address, found in comparisons(folder).items():
        if not trained_to_the_end(address):
            continue
        for verdict in found.verdicts:
            if verdict.arm.removeprefix("multilabel_") != method:
                continue
            if verdict.arm in found.record.same_as:
                chosen += 1  # a difference of exactly 0 by choice, not by measurement
            else:
                verdicts.append(verdict)
    words = Counter(verdict.word for verdict in verdicts)
    same = [f"softmax on {chosen}"] if chosen else []
    count = ", ".join(
        [*same, *(f"{word} on {number}" for word, number in words.most_common() if number)]
    )
    if len(verdicts) < 2:
        return count
    mean, low, high = mean_over_data_sets([verdict.difference for verdict in verdicts])
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f}) on {len(verdicts)}: {count}"


def all_words() -> str:
    """How often each verdict fell in all comparisons."""
    found = {address: each for of in COMPARISONS for address, each in comparisons(of).items()}
    judged = [(verdict, each.record) for each in found.values() for verdict in each.verdicts]
    own = [verdict for verdict, record in judged if verdict.arm not in record.same_as]
    halves = [verdict for half in map(half_the_epochs, found) if half for verdict in half.verdicts]
    said = []
    for length, verdicts in (("the full length", own), ("half the epochs", halves)):
        words = Counter(verdict.word for verdict in verdicts).most_common()
        said.append(f"at {length} {', '.join(f'{number} {word}' for word, number in words)}")
    same = f"in {len(judged) - len(own)} tuning chose the baseline's own setting, which makes them equal"
    count = f"{len(judged) + len(halves)} verdicts in {len(found)} comparisons"
    return f"{count}: {same}; of the others {'; '.join(said)}."


def rows_of(address: str, each: Findings) -> str:
    """The deciding table of a comparison, with the row of half the epochs."""
    rows = deciding(each)
    half = half_the_epochs(address)
    if half is not None:
        own = deciding(half)[1]
        names = dict.fromkeys([*deciding(half)[0], *rows[0]])
        rows = [{name: row.get(name, "–") for name in names} for row in (rows[0], own, *rows[1:])]
    return table(rows)


def main() -> None:
    """Write the tables, and the answer."""
    lines = [all_words(), ""]
    for folder, title in COMPARISONS.items():
        for address, each in comparisons(folder).items():
            data = address.partition("/")[0]
            rows = rows_of(address, each)
            half = half_the_epochs(address)
            cut = "" if trained_to_the_end(address) else " (not trained to the end)"
            lines += [f"## {NAMES.get(data, data)}{title}{cut}", ""]
            said = f"{advice(each)[0]} ([report]({address}))"
            if half is not None:
                shorter = address.replace("report/report.md", "half/report/report.md")
                advised = advice(half)[0]
                said += f" ([half the epochs]({shorter}))"
                if advised != advice(each)[0]:
                    said += f" Beside half the epochs alone: {advised}"
            lines += [said, "", rows, ""]
    lines += [
        "## Means over data sets",
        "",
        "| trained | AS-Softmax | AS-Speed | label smoothing |",
    ]
    lines.append("| --- | --- | --- | --- |")
    for title, folder, others in (
        ("fine-tuned", "fine_tuned", "fine_tuned_other"),
        ("from scratch", "comparison", "other_losses"),
    ):
        means = [over_data_sets(method, folder) for method in ("as_softmax", "as_speed")]
        lines.append(
            f"| {title} | {' | '.join([*means, over_data_sets('label_smoothing', others)])} |"
        )
    scaled = (
        f"{method} {over_data_sets(method, 'lr_scale')}"
        for method in ("as_speed", "as_speed_linear")
    )
    lines += [
        "",
        f"Mean difference to `as_speed_none` of the runs of `lr_scale`: {'; '.join(scaled)}.",
        "",
        *UNTUNED,
    ]
    for folder, title in SWEEPS.items():
        lines.append(
            f"* {title}: {', '.join(f'[{name}]({address})' for name, address in reports(folder).items())}"
        )
    found = answer()
    of_results = found.replace("](results/", "]("), "\n".join(["", *lines, ""])
    for page, parts in ((RESULTS / "README.md", of_results), (README, (found,))):
        page.write_text(written(page, "results/summary.py", *parts), encoding="utf-8")


if __name__ == "__main__":
    main()
