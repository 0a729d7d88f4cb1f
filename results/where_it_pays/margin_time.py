"""Accuracy and training time by margin, of AS-Softmax and AS-Speed: ``margin_time.csv``, a table of
README.md.

    python results/where_it_pays/margin_time.py FEATURES    # makes the runs that margin_time.csv lacks, then writes
    python results/where_it_pays/margin_time.py             # from what is committed

A head of one hidden layer on features (a folder of files by features.py). The learning rate is the
one of three at which softmax has the best validation accuracy. Within a seed the arms follow each
other in an order that is drawn, so that whatever slows the machine slows all arms alike. The time
is that of the process (CPU seconds of one thread) from the first to the last batch of training.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from map import FOLDER, README, table, written
from scipy import stats
from torch import Tensor

RUNS = FOLDER / "margin_time.csv"
DATA = {"fsdd": ("spoken digits", 64, 8), "banking77": ("Banking77", 256, 6)}  # name, batch, epochs
RATES, HIDDEN, TUNING, SEEDS = (1e-3, 3e-3, 1e-2), 512, 1000, range(3)
DELTAS = (0.02, 0.1, 0.4, 0.7)
ARMS = [("softmax", 1.0), *(("as_softmax", delta) for delta in (*DELTAS, 1.0))]
ARMS += [("as_speed", delta) for delta in DELTAS]
COLUMNS = ["data", "method", "delta", "lr", "seed", "score", "masked", "cpu_seconds", "steps"]


def arrays_of(path: Path) -> dict[str, Tensor]:
    """The features and classes of the splits."""
    with np.load(path, allow_pickle=False) as file:
        names = {name: place for place, name in enumerate(np.unique(file["train_labels"]).tolist())}
        arrays = {}
        for split in ("train", "validation", "test"):
            arrays[split] = torch.from_numpy(file[f"{split}_inputs"].astype(np.float32))
            targets = [names[name] for name in file[f"{split}_labels"].tolist()]
            arrays[f"{split}_targets"] = torch.tensor(targets)
    return arrays


def train(
    arrays: dict[str, Tensor], data: str, arm: tuple[str, float], lr: float, seed: int
) -> Any:
    """A run: validation and test accuracy, masked share of the last epoch in percent, CPU seconds
    and optimizer steps.
    """
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, TensorDataset

    from as_lightning import AdaptiveGradientAccumulation, ASSoftmaxMixin, MaskingMonitor

    (method, delta), (_, batch, epochs) = arm, DATA[data]

    class Plain(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            classes = int(arrays["train_targets"].max()) + 1
            first = torch.nn.Linear(arrays["train"].shape[1], HIDDEN)
            self.head = torch.nn.Sequential(
                first, torch.nn.ReLU(), torch.nn.Linear(HIDDEN, classes)
            )

        def forward(self, inputs: Tensor) -> Tensor:
            return self.head(inputs)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return F.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=lr, fused=True)
            steps = int(self.trainer.estimated_stepping_batches)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    class Masked(ASSoftmaxMixin, Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.as_softmax_loss(self(batch[0]), batch[1])

    class Clock(pl.Callback):
        seconds = 0.0

        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            self.seconds = -time.process_time()

        def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            self.seconds += time.process_time()

    pl.seed_everything(seed, verbose=False)
    module = Plain() if method == "softmax" else Masked(delta=delta)
    clock = Clock()
    callbacks: list[pl.Callback] = [clock]
    callbacks += [] if method == "softmax" else [MaskingMonitor()]
    callbacks += [AdaptiveGradientAccumulation(max_steps=4)] if method == "as_speed" else []
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    examples = TensorDataset(arrays["train"], arrays["train_targets"])
    trainer.fit(module, DataLoader(examples, batch_size=batch, shuffle=True))
    masked = float(trainer.callback_metrics.get("masking/sample_ratio_epoch", 0.0))
    with torch.no_grad():
        scores = [
            float((module(arrays[split]).argmax(-1) == arrays[f"{split}_targets"]).float().mean())
            for split in ("validation", "test")
        ]
    return *scores, 100 * masked, clock.seconds, trainer.global_step


def make_runs(features: Path) -> None:
    """Add the runs that the table lacks."""
    rows = pd.read_csv(RUNS).to_numpy().tolist() if RUNS.exists() else []
    made = {(row[0], row[1], row[2], row[4]) for row in rows}
    for data in DATA:
        if all((data, *arm, seed) in made for arm in ARMS for seed in SEEDS):
            continue
        arrays = arrays_of(features / f"{data}.npz")
        train(arrays, data, ARMS[0], RATES[0], TUNING)  # the first run is slower than the others
        tried = {lr: train(arrays, data, ARMS[0], lr, TUNING)[0] for lr in RATES}
        rate = max(tried, key=lambda lr: tried[lr])
        for seed in SEEDS:
            order = np.random.default_rng(seed).permutation(len(ARMS))
            if (data, *ARMS[0], seed) in made:
                continue
            for arm in (ARMS[place] for place in order):
                _, score, masked, seconds, steps = train(arrays, data, arm, rate, seed)
                numbers = [round(100 * score, 4), round(masked, 3), round(seconds, 3), steps]
                rows.append([data, *arm, rate, seed, *numbers])
            pd.DataFrame(rows, columns=COLUMNS).to_csv(RUNS, index=False)


def interval(values: pd.Series) -> tuple[float, float]:
    """The mean and half its 95% interval, by Student's t."""
    return float(values.mean()), float(stats.t.isf(0.025, len(values) - 1) * values.sem())


