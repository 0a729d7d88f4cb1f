"""Texts, published ones read from their real files: sizes, classes, tokens and batches."""

from __future__ import annotations

import csv
import json
from itertools import islice

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.data_module import Sentence, TextDataModule, fit_tokenizer
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


@pytest.mark.parametrize("words", [False, True])
def test_the_most_frequent_characters_are_kept_where_there_are_more_than_tokens(words):
    texts = ["abc abd abe abf", "aé  xyz"]
    kept = fit_tokenizer([text.split() for text in texts] if words else texts, 6).get_vocab()
    assert kept == {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3, "c": 4, "e": 5}  # é too


def test_a_split_seed_of_data_with_an_official_split_is_refused(real_data):
    with pytest.raises(ValueError, match=r"SST5 has an official test split: leave data.split_seed out"):
        SST5(data_dir=real_data, split_seed=3, **TEXT).setup()


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


class Small(TextDataModule):
    """A text data module of given sentences."""

    def __init__(self, splits: dict[str, list[Sentence]], **arguments) -> None:
        super().__init__(**(TEXT | arguments))
        self.given = splits

    def read_splits(self):
        return self.given


SPLITS = {
    "train": [Sentence("turn the light on", "on"), Sentence("turn the light off please", "off")],
    "validation": [Sentence("light on", "on")],
    "test": [Sentence("off", "off")],
}


def test_the_tokenizer_sees_the_training_split_alone():
    data = Small({**SPLITS, "validation": [Sentence("zzz", "on")]})
    data.setup()
    assert "z" not in data.tokenizer.get_vocab()
    assert data.splits["validation"][0][0].unique().tolist() == [1]  # unknown, and not the padding


def test_a_text_that_reads_like_a_special_token_is_text():
    data = Small({**SPLITS, "test": [Sentence("[PAD]", "on"), Sentence("light [PAD] on", "on")]})
    data.setup()
    assert all(0 not in data.splits["test"][index][0].tolist() for index in range(2))


@pytest.mark.parametrize(("max_length", "lengths"), [(64, [4, 5]), (2, [2, 2])])
def test_batches_are_padded_with_zero_to_their_longest_sentence_of_max_length_at_most(max_length, lengths):
    data = Small(SPLITS, max_length=max_length)
    data.setup()
    token_ids, _ = data.collate([data.splits["train"][0], data.splits["train"][1]])
    assert (token_ids != 0).sum(1).tolist() == lengths
    assert token_ids.shape == (2, lengths[1])
