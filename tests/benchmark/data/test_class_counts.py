"""How many training targets each class has, for every kind of targets, and that a loss is given them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness.variant_methods import random_logits

from as_lightning.benchmark.data.base import BenchmarkDataModule, LabelledDataset, Task
from as_lightning.benchmark.run.train import made_module, read_data
from as_lightning.functional import logit_adjusted_loss

TARGETS: dict[Task, Any] = {
    "multiclass": torch.tensor([2, 0, 2, 2]),
    "token": [torch.tensor([-100, 2, 0]), torch.tensor([2, -100]), torch.tensor([2])],
    "next_token": torch.tensor([[2, 0], [2, 2]]),
    "multilabel": torch.tensor([[1, 0, 1], [0, 0, 1], [0, 0, 1]]),
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("first", [None, 2])
def test_the_counts_are_those_of_the_targets_that_training_sees(kind: Task, first: int | None) -> None:
    class InMemory(BenchmarkDataModule):
        task = kind
        input_spec = property(lambda self: {})

        def load_splits(self) -> dict[str, LabelledDataset]:
            self.class_names = ["a", "b", "c"]
            targets = TARGETS[kind]
            return {split: LabelledDataset(range(len(targets)), targets) for split in ("train", "validation", "test")}

    data = InMemory(batch_size=2, first=first)
    data.setup()
    expected = {"multiclass": [1, 0, 1], "token": [1, 0, 2], "next_token": [1, 0, 3], "multilabel": [1, 0, 2]}
    assert data.class_counts.tolist() == ([1, 0, 3] if first is None else expected[kind])


def test_the_app_gives_a_loss_the_counts_of_its_data(composed: Any) -> None:
    config = composed("experiment=digits", "method=logit_adjusted", "method.tau=2.0", "data.first=300")
    data = read_data(config)
    logits, target = random_logits(8, 10), torch.arange(8)
    expected = logit_adjusted_loss(logits, target, class_counts=data.class_counts, tau=2.0)
    assert torch.equal(made_module(config, data).criterion(logits, target), expected)
