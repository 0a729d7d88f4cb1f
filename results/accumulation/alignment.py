"""How often Lightning's rule for windows has shortened those of AS-Speed, and how many more steps that made.

    python results/accumulation/alignment.py

Replays the recorded windows of the committed comparisons; writes ``alignment.md`` and a sentence of
``docs/accumulation.md``.
"""

import json
import sys
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd

from as_lightning.callbacks.window import aligned_window
from as_lightning.functional import accumulation_steps

RESULTS = Path(__file__).resolve().parents[1]
PAGE, DOCS = RESULTS / "accumulation" / "alignment.md", RESULTS.parent / "docs" / "accumulation.md"
sys.path.insert(0, str(RESULTS))
from written import written  # noqa: E402

OF_FIXED_LENGTH = "windows_of_4"  # a candidate without AS-Speed
FEW = {
    "wnut17/fine_tuned": "on WNUT-17",
    "accumulation/processes": "on two processes",
}  # few batches an epoch
COLUMNS = ["runs", "windows", "shortened, %", "additional steps, %"]


def of_run(run: dict[str, Any]) -> dict[str, float]:
    """A run's windows, those shorter than wanted, and the steps that windows of the wanted lengths
    would take.
    """
    callback = (
        run["config"]
        .get("method", {})
        .get("callbacks", {})
        .get("adaptive_gradient_accumulation", {})
    )
    limits = {name: callback[name] for name in ("scale", "max_steps") if name in callback}
    wanted, windows, shortened, steps = 1, 0, 0, 0.0
    for _, epoch in groupby(run["accumulation"], key=lambda window: window[0]):
        _, starts, lengths, masked_samples, samples = zip(*epoch, strict=True)
        batches = starts[-1] + lengths[-1]
        for start, length, masked, seen in zip(
            starts, lengths, masked_samples, samples, strict=True
        ):
            if length != aligned_window(start, wanted, batches - start):
                raise ValueError(
                    f"{run['path']}: {length} batches from batch {start} on are no window of "
                    "today's rule"
                )
            windows, shortened = windows + 1, shortened + (length < min(wanted, batches - start))
            steps += length / wanted
            wanted = accumulation_steps(seen, masked, previous=wanted, **limits)
    return {"windows": windows, "shortened": shortened, "steps": steps}


def comparisons() -> pd.DataFrame:
    """A row for each comparison with runs of AS-Speed."""
    rows = {}
    for path in sorted(RESULTS.glob("*/*/runs.jsonl")):
        runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        replayed = [
            of_run(run)
            for run in runs
            if run.get("accumulation")
            and OF_FIXED_LENGTH not in (run.get("candidate"), run.get("method"))
        ]
        if replayed:
            total = pd.DataFrame(replayed).sum()
            shares = [total["shortened"] / total["windows"], total["windows"] / total["steps"] - 1]
            counts = [len(replayed), int(total["windows"])]
            rows[path.parent.relative_to(RESULTS).as_posix()] = [
                *counts,
                *(100 * share for share in shares),
            ]
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
