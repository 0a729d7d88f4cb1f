"""Train the heads of the map on files of features: each method tuned alike, draws by the run's
seed.

    python results/where_it_pays/heads.py FEATURES RUNS CELL ...    # makes what RUNS lacks
    python results/where_it_pays/heads.py --keep RUNS               # writes cells/ and controls/ from it

``FEATURES`` is a folder with what features.py writes (``clinc150.npz``, ...). A cell is
DATA_HEAD_CONDITION, of which ``RUNS`` gets a JSON of trials and runs and an ``.npz`` of test
predictions.

All methods have the same number of trials of learning rate, weight decay and their own setting. The
first ones are the same Sobol' points for all, the others are steps from the best so far. A trial is
one seed; the best three get two seeds more. Validation chooses, by the score of the cell, also
between a method's own trials and those of softmax where a setting makes the method softmax. Other
seeds give the final runs. A seed decides the weights, the order of the data and which labels are
wrong, which classes are rare and which examples are drawn. Each run ends with its last epoch.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from scipy.stats import qmc
from torch import Tensor, nn

from as_lightning.bench.data.conditions import Conditions
from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.functional import (
    adjust_logits,
    as_cross_entropy,
    class_counts_of,
    encouraging_loss,
    fit_tau,
    generalised_cross_entropy_loss,
    logit_adjusted_loss,
)
from as_lightning.functional.variants.class_weighted import class_weights
from as_lightning.report.record import ComparisonRecord, Trial
from as_lightning.statistics.verdicts import Design

TUNING, FINAL = (1000, 1001, 1002), tuple(range(8))
CONTROL_TUNING, CONTROL_FINAL = (2000, 2001, 2002), tuple(range(100, 112))
FIRST, LOCAL, STEP, BEST = 8, 5, 0.15, 3
RATES, DECAYS = (1e-3, 0.2), (1e-3, 3.0)
EPOCHS, LEAST_STEPS, LONGER, HIDDEN = 10, 250, 3, 512
BATCHES = {4000: 128, 6000: 256, sys.maxsize: 512}  # of fewer examples than so many
SPLITS = ("validation", "test")
ADJUSTED = "_adjusted"  # after training: of a split's name
AFTER = {"adjusted_after": "softmax", "as_softmax_adjusted_after": "as_softmax"}


@dataclass(frozen=True)
class Method:
    """A loss, its setting with the range that is tried, and the value at which it is softmax."""

    loss: Callable[..., Tensor]
    setting: str = ""
    low: float = 0.0
    high: float = 1.0
    neutral: float | None = None
    counts: bool = False  # whether the loss gets the class frequencies


def class_weighted_loss(
    logits: Tensor, target: Tensor, class_counts: Tensor, power: float
) -> Tensor:
    """Cross-entropy with weights from the class frequencies."""
    weight = class_weights(class_counts, power=power)
    return F.cross_entropy(logits, target, weight=weight.to(logits.dtype))


METHODS = {
    "softmax": Method(F.cross_entropy),
    "as_softmax": Method(as_cross_entropy, "delta", 0.05, 1.0, 1.0),
    "logit_adjusted": Method(logit_adjusted_loss, "tau", 0.25, 2.0, 0.0, True),
    "class_weighted": Method(class_weighted_loss, "power", 0.25, 1.25, 0.0, True),
    "class_weighted_0.5": Method(partial(class_weighted_loss, power=0.5), counts=True),
    "class_weighted_1.0": Method(partial(class_weighted_loss, power=1.0), counts=True),
    "generalised_cross_entropy": Method(generalised_cross_entropy_loss, "q", 0.1, 0.9, 0.0),
    "encouraging": Method(encouraging_loss, "log_end", 0.1, 0.95),
}
COMMON = ["softmax", "as_softmax", "generalised_cross_entropy", "encouraging"]
TAIL = [*COMMON, "logit_adjusted", "class_weighted"]
NATURAL = [*TAIL, "class_weighted_0.5", "class_weighted_1.0"]
CONDITIONS: dict[str, dict[str, Any]] = {
    "clean": {},
    "natural": {},
    "tail": {"imbalance": float},
    "uniform": {"label_noise": lambda text: int(text) / 100},
    "pairs": {"label_noise": lambda text: int(text) / 100},
    "shots": {"shots": int},
}
SCORES = {"natural": ["balanced_accuracy", "accuracy", "f1_macro"], "tail": ["balanced_accuracy"]}


def thirds_by_count(counts: Tensor) -> dict[str, list[int]]:
    """Return the classes in thirds by ``counts``: ``many``, ``medium`` (not of two), ``few``."""
    order = counts.argsort(descending=True, stable=True).tolist()
    first, second = round(len(order) / 3), round(2 * len(order) / 3)
    thirds = {"many": order[:first], "medium": order[first:second], "few": order[second:]}
    return {name: sorted(classes) for name, classes in thirds.items() if classes}


@dataclass
class Cell:
    """A data set, a head and a condition, with the features in memory."""

    name: str
    features: Path
    memory: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        """The data set, the head, the condition and what else the name says."""
        return self.name.split("_")

    @cached_property
    def kind(self) -> tuple[str, str]:
        """The kind of the condition and its number."""
        kind, number = re.fullmatch(r"([a-z]+)(\d*)", self.parts[2]).groups()  # type: ignore[union-attr]
        return kind, number

    @property
    def is_control(self) -> bool:
        """Whether it is trained longer, with seeds of its own."""
        return "longer" in self.parts

    @property
    def scores(self) -> list[str]:
        """What its methods are tuned and judged by, each for itself."""
        return SCORES.get(self.kind[0], ["accuracy"])

    @property
    def methods(self) -> list[str]:
        """The methods that are compared, softmax first."""
        return {"tail": TAIL, "natural": NATURAL}.get(self.kind[0], COMMON)

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """The features and classes of each split."""
        with np.load(self.features / f"{self.parts[0]}.npz", allow_pickle=False) as file:
            names, _ = np.unique(file["train_labels"], return_inverse=True)
            places = {name: place for place, name in enumerate(names.tolist())}
            arrays = {}
            for split in ("train", "validation", "test"):
                inputs = torch.from_numpy(file[f"{split}_inputs"].astype(np.float32))
                targets = [places[name] for name in file[f"{split}_labels"].tolist()]
                arrays[f"{split}_inputs"] = inputs
                arrays[f"{split}_targets"] = torch.tensor(targets)
            self.classes = len(names)
            return arrays

    def training_data(self, seed: int) -> tuple[Tensor, Tensor]:
        """The training features and classes of a seed under the condition."""
        kind, number = self.kind
        values = {name: read(number) for name, read in CONDITIONS[kind].items()}
        conditions = Conditions(
            label_noise=values.get("label_noise", 0.0),
            label_noise_kind="pairs" if kind == "pairs" else "uniform",
            shots=values.get("shots"),
            imbalance=values.get("imbalance"),
        )
        torch.manual_seed(seed)
        inputs, targets = self.arrays["train_inputs"], self.arrays["train_targets"]
        counts = class_counts_of(targets, num_classes=self.classes)
        rows = conditions.drawn(targets, counts, [str(i) for i in range(self.classes)])
        inputs, targets = inputs[rows], targets[rows]
        return inputs, conditions.noisy(targets, self.classes)

    def train(self, method: str, settings: dict[str, float], seed: int, final: bool = False) -> Run:
        """A run: its metrics, those of a final one on both splits, on a tail also of its adjusted
        logits, and its test predictions.
        """
        inputs, targets = self.training_data(seed)
        counts = class_counts_of(targets, num_classes=self.classes)
        kind = METHODS[method]
        values = {name: value for name, value in settings.items() if name == kind.setting}
        if kind.counts:
            values["class_counts"] = counts  # type: ignore[assignment]
        loss_of = partial(kind.loss, **values)
        batch = next(size for rows, size in BATCHES.items() if len(inputs) < rows)
        steps_of_epoch = math.ceil(len(inputs) / batch)
        epochs = max(EPOCHS, math.ceil(LEAST_STEPS / steps_of_epoch))
        epochs *= LONGER if self.is_control else 1
        torch.manual_seed(seed)
        widths = [inputs.shape[1], *([HIDDEN] if self.parts[1] == "hidden" else []), self.classes]
        layers = [layer for sizes in pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())]
        head = nn.Sequential(*layers[:-1])
        rate, decay = settings["lr"], settings["weight_decay"]
        optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=decay, fused=True)
        step, steps = 0, epochs * steps_of_epoch
        for _ in range(epochs):
            for rows in torch.randperm(len(inputs)).split(batch):
                optimizer.param_groups[0]["lr"] = (
                    rate * 0.5 * (1 + math.cos(math.pi * step / steps))
                )
                optimizer.zero_grad()
                loss_of(head(inputs[rows]), targets[rows]).backward()
                optimizer.step()
                step += 1
        run = Run({"steps": steps, "epochs": epochs}, {})
        with torch.no_grad():
            logits = {split: head(self.arrays[f"{split}_inputs"]) for split in SPLITS[: 1 + final]}
        self.score(run, logits, counts)
        if final and self.kind[0] in ("tail", "natural"):
            tau = fit_tau(logits["validation"], self.arrays["validation_targets"], counts)
            run.metrics["tau"] = tau
            adjusted = {split: adjust_logits(own, counts, tau) for split, own in logits.items()}
            self.score(run, adjusted, counts, ADJUSTED)
        return run

    def score(self, run: Run, logits: dict[str, Tensor], counts: Tensor, name: str = "") -> None:
        """Add the metrics of a run's logits."""
        for split, values in logits.items():
            predicted = values.argmax(-1)
            target = self.arrays[f"{split}_targets"]
            cells = torch.bincount(target * self.classes + predicted, minlength=self.classes**2)
            table = cells.reshape(self.classes, self.classes).double()
            right, true, said = table.diag(), table.sum(1), table.sum(0)
            recalls, f1 = right / true, 2 * right / (true + said)  # NaN where a class never occurs
            own = f"{split}{name}"
            run.metrics[f"{own}/accuracy"] = float(right.sum() / true.sum())
            run.metrics[f"{own}/balanced_accuracy"] = float(recalls.nanmean())
            run.metrics[f"{own}/f1_macro"] = float(f1.nanmean())
            if split == "test":
                run.predicted[name] = predicted.numpy().astype(np.uint8)
                for third, classes in thirds_by_count(counts).items():
                    share = right[classes].sum() / true[classes].sum()
                    run.metrics[f"{own}/accuracy_{third}"] = float(share)

    def validation(self, method: str, settings: dict[str, float], seed: int) -> dict[str, float]:
        """The metrics of a trial, made once."""
        key = json.dumps([method, settings, seed])
        if key not in self.memory:
            self.memory[key] = self.train(method, settings, seed).metrics
        return self.memory[key]

    def tuned(self, method: str, score: str) -> list[dict[str, Any]]:
        """The trials of a method with their scores by seed, the best last."""
        seeds = CONTROL_TUNING if self.is_control else TUNING
        points = list(qmc.Sobol(3, rng=0).random(FIRST))
        steps = np.random.default_rng(0).normal(0, STEP, (LOCAL, 3))
        trials: list[dict[str, Any]] = []

        def mean(trial: dict[str, Any]) -> float:
            return float(np.mean(trial["by_seed"]))

        def attempt(point: np.ndarray) -> None:
            settings = settings_of(method, point)
            found = self.validation(method, settings, seeds[0])[f"validation/{score}"]
            trials.append({"settings": settings, "point": point.tolist(), "by_seed": [found]})

        for point in points:
            attempt(point)
        for change in steps:
            attempt(np.clip(np.array(max(trials, key=mean)["point"]) + change, 0, 1))
        trials.sort(key=mean)
        for trial in trials[-BEST:]:
            for seed in seeds[1:]:
                found = self.validation(method, trial["settings"], seed)[f"validation/{score}"]
                trial["by_seed"].append(found)
        return [*trials[:-BEST], *sorted(trials[-BEST:], key=mean)]


