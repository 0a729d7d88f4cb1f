"""One table of time, peak memory and score with very many classes: dense and fused heads, side by side.

    python -m as_lightning.benchmark.published.wide_heads

It reads the runs below ``results/python_code/heads``, writes ``results/python_code/README.md`` and puts the table into
the page about wide output layers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from as_lightning.benchmark.published.marked_place import write_between_marks
from as_lightning.benchmark.report.like_with_like import comparable_results
from as_lightning.benchmark.report.report import commands_of, compared, difference, number, percent
from as_lightning.benchmark.report.table_cells import short_verdict
from as_lightning.benchmark.run.result import Result, find_results

RESULTS = Path("results/python_code")
RUNS = "heads"
PAGE = Path("docs/wide_output_layers.md")
START, END = "<!-- written by as_lightning.benchmark.published.wide_heads -->", "<!-- end of what it wrote -->"
FIRST = ("softmax", "fused_softmax")  # the same model with both heads
COMMAND = (
    "as-lightning -m experiment=python_code seed=0,1,2 data.batch_tokens=1024,4096 "
    "method=softmax,fused_softmax,as_softmax method.fused_head=true method.delta=0.1,0.3,0.5"
)


def wide_head_table(results: Sequence[Result]) -> list[str]:
    """A Markdown table with a row for each batch size and method, those of plain softmax first.

    Times and memory are means over the seeds; the ratio of times is the median of the seeds' ratios. Perplexity is
    given for plain softmax alone: AS-Softmax does not maximise the likelihood.

    Args:
        results: of one experiment, whose runs differ in ``data.batch_tokens``, method and seed.
    """
    named, _ = comparable_results(results)
    of_method = {(run.name, run.method): run for run in named}
    lines = [
        "| tokens per batch | method | head | seeds | minutes | / dense | peak memory, MB | / dense | accuracy, % "
        "| difference, points [95% CI] | verdict | perplexity | masked in the last epoch, % |",
        "| --- |" + " --- |" * 12,
    ]
    rows: list[dict[str, Any]] = compared(named).to_dict("records")
    memory = {row["name"]: row["peak_memory"] for row in rows if row["verdict"] == "baseline"}

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return _batch_tokens(of_method[row["name"], row["method"]]), *(row["method"] != x for x in FIRST), row["method"]

    for row in sorted(rows, key=place):
        run = of_method[row["name"], row["method"]]
        cells = [
            f"{_batch_tokens(run):,}",
            row["method"],
            "fused" if run.method == "fused_softmax" or run.config["method"].get("fused_head") else "dense",
            str(row["seeds"]),
            number(row["train_seconds"] / 60, 1),
            number(row["train"]),
            number(row["peak_memory"] / 1e6, 0),
            number(row["peak_memory"] / memory.get(row["name"], math.nan)),
            f"{percent(row['mean'])} ± {percent(row['std'])}",
            difference(row),
            short_verdict(row["in_words"]),
            number(row["perplexity"], 1) if row["method"] in FIRST else "–",
            percent(row["final_masking_ratio"], 0),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _batch_tokens(run: Result) -> int:
    return int(run.config["data"]["batch_tokens"])


def page(results: Sequence[Result], table: Sequence[str]) -> str:
    """The page that holds the table, the command and the machine."""
    data = results[0].config["data"]
    tokens = {split: f"{count:,}" if count else "all" for split, count in (data["max_tokens"] or {}).items()}
    used = "all tokens" if not tokens else ", ".join(f"{split} {count}" for split, count in tokens.items())
    epochs = results[0].config["trainer"]["max_epochs"]
    machine, versions = _each(results, "machine"), _each(results, "versions")
    lines = [
        "# The next token of Python source code",
        "",
        "Written by `python -m as_lightning.benchmark.published.wide_heads` from the `result.json` files below: a",
        "causal transformer whose classes are the tokens of the standard library's source code",
        f"(`experiment=python_code`). Scores are of the test split; tokens used: {used}; {epochs} epochs.",
        "`softmax` and `fused_softmax` train the",
        "same model. Minutes are those of training without validation. Peak memory is what the process holds in the",
        "training steps beyond what it held before data and model were made. Ratios, differences and verdicts are to",
        "`softmax` at the same batch, paired by seed.",
        "",
        *(f"    {command}" for command in commands_of(results) or [COMMAND]),
        "",
        *table,
        "",
        *(f"Machine: {text}." for text in machine),
        "",
        *(f"Versions: {text}." for text in versions),
        "",
    ]
    return "\n".join(lines)


def _each(results: Sequence[Result], field: str) -> list[str]:
    texts = sorted({json.dumps(getattr(result, field), sort_keys=True) for result in results})
    return [", ".join(f"{key} {value}" for key, value in json.loads(text).items() if value) for text in texts]


def write(folder: Path = RESULTS, document: Path = PAGE) -> None:
    """Write the page of the runs below ``folder``, and their table into ``document`` between its two markers.

    Raises:
        ValueError: if ``document`` lacks the markers.
    """
    quoted = ["Not measured yet. The command of the runs:", "", f"    {COMMAND}"]
    if (folder / RUNS).is_dir():
        results = find_results([folder / RUNS])
        table = wide_head_table(results)
        (folder / "README.md").write_text(page(results, table), encoding="utf-8")
        seeds = len({run.seed for run in results})
        link = f"[how they were made](../{folder.as_posix()}/README.md)"
        quoted = [*table, "", f"{len(results)} runs, {seeds} {'seed' if seeds == 1 else 'seeds'}: {link}."]
    write_between_marks(document, ["", *quoted, ""], START, END)


if __name__ == "__main__":
    write()
