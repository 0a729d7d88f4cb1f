"""Rebuild every report below ``results/``, its README, the README's summary and the cards' numbers.

    python -m as_lightning.benchmark.published.results_readme

Each data set has a folder. ``comparison``, ``other_losses``, ``skip_backward`` and ``fresh_seeds`` hold comparisons by
``as-lightning-compare``. The others are sweeps at one learning rate: ``main`` (softmax, AS-Softmax and AS-Speed),
``others`` (three more methods) and on some ``delta`` (AS-Softmax with margins from nearly none to all) and
``label_noise``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from as_lightning.benchmark.published import wide_heads
from as_lightning.benchmark.published.committed_comparisons import (
    FRESH_SEEDS,
    MAIN,
    OTHER_LOSSES,
    RESULTS,
    SKIP_BACKWARD,
    CommittedComparison,
    committed,
)
from as_lightning.benchmark.published.comparison_sections import (
    TUNED_ALIKE,
    advised_in_short,
    arm_lines,
    comparison_lines,
    other_loss_lines,
    skipping_compared,
    skipping_lines,
)
from as_lightning.benchmark.published.first_screen import draw_first_screen
from as_lightning.benchmark.published.marked_place import write_between_marks
from as_lightning.benchmark.published.method_cards import write_cards
from as_lightning.benchmark.report.comparison import BASELINES
from as_lightning.benchmark.report.report import (
    Experiment,
    commands_of,
    difference,
    number,
    percent,
    summarize,
    write_report,
)
from as_lightning.benchmark.report.table_cells import short_verdict
from as_lightning.benchmark.run.result import find_results

START, END = "<!-- written by as_lightning.benchmark.published.results_readme -->", "<!-- end -->"
AS_METHODS = ("as_softmax", "as_speed", "multilabel_as_softmax", "multilabel_as_speed")
TRIED_AGAIN = (
    "A finding above that stood out, among many that were looked at, tried again with seeds that no run had seen."
)
EXTRA_SWEEPS = {"delta": "margins", "label_noise": "label noise"}


def folders() -> list[Path]:
    """The folders of data sets that have a main sweep."""
    return sorted(path.parent for path in RESULTS.glob("*/main"))


def sentence(experiment: Experiment, row: dict[str, Any]) -> str:
    """What was found of one method on one data set."""
    said = f"`{row['method']}` against `{experiment.baseline}`: {short_verdict(row['in_words'])}"
    said += f" ({difference(row)} points of {experiment.score}, {row['seeds']} seeds)"
    said += (
        f"; it trains in {number(row['train'])} times the time with {number(row['optimizer_steps'], 0)} optimizer steps"
    )
    if not math.isnan(row["final_masking_ratio"]):
        said += f", {percent(row['final_masking_ratio'], 0)}% of the samples masked in the last epoch"
    return said + "."


def table(experiments: Sequence[Experiment]) -> list[str]:
    """Methods as rows, data sets as columns."""
    methods = dict.fromkeys(row["method"] for experiment in experiments for row in experiment.rows)
    lines = [
        "| method | " + " | ".join(f"{experiment.name}, {experiment.score}" for experiment in experiments) + " |",
        "| --- |" + " --- |" * len(experiments),
    ]
    for method in methods:
        cells = []
        for experiment in experiments:
            row = next((row for row in experiment.rows if row["method"] == method), None)
            if row is None:
                cells.append("–")
                continue
            score = f"{percent(row['mean'])} ± {percent(row['std'])}"
            cells.append(f"{f'**{score}**' if row['best'] else score} ({short_verdict(row['in_words'])})")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def without_paths(text: str) -> str:
    """A command as others repeat it: without the folder that it wrote to."""
    return re.sub(r" (hydra\.sweep\.dir|trainer\.enable_progress_bar)=\S+", "", text)


def rebuilt(kind: str) -> list[CommittedComparison]:
    """The comparisons of that kind, their reports written anew."""
    comparisons = committed(kind)
    for comparison in comparisons:
        comparison.write_report()
    return comparisons


def rebuilt_sweeps() -> tuple[list[Experiment], list[str]]:
    """Rebuild the reports of the sweeps at one learning rate.

    Returns:
        Their numbers, and a line of links for each data set.
    """
    experiments: list[Experiment] = []
    sections: list[str] = []
    for folder in folders():
        sweeps = [folder / name for name in ("main", "others") if (folder / name).is_dir()]
        results = find_results(sweeps)
        experiments += summarize(results)
        commands = [without_paths(command) for command in commands_of(results)]
        write_report(results, folder / "report", commands=commands)
        links = [f"[report]({folder.name}/report/report.md)"]
        for name, title in EXTRA_SWEEPS.items():
            if not (folder / name).is_dir():
                continue
            runs = find_results([folder / name])
            if name == "delta":  # beside the margins stands what they are compared with
                seeds = {run.seed for run in runs}
                runs += [run for run in results if run.method in BASELINES and run.seed in seeds]
            commands = [without_paths(command) for command in commands_of(runs)]
            write_report(runs, folder / name / "report", commands=commands)
            links.append(f"[{title}]({folder.name}/{name}/report/report.md)")
        sections.append(f"* {results[0].name}: {', '.join(links)}.")
    return experiments, sections


def single_rate_lines(experiments: Sequence[Experiment], sections: Sequence[str]) -> list[str]:
    """The lines on the sweeps for the results' README."""
    lines = [
        "## At one learning rate",
        "",
        "Older sweeps: nothing in them is tuned, every method has the same number of epochs. Read them as a check that",
        "nothing is won for free, not as a ranking. Softmax, AS-Softmax and AS-Speed have 5 seeds, the others 3",
        "(digits: 5). The runs of these three take turns; the others ran beside other work, and their times say",
        "little. Verdicts are paired by seed and corrected (Holm) for all comparisons of a data set",
        "([how to read them](../docs/compare.md#how-to-read-the-verdicts)). Bold is the highest mean.",
        "",
        *table(experiments),
        "",
    ]
    for experiment in experiments:
        lines += [f"**{experiment.name}**", ""]
        lines += [f"* {sentence(experiment, row)}" for row in experiment.rows if row["method"] in AS_METHODS]
        lines.append("")
    return [*lines, *sections, ""]


