"""What tells objects apart, by which finished runs are read or made anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.benchmark.run.fingerprint import Fingerprint

FACTOR = 1.0


def scaled(value: float) -> float:
    return FACTOR * value


class Holds:
    def __init__(self, held: Any) -> None:
        self.held = held

    def loss(self, value: float) -> float:
        return scaled(value) * self.held


def enclosing(held: Any) -> Callable[[], Any]:
    return lambda: held


def layer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU())


def hooked(seed: int) -> nn.Module:
    made = layer(seed)
    made.handle = made.register_forward_hook(print)
    return nn.utils.parametrizations.weight_norm(made[0]) and made


def late(value: float) -> torch.Tensor:
    found = torch.zeros(5000)
    found[2500] = value
    return found


PAIRS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "a tuple": (Holds, (0.9, 0.99), (0.9, 0.9)),
    "a dict": (Holds, {"decay": 0.0}, {"decay": 1.0}),
    "a set": (Holds, {"a", "b"}, {"a", "c"}),
    "a number of a long tensor": (lambda value: Holds(late(value)), 0.0, 1.0),
    "an array": (lambda value: np.full(3, value), 0.0, 1.0),
    "weights": (layer, 0, 1),
    "weights of a module with hooks, whose numbers are the process's": (hooked, 0, 1),
    "a function": (Holds, torch.relu, torch.sin),
    "a bound method": (lambda value: Holds(value).loss, 1.0, 2.0),
    "what a function encloses": (enclosing, 1, 2),
    "an argument of a partial": (lambda value: partial(scaled, value), 1.0, 2.0),
    "a generator": (lambda seed: torch.Generator().manual_seed(seed), 0, 1),
    "a random state": (random.Random, 0, 1),
    "a data set": (lambda value: DataLoader(TensorDataset(late(value))), 0.0, 1.0),
    "what a library encloses": (lambda decay: [EMAWeightAveraging(decay=decay)], 0.9, 0.99),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_what_differs_has_another_fingerprint_and_what_is_the_same_has_the_same(kind: str) -> None:
    make, one, other = PAIRS[kind]
    first, again, second = (Fingerprint(make(value), "x") for value in (one, one, other))
    assert first.unread == []
    assert first.digest == again.digest != second.digest
    assert first.differing(second)


def test_a_constant_of_the_file_counts_where_a_function_that_is_called_takes_it(monkeypatch) -> None:
    before = Fingerprint(Holds(1.0), "x")
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert Fingerprint(Holds(1.0), "x").digest != before.digest


def test_a_file_that_is_named_counts_by_its_time_and_size(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a")
    before = Fingerprint({"path": str(tmp_path / "rows.csv")}, "x").digest
    (tmp_path / "rows.csv").write_text("ab")
    assert Fingerprint({"path": str(tmp_path / "rows.csv")}, "x").digest != before


def test_what_cannot_be_read_is_named_and_is_like_nothing() -> None:
    held = Holds(number for number in range(3))
    first, again = Fingerprint(held, "x"), Fingerprint(held, "x")
    assert first.unread == ["x.state.held"]
    assert first.digest != again.digest
