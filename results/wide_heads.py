"""Time, peak memory and score with very many classes: dense and fused heads side by side, as a
table.

    python results/wide_heads.py

Reads the runs of ``results/python_code/heads`` and writes ``results/python_code/README.md``.
"""

import math
from pathlib import Path

import pandas as pd
from scipy import stats
from written import written

FOLDER = Path(__file__).resolve().parent / "python_code"
DENSE = "dense head, softmax"
HEAD = "| tokens per batch | method | seeds | minutes | / dense | peak memory, MB | / dense | accuracy, % | "
MORE = "difference, points [95% CI] | perplexity | masked in the last epoch, % |"


def numbers(run: pd.Series) -> dict[str, object]:
    """What the table needs of a run; AS-Softmax does not maximise the likelihood, so it has no
    perplexity.

    The peak of memory is that of its training steps in bytes, which version 0.3 has measured.
    """
    margin, masked = run["setting.delta"], float("nan")
    if isinstance(run["masking"], str):
        counts = run["masking"].split()[-1].split("/")  # of the last epoch
        masked = 100 * int(counts[0]) / int(counts[1])
    head = "dense" if run["candidate"] == "softmax" else "fused"
    method = f"{head} head, {run['candidate'].removeprefix('fused_')}"
    if pd.notna(margin):
        method += f" (delta={margin})"
    return {
        "tokens": int(run["setting.batch_tokens"]),
        "seed": run["seed"],
        "perplexity": float("nan") if pd.notna(margin) else math.exp(run["loss"]),
        "minutes": run["train_seconds"] / 60,
        "memory": run["peak_memory"] / 1e6,
        "score": 100 * run["score"],
        "method": method,
        "masked": masked,
    }


def page(folder: Path) -> str:
    """The page, with the table of these runs: each method beside the dense head, paired by batch
    and seed.
    """
    table = pd.read_csv(folder / "runs.csv")
    runs = pd.DataFrame([numbers(run) for _, run in table.iterrows()])
    runs = runs.merge(runs[runs["method"] == DENSE], on=["tokens", "seed"], suffixes=("", "_dense"))
    table = f"{HEAD}{MORE}\n|{' --- |' * 11}\n"
    for (tokens, method), of in runs.groupby(["tokens", "method"]):
        difference, mean = of["score"] - of["score_dense"], of.mean(numeric_only=True)
        half = stats.t.ppf(0.975, len(of) - 1) * difference.std() / len(of) ** 0.5
        paired = "–" if method == DENSE else f"{difference.mean():+.2f} ± {half:.2f}"
        table += f"| {tokens:,} | {method} | {len(of)} | {mean['minutes']:.1f} | "
        table += f"{(of['minutes'] / of['minutes_dense']).median():.2f} | {mean['memory']:.0f} | "
        table += f"{mean['memory'] / mean['memory_dense']:.2f} | {mean['score']:.2f} ± {of['score'].std():.2f} | "
        table += f"{paired} | {mean['perplexity']:.1f} | {mean['masked']:.0f} |\n".replace(
            "nan", "–"
        )
    return written(FOLDER / "README.md", "results/wide_heads.py", table.rstrip("\n"))


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page(FOLDER / "heads"), encoding="utf-8")