def main() -> None:
    compared, backward, tried_again = rebuilt(MAIN), rebuilt(SKIP_BACKWARD), rebuilt(FRESH_SEEDS)
    other_losses = rebuilt(OTHER_LOSSES)
    skipping = skipping_compared([*compared, *backward])
    draw_first_screen(compared)
    experiments, sections = rebuilt_sweeps()
    fair, short = comparison_lines(compared, skipping)
    write_cards([*compared, *backward, *tried_again, *other_losses], experiments)
    wide_heads.write()
    wide = ["Very many classes, dense and fused heads: [python_code](python_code/README.md).", ""]
    lines = [
        "# Results",
        "",
        "Written by `python -m as_lightning.benchmark.published.results_readme` from the `result.json` files below.",
        "Scores are of the test split, means over the seeds with standard deviations. Times: a busy two-core machine,",
        "one thread per run; the runs of a comparison take turns, so that drift cancels in the ratios.",
        "",
        *fair,
        *arm_lines(backward, "Skipping the backward pass", TUNED_ALIKE, "softmax at all epochs"),
        *arm_lines(tried_again, "Tried again with fresh seeds", TRIED_AGAIN, "softmax"),
        *other_loss_lines(other_losses),
        *single_rate_lines(experiments, sections),
        *(wide if (RESULTS / "python_code" / "README.md").exists() else []),
        "Speed and memory of the losses: [performance](performance), of the callbacks: [accumulation](accumulation).",
        "",
    ]
    (RESULTS / "README.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
    short += advised_in_short(tried_again, "results/")
    write_between_marks(Path("README.md"), short, START, END)
    write_between_marks(Path("docs/skipping.md"), ["", *skipping_lines(skipping)], START, END)


if __name__ == "__main__":
    main()