@dataclass
class Run:
    """What a run measured."""

    metrics: dict[str, float]
    predicted: dict[str, np.ndarray]


def settings_of(method: str, point: np.ndarray) -> dict[str, float]:
    """The settings of a point of the unit cube."""

    def logarithmic(place: float, low: float, high: float) -> float:
        return float(f"{low * (high / low) ** place:.4g}")

    kind = METHODS[method]
    settings = {
        "lr": logarithmic(point[0], *RATES),
        "weight_decay": logarithmic(point[1], *DECAYS),
    }
    if kind.setting:
        settings[kind.setting] = float(f"{kind.low + (kind.high - kind.low) * point[2]:.4g}")
    return settings


def make(cell: Cell, folder: Path, methods: list[str]) -> None:
    """Make what the folder lacks of a cell; the trials of several scores are made once."""
    for score in cell.scores:
        name = cell.name if len(cell.scores) == 1 else f"{cell.name}_{score.replace('_', '-')}"
        path, start = folder / f"{name}.json", time.process_time()
        if path.exists():
            continue
        tuning = {method: cell.tuned(method, score) for method in methods}
        chosen = {method: trials[-1] for method, trials in tuning.items()}
        same_as = [
            method
            for method in methods
            if METHODS[method].neutral is not None
            and np.mean(chosen["softmax"]["by_seed"]) >= np.mean(chosen[method]["by_seed"])
        ]
        runs, predicted = [], {}
        for method in methods:
            if method in same_as:
                continue
            for seed in CONTROL_FINAL if cell.is_control else FINAL:
                run = cell.train(method, chosen[method]["settings"], seed, final=True)
                runs.append({"method": method, "seed": seed, "metrics": run.metrics})
                for adjusted, values in run.predicted.items():
                    predicted[f"{method}{adjusted}/{seed}"] = values
        content: dict[str, Any] = {
            "cell": name,
            "score": score,
            "tuning": tuning,
            "same_as": same_as,
            "runs": runs,
        }
        content["seconds"] = time.process_time() - start
        target = cell.arrays["test_targets"].numpy().astype(np.uint8)
        predicted["target"] = target
        np.savez_compressed(folder / f"{name}.npz", **predicted)  # type: ignore[arg-type]
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")
        print(name, f"{content['seconds']:.0f} s", flush=True)


