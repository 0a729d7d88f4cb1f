"""GoEmotions: the real files, several labels a comment, and malformed lines."""

from __future__ import annotations

import csv
from functools import partial

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.published import GoEmotions, read_goemotions


class Few(GoEmotions):
    """The first 500 comments of each split."""

    def read_splits(self):
        return {split: rows[:500] for split, rows in super().read_splits().items()}


@pytest.fixture(scope="module")
def emotions(real_data) -> GoEmotions:
    data = partial(GoEmotions, **TEXT)(data_dir=real_data)
    data.prepare_data()
    return data


@pytest.fixture(scope="module")
def targets(emotions) -> dict[str, torch.Tensor]:
    """Of all comments; their texts need not be tokenised for that."""
    return emotions.encode_targets(emotions.read_splits())


def test_goemotions_has_its_published_sizes_and_labels(emotions, targets):
    assert {split: len(rows) for split, rows in targets.items()} == {
        "train": 43_410,
        "validation": 5_426,
        "test": 5_427,
    }
    assert (emotions.num_classes, emotions.class_names[0], emotions.class_names[-1]) == (28, "admiration", "neutral")


@pytest.mark.parametrize(("split", "part"), [("train", "train"), ("validation", "dev"), ("test", "test")])
def test_targets_are_ones_at_the_labels_of_the_file_alone(targets, real_data, split, part):
    with (real_data / f"goemotions_{part}.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    targets = targets[split]
    assert targets.shape == (len(rows), 28)
    assert targets.dtype == torch.int64
    expected = [(number, int(label)) for number, row in enumerate(rows) for label in row[1].split(",")]
    assert sorted(expected) == [tuple(place) for place in targets.nonzero().tolist()]
    assert set(targets.unique().tolist()) == {0, 1}


def test_a_batch_holds_the_targets_of_its_comments(real_data):
    data = Few(**(TEXT | {"batch_size": 128}), data_dir=real_data)
    data.setup()
    loader = data.val_dataloader()
    token_ids, targets = next(iter(loader))
    indices = next(iter(loader.batch_sampler))
    assert token_ids.size(0) == 128
    assert torch.equal(targets, data.splits["validation"].targets[indices])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tabs", r"expected 'text<TAB>label indices<TAB>id', got 'no tabs'"),
        ("text\t\tid", r"expected 'text<TAB>label indices<TAB>id'"),
        ("text\t1,x\tid", r"expected 'text<TAB>label indices<TAB>id'"),
        ("text\t1,\tid", r"expected 'text<TAB>label indices<TAB>id'"),
        ("text\t-1\tid", r"expected 'text<TAB>label indices<TAB>id'"),
        ("text\t1\tid\tmore", r"expected 'text<TAB>label indices<TAB>id'"),
        ("text\t1,28\tid", r"expected labels from 0 to 27, got 28"),
    ],
)
def test_a_malformed_line_is_refused_with_file_and_line(tmp_path, line, message):
    path = tmp_path / "set.tsv"
    path.write_text(f"fine\t0,27\ta\n{line}\n")
    with pytest.raises(ValueError, match=rf"set.tsv:2: {message}"):
        list(read_goemotions(path, 28))


def test_label_noise_is_refused_for_several_labels_a_comment():
    with pytest.raises(
        ValueError, match=r"label_noise=0.4 is for data of one class per sample, not for multilabel data"
    ):
        partial(GoEmotions, **TEXT)(label_noise=0.4)
