"""Time, peak memory and score with very many classes: dense and fused heads side by side, as a table.

    python results/wide_heads.py

Reads the runs of ``results/python_code/heads`` and writes ``results/python_code/README.md``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from as_lightning.benchmark.run.result import Result, find_results

FOLDER = Path(__file__).resolve().parent / "python_code"
TABLE = re.compile(r"(?<=<!-- written by results/wide_heads.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
HEAD = "| tokens per batch | method | head | seeds | minutes | / dense | peak memory, MB | / dense | accuracy, % | "
MORE = "difference, points [95% CI] | perplexity | masked in the last epoch, % |"
Key = tuple[int, bool, str]  # tokens in a batch, not the dense head, method and margin: the order of the rows


def key_of(run: Result) -> Key:
    """Where a run belongs in the table."""
    label = run.method if run.method != "as_softmax" else f"as_softmax (delta={run.config['method'].get('delta')})"
    return int(run.config["data"]["batch_tokens"]), run.method != "softmax", label.replace("fused_", " fused_")


def row(key: Key, runs: dict[int, Result], dense: dict[int, Result]) -> str:
    """A method's row, beside the dense head with the same batch, paired by seed."""
    first, pairs = next(iter(runs.values())), [(run, dense[seed]) for seed, run in runs.items()]
    score = pd.Series([100 * run.metrics[first.score] for run in runs.values()])
    difference = pd.Series([100 * (run.metrics[first.score] - base.metrics[first.score]) for run, base in pairs])
    half = stats.t.ppf(0.975, len(pairs) - 1) * difference.std() / len(pairs) ** 0.5
    memory, of_dense = (np.mean([run.peak_memory for run in of.values()]) for of in (runs, dense))
    last = [run.masking[-1] for run in runs.values() if run.masking]
    masked = f"{100 * np.mean([epoch['masked_samples'] / epoch['samples'] for epoch in last]):.0f}" if last else "–"
    likelihood = first.method in ("softmax", "fused_softmax")  # AS-Softmax does not maximise it
    cells = [
        f"{key[0]:,}",
        key[2].strip(),
        "fused" if first.method == "fused_softmax" or first.config["method"].get("fused_head") else "dense",
        str(len(pairs)),
        f"{np.mean([run.train_seconds for run in runs.values()]) / 60:.1f}",
        f"{np.median([run.train_seconds / base.train_seconds for run, base in pairs]):.2f}",
        f"{memory / 1e6:.0f}",
        f"{memory / of_dense:.2f}",
        f"{score.mean():.2f} ± {score.std():.2f}",
        "–" if first.method == "softmax" else f"{difference.mean():+.2f} ± {half:.2f}",
        f"{np.mean([run.metrics['perplexity'] for run in runs.values()]):.1f}" if likelihood else "–",
        masked,
    ]
    return f"| {' | '.join(cells)} |"


def page(results: Sequence[Result]) -> str:
    """The page, with the table of these runs."""
    groups: dict[Key, dict[int, Result]] = {}
    for run in results:
        groups.setdefault(key_of(run), {})[run.seed] = run
    rows = [row(key, runs, groups[key[0], False, "softmax"]) for key, runs in sorted(groups.items())]
    table = "\n".join([HEAD + MORE, f"|{' --- |' * 12}", *rows, ""])
    return TABLE.sub(lambda _: table, (FOLDER / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page(find_results([FOLDER / "heads"])), encoding="utf-8")
