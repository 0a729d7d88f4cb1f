"""The predictions of a run: for each example what was said of it, the same example by the same id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.run.predictions import PREDICTIONS_FILE, PredictionRecorder, Predictions, example_ids


class Echo(pl.LightningModule):
    """Its logits are its inputs."""

    def forward(self, inputs):
        return inputs

    def test_step(self, batch, batch_idx):
        self(batch[0])


def recorded(data: Any, target: torch.Tensor | None = None, ids=None, **loader) -> Predictions | None:
    recorder = PredictionRecorder(ids)
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[recorder]
    )
    dataset = data if target is None else TensorDataset(data, target)
    trainer.test(Echo(), DataLoader(dataset, batch_size=2, **loader), verbose=False)
    return recorder.predictions


def test_classes_of_each_example_are_kept_in_a_small_file_and_read_as_written(tmp_path: Path):
    logits, target = torch.randn(5, 300), torch.arange(5)
    found = recorded(logits, target, example_ids(list("abcde")))
    assert found is not None
    found.write(tmp_path)
    again = Predictions.read(tmp_path)
    assert again is not None
    for array, expected in zip(again, (example_ids(list("abcde")), logits.argmax(-1), target), strict=True):
        np.testing.assert_array_equal(array, expected)
    assert Predictions.read(tmp_path / "elsewhere") is None


def test_several_labels_and_tokens_leave_the_counts_that_the_score_needs() -> None:
    target = torch.tensor([[1, 0, 1], [0, 0, 0]])
    found = recorded(torch.tensor([[1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]]), target)
    assert found is not None
    assert found.predicted.tolist() == [[1, 2, 2], [0, 0, 0]]
    tokens = torch.tensor([[0, 1, -100], [1, -100, -100]])
    found = recorded(torch.eye(2)[torch.tensor([[0, 0, 0], [1, 1, 1]])], tokens)
    assert found is not None
    assert found.predicted.tolist() == [[1, 2, 2], [1, 1, 1]]


def test_the_examples_that_two_runs_predict_differently_are_found() -> None:
    first = Predictions(np.arange(4), np.array([0, 1, 2, 3]), np.zeros(4))
    differing = first.differing(first._replace(predicted=np.array([0, 1, 0, 0])))
    assert differing is not None
    assert differing.tolist() == [False, False, True, True]
    assert first.differing(first._replace(ids=np.arange(1, 5))) is None
    several = Predictions(np.arange(2), np.array([[1, 1, 2], [0, 0, 0]]), np.zeros(0))
    differing = several.differing(several._replace(predicted=np.array([[1, 2, 2], [0, 0, 0]])))
    assert differing is not None
    assert differing.tolist() == [True, False]


def test_a_loader_that_shuffles_or_a_module_without_logits_leaves_no_predictions() -> None:
    assert recorded(torch.randn(4, 3), torch.zeros(4), shuffle=True) is None
    assert recorded(torch.randn(4, 3)[:, 0], torch.zeros(4)) is None
    assert recorded(torch.randn(40, 3), torch.zeros(40), sampler=SubsetRandomSampler(range(40))) is None


class Stream(IterableDataset):
    def __iter__(self):
        return iter(TensorDataset(torch.randn(4, 3), torch.zeros(4)))


def test_a_stream_or_a_batch_of_more_rows_than_examples_leaves_no_predictions() -> None:
    assert recorded(Stream()) is None
    texts = [(torch.randn(length, 3), torch.zeros(length)) for length in (2, 1, 3)]
    assert recorded(texts, collate_fn=lambda batch: [torch.cat(parts) for parts in zip(*batch, strict=True)]) is None


@pytest.mark.parametrize("content", [b"nothing", b"", b"PK\x03\x04 cut off"])
def test_a_file_that_is_damaged_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PREDICTIONS_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=r"predictions\.npz holds no predictions"):
        Predictions.read(tmp_path)


def test_an_example_has_the_same_id_in_every_split() -> None:
    label = []
    for seed in (0, 1):
        data = Digits(split_seed=seed)
        data.setup()
        ids = example_ids(data.example_names("test")).tolist()
        label.append(dict(zip(ids, data.splits["test"].targets.tolist(), strict=True)))
    shared = label[0].keys() & label[1].keys()
    assert len(label[0]) == 360
    assert 0 < len(shared) < 360
    assert all(label[0][number] == label[1][number] for number in shared)
