"""Published texts, read from their real files: sizes, classes, tokens and batches."""

from __future__ import annotations

import csv
import json
from itertools import islice

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.data_module import fit_tokenizer
from as_lightning.benchmark.data.text.published import SST5, Clinc150, GoEmotions


@pytest.fixture(scope="module")
def clinc(real_data) -> Clinc150:
    data = Clinc150(data_dir=real_data, **(TEXT | {"max_length": 32}))
    data.prepare_data()
    data.setup("fit")
    return data


def test_clinc150_has_its_published_sizes_and_classes(clinc):
    assert [len(clinc.splits[split]) for split in ("train", "validation", "test")] == [15_100, 3_100, 5_500]
    assert clinc.num_classes == 151
    assert "oos" in clinc.class_names


def test_a_clinc150_batch_decodes_to_its_sentences(clinc, real_data):
    parts = json.loads((real_data / "clinc150.json").read_text())
    rows = parts["test"] + parts["oos_test"]
    loader = clinc.test_dataloader()
    for indices, (token_ids, targets) in zip(islice(loader.batch_sampler, 100), loader, strict=False):
        assert token_ids.dtype == targets.dtype == torch.int64
        for index, tokens, target in zip(indices, token_ids.tolist(), targets, strict=True):
            text, label = rows[index]
            assert clinc.class_names[target] == label
            decoded = clinc.tokenizer.decode([token for token in tokens if token])
            assert decoded.replace(" ", "") == text.lower().replace(" ", "")


def test_without_length_buckets_the_batches_keep_the_order_of_the_file(clinc, monkeypatch):
    monkeypatch.setattr(clinc, "length_buckets", False)
    loaded = torch.cat([targets for _, targets in clinc.test_dataloader()])
    assert torch.equal(loaded, clinc.splits["test"].targets)


def test_fitting_the_tokenizer_twice_gives_the_same_tokens(clinc):
    texts = [row.text for row in clinc.read_splits()["train"]]
    assert fit_tokenizer(texts, 4000).get_vocab() == clinc.tokenizer.get_vocab()


def test_sst5_has_its_published_sizes_and_classes(real_data):
    data = SST5(data_dir=real_data, **TEXT)
    data.setup()
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [8_544, 1_101, 2_210]
    assert data.class_names == ["1", "2", "3", "4", "5"]


@pytest.fixture(scope="module")
def emotions(real_data) -> GoEmotions:
    return GoEmotions(data_dir=real_data, **TEXT)


@pytest.fixture(scope="module")
def targets(emotions) -> dict[str, torch.Tensor]:
    """Of all comments; their texts need not be tokenised for that."""
    return emotions.encode_targets(emotions.read_splits())


def test_goemotions_has_its_published_sizes_and_labels(emotions, targets):
    assert [len(targets[split]) for split in ("train", "validation", "test")] == [43_410, 5_426, 5_427]
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
