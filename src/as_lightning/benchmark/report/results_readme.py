"""Rebuild every report below ``results/``, its README and the README's summary from the committed ``result.json``.

    python -m as_lightning.benchmark.report.results_readme

Each data set has a folder with its sweeps: ``main`` (softmax, AS-Softmax and AS-Speed), ``others`` (three more methods)
and on some ``delta`` (AS-Softmax with margins from nearly none to all) and ``label_noise``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from as_lightning.benchmark.results import find_results

RESULTS = Path("results")
START, END = "<!-- written by as_lightning.benchmark.report.results_readme -->", "<!-- end -->"
IN_WORDS = "clinc150"  # the data set that the README reads in words
AS_METHODS = ("as_softmax", "as_speed", "multilabel_as_softmax", "multilabel_as_speed")
EXTRA_SWEEPS = {"delta": "margins", "label_noise": "label noise"}
VERDICTS = {
    "better": "is better than",
    "worse": "is worse than",
    "no evidence": "shows no evidence of a difference to",
    "too few seeds": "has too few seeds to be compared with",
}


def folders() -> list[Path]:
    """The folders of data sets that have a main sweep."""
    return sorted(path.parent for path in RESULTS.glob("*/main"))


def sentence(experiment: Experiment, row: dict[str, Any]) -> str:
    """What was found of one method on one data set."""
    said = f"`{row['method']}` {VERDICTS[row['verdict']]} `{experiment.baseline}`"
    said += f" ({difference(row)} points of {experiment.score}, {row['seeds']} seeds)"
    said += (
        f"; it trains in {number(row['train'])} times the time with {number(row['optimizer_steps'], 0)} optimizer steps"
    )
    if not math.isnan(row["final_masking_ratio"]):
        said += f", {percent(row['final_masking_ratio'], 0)}% of the samples masked in the last epoch"
    return said + "."


def in_short(experiments: Sequence[Experiment]) -> list[str]:
    """Where AS-Softmax has won, lost or made no difference."""
    lists: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    for experiment in experiments:
        for row in experiment.rows:
            if row["method"] in AS_METHODS and row["verdict"] in lists:
                lists[row["verdict"]].append(f"`{row['method']}` on {experiment.name}")
    headings = {
        "better": "AS-Softmax or AS-Speed won",
        "worse": "Lost",
        "no evidence": "No evidence of a difference",
        "too few seeds": "Too few seeds",
    }
    return [
        f"* **{headings[verdict]}**: {', '.join(found) if found else 'nowhere'}."
        for verdict, found in lists.items()
        if found or verdict in ("better", "worse")
    ]


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
            cells.append(f"{f'**{score}**' if row['best'] else score} ({row['verdict']})")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def without_paths(text: str) -> str:
    """A command as others repeat it: without the folder that it wrote to."""
    return re.sub(r" (hydra\.sweep\.dir|trainer\.enable_progress_bar)=\S+", "", text)


def main() -> None:
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
    lines = [
        "# Results",
        "",
        "Written by `python -m as_lightning.benchmark.report.results_readme` from the `result.json` files below.",
        "Scores are of the test split, means over the seeds with standard deviations. Verdicts are of paired",
        "t-tests by seed, corrected (Holm) for all comparisons of a data set. Times: a busy two-core machine, one",
        "thread a run. The runs of softmax, AS-Softmax and AS-Speed in a main sweep take turns, so that drift cancels;",
        "those of other sweeps (other methods, margins, label noise) ran beside other work: their times say little.",
        "Softmax, AS-Softmax and AS-Speed have 5 seeds, the others 3 (digits: 5). Bold is the highest mean. Intervals",
        "are not corrected, verdicts are: an interval may leave 0 out where the verdict is no evidence.",
        "",
        "## In short",
        "",
        *in_short(experiments),
        "",
        "## Scores, %",
        "",
        *table(experiments),
        "",
        "## AS-Softmax and AS-Speed, one by one",
        "",
    ]
    for experiment in experiments:
        lines += [f"**{experiment.name}**", ""]
        lines += [f"* {sentence(experiment, row)}" for row in experiment.rows if row["method"] in AS_METHODS]
        lines.append("")
    lines += ["## Reports", "", *sections, ""]
    lines += [
        "Speed and memory of the losses: [performance](performance), of the callbacks: [accumulation](accumulation).",
        "",
    ]
    (RESULTS / "README.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
    readme = Path("README.md")
    before, _, rest = readme.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    read_aloud = [
        sentence(experiment, row)
        for experiment in experiments
        if experiment.name == IN_WORDS
        for row in experiment.rows
        if row["method"] in AS_METHODS
    ]
    words = ["", f"On {IN_WORDS} " + " ".join(read_aloud)] if read_aloud else []
    short = "\n".join([START, *in_short(experiments), *words, END])
    readme.write_text(before + short + after, encoding="utf-8")


if __name__ == "__main__":
    main()
