"""Time, peak memory and score with very many classes: dense and fused heads side by side, as a table.

    python results/wide_heads.py

Reads the runs of ``results/python_code/heads`` and writes ``results/python_code/README.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from as_lightning.benchmark.run.result import Result, find_results

FOLDER = Path(__file__).resolve().parent / "python_code"
COLUMNS = (
    "tokens per batch",
    "method",
    "head",
    "seeds",
    "minutes",
    "/ dense",
    "peak memory, MB",
    "/ dense",
    "accuracy, %",
    "difference, points [95% CI]",
    "perplexity",
    "masked in the last epoch, %",
)
Key = tuple[int, bool, str]  # tokens in a batch, not the dense head, method and margin: the order of the rows


def key_of(run: Result) -> Key:
    delta = run.config["method"].get("delta")
    label = run.method if run.method != "as_softmax" else f"as_softmax (delta={delta})"
    return int(run.config["data"]["batch_tokens"]), run.method != "softmax", label.replace("fused_", " fused_")


def row(key: Key, runs: dict[int, Result], dense: dict[int, Result]) -> list[str]:
    """The cells of a method, beside those of the dense head with the same batch, paired by seed."""
    first, seeds = next(iter(runs.values())), sorted(runs)
    seconds = float(np.mean([run.train_seconds for run in runs.values()]))
    memory, dense_memory = (np.mean([run.peak_memory for run in of.values()]) for of in (runs, dense))
    scores = np.array([100 * runs[seed].metrics[first.score] for seed in seeds])
    differences = scores - [100 * dense[seed].metrics[first.score] for seed in seeds]
    half = student.ppf(0.975, len(seeds) - 1) * differences.std(ddof=1) / len(seeds) ** 0.5
    last = [run.masking[-1] for run in runs.values() if run.masking]
    masked = f"{100 * np.mean([epoch['masked_samples'] / epoch['samples'] for epoch in last]):.0f}" if last else "–"
    likelihood = first.method in ("softmax", "fused_softmax")  # AS-Softmax does not maximise it
    return [
        f"{key[0]:,}",
        key[2].strip(),
        "fused" if first.method == "fused_softmax" or first.config["method"].get("fused_head") else "dense",
        str(len(seeds)),
        f"{seconds / 60:.1f}",
        f"{np.median([runs[seed].train_seconds / dense[seed].train_seconds for seed in seeds]):.2f}",
        f"{memory / 1e6:.0f}",
        f"{memory / dense_memory:.2f}",
        f"{scores.mean():.2f} ± {scores.std(ddof=1):.2f}",
        "–" if first.method == "softmax" else f"{differences.mean():+.2f} ± {half:.2f}",
        f"{np.mean([run.metrics['perplexity'] for run in runs.values()]):.1f}" if likelihood else "–",
        masked,
    ]


def page(results: Sequence[Result]) -> str:
    groups: dict[Key, dict[int, Result]] = {}
    for run in results:
        groups.setdefault(key_of(run), {})[run.seed] = run
    rows = [row(key, runs, groups[key[0], False, "softmax"]) for key, runs in sorted(groups.items())]
    tokens = ", ".join(f"{split} {count:,}" for split, count in results[0].config["data"]["max_tokens"].items())
    epochs = results[0].config["trainer"]["max_epochs"]
    lines = [
        "# The next token of Python source code",
        "",
        "Written by `python results/wide_heads.py` from `heads/runs.jsonl`: a causal transformer whose classes are the",
        f"tokens of the standard library's source code. Tokens used: {tokens}; {epochs} epochs.",
        "`softmax` and `fused_softmax` train the same model. Minutes are those of training without validation. Peak",
        "memory is what the process holds in the training steps beyond what it held before data and model were made.",
        "Ratios and differences are to `softmax` at the same batch, paired by seed.",
        "",
        *sorted({f"    {run.command}" for run in results if run.command}),
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{' --- |' * len(COLUMNS)}",
        *(f"| {' | '.join(cells)} |" for cells in rows),
        "",
    ]
    for title, found in (("Machine", "machine"), ("Versions", "versions")):
        texts = {json.dumps(getattr(run, found), sort_keys=True) for run in results}
        lines += [
            f"{title}: {', '.join(f'{k} {v}' for k, v in json.loads(text).items() if v)}." for text in sorted(texts)
        ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page(find_results([FOLDER / "heads"])), encoding="utf-8")