def record_of(content: dict[str, Any], predicted: Mapping[str, np.ndarray]) -> ComparisonRecord:
    """The comparison of what `make` wrote; on a tail also softmax and AS-Softmax, adjusted after
    training.
    """
    tuning = {
        method: [
            Trial(trial["settings"], float(np.mean(trial["by_seed"])), by_seed=trial["by_seed"])
            for trial in trials
        ]
        for method, trials in content["tuning"].items()
    }
    has_tail = re.search("_(tail|natural)", content["cell"])
    adjusted = [name for name, method in AFTER.items() if has_tail and method in tuning]
    candidates = [*tuning, *adjusted]
    same_as = dict.fromkeys(content["same_as"], "softmax")
    if "as_softmax" in same_as and adjusted:
        same_as["as_softmax_adjusted_after"] = "adjusted_after"
    seeds = tuple(sorted({run["seed"] for run in content["runs"]}))
    design = Design(looks=(len(seeds),), seeds=seeds, candidates=tuple(candidates))
    record = ComparisonRecord(
        content["cell"], content["score"], "softmax", candidates, design, trials=FIRST + LOCAL
    )
    record.splits, record.tuning, record.same_as = "official", tuning, same_as
    record.settings = {method: trials[-1].settings for method, trials in tuning.items()}
    record.settings |= {name: record.settings[AFTER[name]] for name in adjusted}
    record.settings |= dict.fromkeys(same_as, record.settings["softmax"])
    predictions = {}
    for candidate in candidates:
        own = same_as.get(candidate, candidate)
        method = AFTER.get(own, own)
        suffix = ADJUSTED if own in AFTER else ""
        for run in content["runs"]:
            if run["method"] != method:
                continue
            metrics = {
                name.removeprefix(f"test{suffix}/"): value
                for name, value in run["metrics"].items()
                if name.startswith(f"test{suffix}/")
            }
            settings = dict(record.settings[method])
            if suffix:
                settings["tau"] = run["metrics"]["tau"]
            result = Result(
                content["cell"],
                candidate,
                content["score"],
                run["seed"],
                metrics,
                math.nan,
                phase="final",
                epochs=run["metrics"]["epochs"],
                optimizer_steps=int(run["metrics"]["steps"]),
                settings=settings,
                session="",
                versions={},
                machine={},
            )
            record.add(result, candidate, metrics[content["score"]])
            guesses = predicted[f"{method}{suffix}/{run['seed']}"]
            examples = {"target": predicted["target"], "predicted": guesses}
            table = pd.DataFrame(examples, dtype=str).rename_axis("example").reset_index()
            predictions[candidate, run["seed"]] = Predictions.of(table.astype(str))
    record.compare_predictions(predictions)
    record.examples = []
    return record


def keep(runs: Path) -> None:
    """Write the records of all finished cells."""
    for path in sorted(runs.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        kept = "controls" if "_longer" in path.stem else "cells"
        folder = Path(__file__).resolve().parent / kept / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        with np.load(path.with_suffix(".npz")) as file:
            predicted = dict(file)
            record_of(content, predicted).write(folder)
            if "_natural" not in path.stem:
                continue
            others = {
                score: record_of(content | {"score": score}, predicted).spreads
                for score in SCORES["natural"]
            }
            text = json.dumps(others) + "\n"
            (folder / "other_scores.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Make what is asked for, or keep it."""
    torch.set_num_threads(1)
    features, runs, *names = sys.argv[1:]
    if features == "--keep":
        keep(Path(runs))
        return
    Path(runs).mkdir(parents=True, exist_ok=True)
    for name in names:
        cell_name, _, only = name.partition(":")
        cell = Cell(cell_name, Path(features))
        make(cell, Path(runs), only.split(",") if only else cell.methods)


if __name__ == "__main__":
    main()
