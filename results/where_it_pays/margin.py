"""Score and share of masked samples against the margin, in cells of the map: ``margin.csv``, ``margin.svg``, README.md.

    python results/where_it_pays/margin.py --train    # makes the runs that margin.csv lacks, then writes all
    python results/where_it_pays/margin.py            # from what is committed

The runs are those of a cell's comparison (its data, head and epochs), at the learning rate that tuning chose for
softmax. With --train the features must be where the command finds them (AS_LIGHTNING_DATA).
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from pathlib import Path

import pandas as pd
from map import FOLDER, README, STYLE, Cell, cells, saved, table, written
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy import stats

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark
# for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
RUNS, FIGURE = FOLDER / "margin.csv", FOLDER / "margin.svg"
CELLS = (
    "clinc150_linear_clean",
    "clinc150_linear_tail50",
    "clinc150_linear_uniform40",
    "cifar10_linear_tail50",
)
DELTAS, SEEDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0), range(5)
SECTION = """## Score and masked samples against the margin

`delta` 1 is softmax. The learning rate is the one that tuning chose for softmax; it is not tuned for each margin. Means
over 5 seeds; the difference to softmax is paired by seed, with its 95% interval (Student's t, each margin alone).

![Difference to softmax and share of masked samples against delta](margin.svg)

"""
COLUMNS = ["cell", "lr", "delta", "seed", "score", "masked"]
OF_COMPARISON = re.compile(r"(name|methods|budgets|half_epochs|trials|seeds)=")


def train(cell: Cell, seed: int, delta: float) -> list[object]:
    """A run of AS-Softmax: its row."""
    from hydra import compose, initialize_config_dir

    from as_lightning.bench.packages import config_dir
    from as_lightning.bench.run import train as runs

    rate = cell.record.settings["softmax"]["lr"]
    given = [
        word for word in shlex.split(cell.record.commands[-1])[1:] if not OF_COMPARISON.match(word)
    ]
    own = ["method=as_softmax", f"method.delta={delta}", f"optimizer.lr={rate}", f"seed={seed}"]
    with (
        tempfile.TemporaryDirectory() as folder,
        initialize_config_dir(str(config_dir()), version_base="1.3"),
    ):
        quiet = ["logger=none", "trainer.enable_progress_bar=false", f"output_dir={folder}"]
        result = runs.train(compose("train", [*given, *own, *quiet]))
    last = result.masking[-1]
    score = round(100 * result.metrics[result.score], 4)
    return [
        cell.name,
        rate,
        delta,
        seed,
        score,
        round(100 * last["masked_samples"] / last["samples"], 3),
    ]


def make_runs() -> None:
    """Add the runs that the table lacks, one after the other."""
    from as_lightning.bench.run.runner import quiet_training

    rows = pd.read_csv(RUNS).to_numpy().tolist() if RUNS.exists() else []
    made = {(name, delta, seed) for name, _, delta, seed, *_ in rows}
    with quiet_training():
        for cell in (cell for cell in cells() if cell.name in CELLS):
            for seed in SEEDS:
                rows += [
                    train(cell, seed, delta)
                    for delta in DELTAS
                    if (cell.name, delta, seed) not in made
                ]
                pd.DataFrame(rows, columns=COLUMNS).to_csv(RUNS, index=False)


def means() -> pd.DataFrame:
    """Of each cell and margin the difference to softmax in points, half its interval, and the
    masked share.
    """
    runs = pd.read_csv(RUNS)
    softmax = runs[runs["delta"] == 1.0].set_index(["cell", "seed"])["score"]
    runs["difference"] = (
        runs["score"] - softmax.loc[[*zip(runs["cell"], runs["seed"], strict=True)]].to_numpy()
    )
    found = runs.groupby(["cell", "delta"]).agg(
        score=("score", "mean"),
        difference=("difference", "mean"),
        error=("difference", "sem"),
        masked=("masked", "mean"),
        seeds=("seed", "size"),
    )
    found["half"] = stats.t.isf(0.025, found["seeds"] - 1) * found["error"]
    return found.reset_index()


def names(found: pd.DataFrame) -> dict[str, str]:
    """The cells in words."""
    return {
        cell.name: f"{cell.group}, {cell.condition}"
        for cell in cells()
        if cell.name in set(found["cell"])
    }


def drawn(found: pd.DataFrame) -> str:
    """Two plots over the margin, a line for each cell."""
    with rc_context(STYLE | {"font.size": 8}):
        figure = Figure(figsize=(4.05, 5.2), layout="constrained")
        plots = figure.subplots(2, sharex=True)
        for (cell, name), color in zip(names(found).items(), PALETTE, strict=False):
            own, look = found[found["cell"] == cell], {"ms": 3, "lw": 1.2, "color": color}
            plots[0].errorbar(
                own["delta"],
                own["difference"],
                own["half"],
                fmt="o-",
                ms=3,
                lw=1.2,
                color=color,
                label=name,
            )
            plots[1].plot(own["delta"], own["masked"], "o-", **look)
        plots[0].set(ylabel="difference to softmax, points")
        plots[1].set(
            ylabel="masked samples, last epoch, %", xlabel="delta", xscale="log", ylim=(-3, 103)
        )
        plots[1].set_xticks(sorted(found["delta"].unique()))
        plots[1].xaxis.set_major_formatter("{x:g}")
        plots[1].xaxis.set_minor_formatter(NullFormatter())
        for axes in plots:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.3, color="#8a93a3")
        figure.legend(loc="outside lower center", ncols=1, frameon=False)
    return saved(figure, "margin")


def numbers(found: pd.DataFrame) -> str:
    """A row for each cell, a column for each margin."""
    deltas = sorted(found["delta"].unique())
    rows = []
    for cell, name in names(found).items():
        own = found[found["cell"] == cell].set_index("delta")
        shown = [
            f"{own.at[d, 'difference']:+.1f} ± {own.at[d, 'half']:.1f} ({own.at[d, 'masked']:.0f}%)"
            for d in deltas[:-1]
        ]
        rows.append([name, *shown, f"{own.at[1.0, 'score']:.1f} ({own.at[1.0, 'masked']:.0f}%)"])
    return table(
        ["difference to softmax (masked)", *(f"{delta:g}" for delta in deltas[:-1]), "1: score"],
        rows,
    )


def pages() -> dict[Path, str]:
    """What the committed runs make of the page and the figure."""
    found = means()
    return {
        README: written(README, "results/where_it_pays/margin.py", SECTION + numbers(found)),
        FIGURE: drawn(found),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["--train"]:
        make_runs()
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
