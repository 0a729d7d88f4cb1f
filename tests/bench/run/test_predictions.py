"""The predictions of a run: for each example what was said of it, the same example by
the same id.
"""

from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from harness.scripted_masking import quiet_trainer
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from as_lightning.bench.data.digits import Digits
from as_lightning.bench.run.predictions import (
    PREDICTIONS_FILE,
    PredictionRecorder,
    Predictions,
    example_ids,
)


class Echo(pl.LightningModule):
    """Its logits are its inputs."""

    def forward(self, inputs):
        return inputs

    def test_step(self, batch, batch_idx):
        self(batch[0])


def recorded(
    data: Any, target: Any = None, ids=None, ignore_index=-100, **loader
) -> Predictions | None:
    recorder = PredictionRecorder(ids, ignore_index)
    dataset = data if target is None else TensorDataset(data, target)
    quiet_trainer(callbacks=[recorder]).test(
        Echo(), DataLoader(dataset, batch_size=2, **loader), verbose=False
    )
    return recorder.predictions


def test_classes_of_each_example_are_kept_in_a_small_file_and_read_as_written(tmp_path):
    logits, target = torch.randn(5, 300), torch.arange(5)
    recorded(logits, target, example_ids(list("abcde"))).write(tmp_path)
    found, expected = (
        Predictions.read(tmp_path),
        (example_ids(list("abcde")), logits.argmax(-1), target),
    )
    assert [array.tolist() for array in found] == [array.tolist() for array in expected]
    assert recorded(logits, target, ignore_index=1).target.tolist() == [0, 2, 3, 4]
    assert Predictions.read(tmp_path / "elsewhere") is None


def test_several_labels_and_tokens_leave_the_counts_that_the_score_needs():
    target = torch.tensor([[1, 0, 1], [0, 0, 0]])
    found = recorded(torch.tensor([[1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]]), target)
    assert found.predicted.tolist() == [[1, 2, 2], [0, 0, 0]]
    classes, tokens = (
        torch.tensor([[0, 0, 0], [1, 1, 1]]),
        torch.tensor([[0, 1, -100], [1, -100, -100]]),
    )
    assert recorded(torch.eye(2)[classes], tokens).predicted.tolist() == [[1, 2, 2], [1, 1, 1]]
    assert recorded(torch.ones(2, 3), target, ignore_index=0).predicted.tolist() == [
        [2, 2, 2],
        [0, 0, 0],
    ]


def test_the_examples_that_two_runs_predict_differently_are_found():
    first = Predictions(np.arange(4), np.array([0, 1, 2, 3]), np.zeros(4))
    differing = first.differing(first._replace(predicted=np.array([0, 1, 0, 0])))
    assert differing.tolist() == [False, False, True, True]
    assert first.differing(first._replace(ids=np.arange(1, 5))) is None
    several = Predictions(np.arange(2), np.array([[1, 1, 2], [0, 0, 0]]), np.zeros(0))
    assert several.differing(
        several._replace(predicted=np.array([[1, 2, 2], [0, 0, 0]]))
    ).tolist() == [True, False]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(TensorDataset(torch.randn(4, 3), torch.zeros(4)))


def joined(batch):
    return [torch.cat(parts) for parts in zip(*batch, strict=True)]


ROWS = TensorDataset(torch.randn(40, 3), torch.zeros(40))


@pytest.mark.parametrize(
    ("data", "loader"),
    [
        (ROWS, {"shuffle": True}),
        (ROWS, {"sampler": SubsetRandomSampler(range(40))}),
        (TensorDataset(torch.randn(4), torch.zeros(4)), {}),  # a module without logits
        (Stream(), {}),
        (
            [(torch.randn(length, 3), torch.zeros(length)) for length in (2, 1, 3)],
            {"collate_fn": joined},
        ),
    ],
    ids=["shuffled", "sampled", "no logits", "a stream", "more rows than examples"],
)
def test_where_a_row_is_not_known_to_be_of_an_example_there_are_no_predictions(data, loader):
    assert recorded(data, **loader) is None


@pytest.mark.parametrize("content", ["nothing", "", "PK\x03\x04 cut off"])
def test_a_file_that_is_damaged_is_named(tmp_path, content):
    (tmp_path / PREDICTIONS_FILE).write_text(content)
    with pytest.raises(ValueError, match=r"predictions\.npz holds no predictions"):
        Predictions.read(tmp_path)


def test_an_example_has_the_same_id_in_every_split():
    labels = []
    for seed in (0, 1):
        data = Digits(split_seed=seed)
        data.setup()
        ids = example_ids(data.example_names("test")).tolist()
        labels.append(dict(zip(ids, data.splits["test"].targets.tolist(), strict=True)))
    shared = labels[0].keys() & labels[1].keys()
    assert 0 < len(shared) < len(labels[0]) == 360
    assert all(labels[0][number] == labels[1][number] for number in shared)
