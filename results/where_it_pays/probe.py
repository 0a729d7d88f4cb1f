"""The probe that this map began with, by a protocol under which its intervals come out:
``probe.csv``, README.md.

    python results/where_it_pays/probe.py clinc150_minilm.npz    # makes the runs that probe.csv lacks, then writes
    python results/where_it_pays/probe.py                        # from what is committed

The features are those that features.py writes. A setting and a rate are chosen by the mean accuracy
of two seeds on the test split, and eight other seeds are judged on it, each method alone, by
Student's t.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from map import FOLDER, README, table, written
from scipy import stats
from torch import Tensor, nn

from as_lightning import class_weights
from as_lightning.functional import (
    as_cross_entropy,
    generalised_cross_entropy_loss,
    logit_adjusted_loss,
)

RUNS, COLUMNS = FOLDER / "probe.csv", ["cell", "seed", "method", "setting", "rate", "test"]
TUNING, JUDGED, BATCH, EPOCHS, DECAY = range(2), range(2, 10), 512, 9, 0.01
COARSE, FINER = (1e-3, 1e-2), (1e-3, 2e-3, 5e-3, 1e-2, 2e-2)
# of each condition and head the setting of the data and the hidden units
CELLS: dict[str, tuple[dict[str, Any], int]] = {
    "tail 50:1, linear head": ({"imbalance": 50}, 0),
    "tail 50:1, one hidden layer": ({"imbalance": 50}, 512),
    "30% wrong, linear head": ({"label_noise": 0.3}, 0),
    "50% wrong, linear head": ({"label_noise": 0.5}, 0),
    "30% wrong, one hidden layer": ({"label_noise": 0.3}, 512),
}
# what the probe says: the difference to softmax in points, and half its interval
PROBE = {
    ("tail 50:1, linear head", "as_softmax"): (1.1, 0.4),
    ("tail 50:1, linear head", "label_smoothing"): (0.8, 0.3),
    ("tail 50:1, linear head", "class_weighted"): (4.4, 0.3),
    ("tail 50:1, linear head", "logit_adjusted"): (6.8, 0.3),
    ("tail 50:1, one hidden layer", "as_softmax"): (0.1, 0.2),
    ("tail 50:1, one hidden layer", "label_smoothing"): (0.2, 0.4),
    ("tail 50:1, one hidden layer", "class_weighted"): (2.1, 0.6),
    ("tail 50:1, one hidden layer", "logit_adjusted"): (4.0, 0.6),
    ("30% wrong, linear head", "as_softmax"): (0.5, 0.1),
    ("30% wrong, linear head", "label_smoothing"): (0.0, 0.1),
    ("50% wrong, linear head", "as_softmax"): (0.8, 0.2),
    ("50% wrong, linear head", "label_smoothing"): (0.0, 0.1),
    ("50% wrong, linear head", "generalised_cross_entropy"): (2.3, 0.3),
    ("30% wrong, one hidden layer", "as_softmax"): (0.0, 0.1),
}


def class_weighted_loss(
    logits: Tensor, target: Tensor, *, class_counts: Tensor, power: float
) -> Tensor:
    return F.cross_entropy(logits, target, weight=class_weights(class_counts, power=power))


SETTINGS: dict[str, tuple[Callable[..., Tensor], str, tuple[float, ...]]] = {
    "softmax": (F.cross_entropy, "label_smoothing", (0.0,)),
    "as_softmax": (as_cross_entropy, "delta", (0.03, 0.1, 0.3, 0.9)),
    "label_smoothing": (F.cross_entropy, "label_smoothing", (0.1,)),
    "class_weighted": (class_weighted_loss, "power", (1.0,)),
    "logit_adjusted": (logit_adjusted_loss, "tau", (1.0,)),
    "generalised_cross_entropy": (generalised_cross_entropy_loss, "q", (0.5, 0.7)),
}


def train(
    path: str, cell: str, seed: int, arms: list[tuple[str, float, float]]
) -> list[list[object]]:
    """Runs of one seed, all from the same weights and in the same order of the same data: their
    rows.
    """
    from feature_file import Features

    settings, hidden = CELLS[cell]
    torch.manual_seed(seed)
    data = Features(Path(path).resolve(), draw_seed=seed, **settings)
    data.setup()
    inputs, target = (
        torch.as_tensor(values)
        for values in (data.splits["train"].inputs, data.splits["train"].targets)
    )
    widths, rows = [inputs.shape[1], *([hidden] if hidden else []), data.num_classes], []
    for method, setting, rate in arms:
        torch.manual_seed(seed)
        layers = [layer for sizes in pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())]
        head = nn.Sequential(*layers[:-1])
        optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=DECAY)
        loss_of, name, _ = SETTINGS[method]
        counts = (
            {"class_counts": data.class_counts}
            if method in ("class_weighted", "logit_adjusted")
            else {}
        )
        loss_of = partial(loss_of, **{name: setting}, **counts)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(inputs)).split(BATCH):
                optimizer.zero_grad()
                loss_of(head(inputs[batch]), target[batch]).backward()
                optimizer.step()
        right = head(data.splits["test"].inputs).argmax(-1) == data.splits["test"].targets
        rows.append(
            [cell, seed, method, setting, rate, round(100 * float(right.float().mean()), 4)]
        )
    return rows


def chosen(
    runs: pd.DataFrame, cell: str, method: str, rates: tuple[float, ...]
) -> tuple[str, float, float]:
    """The setting and the rate with the best mean over the tuning seeds."""
    own = runs[(runs["cell"] == cell) & (runs["method"] == method) & runs["rate"].isin(rates)]
    means = own[own["seed"].isin(TUNING)].groupby(["setting", "rate"])["test"].mean()
    setting, rate = means.idxmax()
    return method, float(setting), float(rate)


def make_runs(path: str) -> None:
    """Add the runs that the table lacks: each setting for tuning, those chosen for the
    judgement.
    """
    rows = pd.read_csv(RUNS).to_numpy().tolist() if RUNS.exists() else []
    for cell, (_, hidden) in CELLS.items():
        grids = (COARSE,) if hidden else (COARSE, FINER)
        methods = ["softmax", *(method for of, method in PROBE if of == cell)]
        for seed in (*TUNING, *JUDGED):
            if seed in TUNING:
                arms = [(m, s, rate) for m in methods for s in SETTINGS[m][2] for rate in grids[-1]]
            else:
                runs = pd.DataFrame(rows, columns=COLUMNS)
                arms = [
                    *dict.fromkeys(
                        chosen(runs, cell, method, rates) for rates in grids for method in methods
                    )
                ]
            made = {tuple(row[2:5]) for row in rows if row[:2] == [cell, seed]}
            rows += train(path, cell, seed, [arm for arm in arms if arm not in made])
            pd.DataFrame(rows, columns=COLUMNS).to_csv(RUNS, index=False)


def compared(
    runs: pd.DataFrame, cell: str, method: str, rates: tuple[float, ...]
) -> tuple[str, float, float]:
    """What was chosen of these rates, the difference to softmax over the judged seeds, and half its
    interval.
    """
    scores = (
        runs[runs["cell"] == cell]
        .set_index(["method", "setting", "rate", "seed"])["test"]
        .sort_index()
    )
    own, softmax = (chosen(runs, cell, name, rates) for name in (method, "softmax"))
    differences = scores.loc[own].loc[[*JUDGED]] - scores.loc[softmax].loc[[*JUDGED]]
    half = stats.t.isf(0.025, len(JUDGED) - 1) * differences.sem()
    return f"{own[1]:g}; {own[2]:g}, softmax {softmax[2]:g}", float(differences.mean()), float(half)


def by_rate(runs: pd.DataFrame, delta: float) -> str:
    """AS-Softmax against softmax at the smallest and at the largest rate, over the tuning seeds."""
    means = (
        runs[runs["seed"].isin(TUNING)]
        .groupby(["cell", "method", "setting", "rate"])["test"]
        .mean()
    )
    said = []
    for cell in (cell for cell, (_, hidden) in CELLS.items() if not hidden):
        ends = (
            means[cell, "as_softmax", delta, rate] - means[cell, "softmax", 0.0, rate]
            for rate in FINER[::4]
        )
        said.append(
            " and ".join(f"{difference:+.1f}" for difference in ends)
            + f" points ({cell.split(',')[0]})"
        )
    return f"At the rates {FINER[0]:g} and {FINER[-1]:g} `delta={delta:g}` is {', '.join(said)} off softmax at the same."


def pages() -> dict[Path, str]:
    """What the committed runs make of the page."""
    runs, rows, gaps, smaller = pd.read_csv(RUNS), [], [], Counter[str]()
    for (cell, method), (probe, half_of_probe) in PROBE.items():
        row = [cell, method, f"{probe:+.1f} ± {half_of_probe:.1f}"]
        for rates in (COARSE,) if CELLS[cell][1] else (COARSE, FINER):
            arm, difference, half = compared(runs, cell, method, rates)
            row += [f"{difference:+.1f} ± {half:.1f}", arm]
            if rates is COARSE:
                gaps.append(abs(difference - probe) - half - half_of_probe)
                smaller[method] += difference < probe
        rows.append([*row, "–", "–"][:7])
    grids = [word for rates in (COARSE, FINER) for word in (f"{len(rates)} rates", "setting; rate")]
    text = f"With {len(COARSE)} rates {sum(gap <= 0 for gap in gaps)} of the {len(gaps)} intervals overlap the probe's, "
    text += f"{sum(-0.05 < gap <= 0 for gap in gaps)} of them by less than 0.05 points; AS-Softmax's differences are "
    text += f"smaller than the probe's in {smaller['as_softmax']} of {sum(m == 'as_softmax' for _, m in PROBE)}. "
    text = textwrap.fill(
        text + by_rate(runs, 0.03), 120, break_on_hyphens=False, break_long_words=False
    )
    shown = table(["condition", "method", "the probe", *grids], rows) + "\n\n" + text
    return {README: written(README, "results/where_it_pays/probe.py", shown)}


if __name__ == "__main__":
    for given in sys.argv[1:]:
        make_runs(given)
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
