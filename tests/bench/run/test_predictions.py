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
from as_lightning.bench.run.predictions import PREDICTIONS_FILE, PredictionRecorder, Predictions


class Echo(pl.LightningModule):
    """Its logits are its inputs."""

    def forward(self, inputs):
        return inputs

    def test_step(self, batch, batch_idx):
        self(batch[0])


def recorded(data: Any, target: Any = None, names=None, **loader) -> Any:
    recorder = PredictionRecorder(names, ["cat", "dog", 'a, "b"'])
    dataset = data if target is None else TensorDataset(data, target)
    batches = DataLoader(dataset, batch_size=2, **loader)
    quiet_trainer(callbacks=[recorder]).test(Echo(), batches, verbose=False)
    return recorder.predictions


def test_classes_are_written_by_their_names_and_read_as_written(tmp_path):
    names = ["one\nline", 'caf\u00e9, "quoted"', "carriage\rreturn", "", "NA"]
    logits, target = 2 * torch.eye(3)[[0, 1, 2, 0, 1]], torch.tensor([0, 1, 0, 0, 2])
    made = recorded(logits, target, names=names)
    made.write(tmp_path)
    found = Predictions.read(tmp_path)
    assert list(found.table) == ["example", "target", "predicted"]
    assert found.table["example"].tolist() == names
    assert found.ids.tolist() == made.ids.tolist() == names
    assert found.target.tolist() == ["cat", "dog", "cat", "cat", 'a, "b"']
    assert found.predicted.tolist() == ["cat", "dog", 'a, "b"', "cat", "dog"]
    assert found.scored("accuracy").score == 3 / 5
    assert found.scored("balanced_accuracy").score == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert found.rare_classes.startswith('Classes with one test example: a, "b", dog.')
    ignored = target.where(target != 1, -100)
    assert recorded(logits, ignored).target.tolist() == ["cat"] * 3 + ['a, "b"']
    assert Predictions.read(tmp_path / "elsewhere") is None


def test_several_labels_are_joined_and_counted(tmp_path):
    target = torch.tensor([[1, 0, 1], [0, 0, 0]])
    recorded(torch.tensor([[1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]]), target).write(tmp_path)
    found = Predictions.read(tmp_path)
    assert found.table["targets"].tolist() == ['cat|a, "b"', ""]
    assert found.predicted.tolist() == [[1, 2, 2], [0, 0, 0]]
    assert found.scored("f1_micro").score == 2 * 1 / 4


def test_words_have_a_row_each_and_are_counted_by_sentence(tmp_path):
    classes = torch.tensor([[0, 0, 0], [1, 1, 1]])
    tokens = torch.tensor([[0, 1, -100], [1, -100, -100]])
    recorded(2 * torch.eye(3)[classes], tokens, names=["Ann runs", "big tree"]).write(tmp_path)
    found = Predictions.read(tmp_path)
    assert found.table.to_numpy().tolist() == [
        ["0", "Ann", "cat", "cat"],
        ["0", "runs", "dog", "cat"],
        ["1", "big", "dog", "dog"],
    ]
    assert found.predicted.tolist() == [[1, 2, 2], [1, 1, 1]]


def test_two_runs_are_comparable_where_they_have_the_same_examples():
    first = Predictions(np.arange(4), np.array([0, 1, 2, 3]), np.zeros(4))
    assert first.comparable(first._replace(predicted=np.array([0, 1, 0, 0])))
    assert not first.comparable(first._replace(ids=np.arange(1, 5)))


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
        ([(torch.randn(n, 3), torch.zeros(n)) for n in (2, 1, 3)], {"collate_fn": joined}),
    ],
    ids=["shuffled", "sampled", "no logits", "a stream", "more rows than examples"],
)
def test_where_a_row_is_not_known_to_be_of_an_example_there_are_no_predictions(data, loader):
    assert recorded(data, **loader) is None


@pytest.mark.parametrize("content", ["nothing", "", "PK\x03\x04 cut off"])
def test_a_file_that_is_damaged_is_named(tmp_path, content):
    (tmp_path / PREDICTIONS_FILE).write_text(content)
    with pytest.raises(ValueError, match=r"predictions\.csv holds no predictions"):
        Predictions.read(tmp_path)


def test_an_example_has_the_same_name_in_every_split():
    labels = []
    for seed in (0, 1):
        data = Digits(split_seed=seed)
        data.setup()
        names = data.example_names("test")
        labels.append(dict(zip(names, data.splits["test"].targets.tolist(), strict=True)))
    shared = labels[0].keys() & labels[1].keys()
    assert 0 < len(shared) < len(labels[0]) == 360
    assert all(labels[0][name] == labels[1][name] for name in shared)