def shown(runs: pd.DataFrame, data: str, method: str, delta: float) -> str:
    """The difference to softmax in points, and the time relative to it."""
    own = runs[(runs["data"] == data) & (runs["method"] == method) & (runs["delta"] == delta)]
    base = runs[(runs["data"] == data) & (runs["method"] == "softmax")]
    own, base = own.set_index("seed"), base.set_index("seed")
    difference, half = interval(own["score"] - base["score"])
    log_ratio, log_half = interval(np.log(own["cpu_seconds"] / base["cpu_seconds"]))
    low, high = np.exp(log_ratio - log_half), np.exp(log_ratio + log_half)
    score = f"{difference:+.2f} ± {half:.2f}"
    return f"{score}; {np.exp(log_ratio):.2f} [{low:.2f}, {high:.2f}]; {own['masked'].mean():.0f}%"


def best_margins() -> str:
    """The margin of the best mean score on each data set, with its difference to softmax."""
    runs = pd.read_csv(RUNS)
    means = runs.groupby(["data", "method", "delta"])["score"].mean()
    said = []
    for data, (name, *_) in DATA.items():
        own = means[data, "as_softmax"]
        gain = own.max() - means[data, "softmax", 1.0]
        said.append(f"{name}: best at {own.idxmax():g} ({gain:+.2f})")
    return "; ".join(said)


def pages() -> dict[Path, str]:
    """What the committed runs make of the page."""
    runs = pd.read_csv(RUNS)
    arms = [("as_softmax", "AS-Softmax"), ("as_speed", "AS-Speed")]
    head = ["`delta`", *(f"{DATA[data][0]}, {name}" for data in DATA for _, name in arms)]
    rows = []
    for delta in (*DELTAS, 1.0):
        cells = [
            "–" if (method, delta) not in ARMS else shown(runs, data, method, delta)
            for data in DATA
            for method, _ in arms
        ]
        rows.append([f"{delta:g}", *cells])
    base = runs[runs["method"] == "softmax"].groupby("data")[["score", "cpu_seconds"]].mean()
    said = "; ".join(
        f"{DATA[data][0]} {base.at[data, 'score']:.1f}% in {base.at[data, 'cpu_seconds']:.1f} s"
        for data in DATA
    )
    text = table(head, rows) + f"\n\n`F.cross_entropy`, beside which these stand: {said}."
    steps = runs.groupby(["data", "method", "delta"])["steps"].mean()
    shares = [
        steps[data, "as_speed", delta] / steps[data, "softmax", 1.0]
        for data in DATA
        for delta in DELTAS
    ]
    text += f" AS-Speed takes {min(shares):.2f} to {max(shares):.2f} of its optimizer steps."
    return {README: written(README, "results/where_it_pays/margin_time.py", text)}


if __name__ == "__main__":
    if sys.argv[1:]:
        make_runs(Path(sys.argv[1]))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
