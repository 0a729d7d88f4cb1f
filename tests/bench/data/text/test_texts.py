"""Texts, published ones read from their real files: sizes, classes, tokens and batches."""

import csv
import json
import pickle
from itertools import islice

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.clinc150 import Clinc150
from as_lightning.bench.data.text.data_module import TextDataModule, fit_tokenizer
from as_lightning.bench.run.train import read_data


@pytest.fixture(scope="module")
def clinc(real_data) -> Clinc150:
    data = Clinc150("clinc150.json", data_dir=real_data, **(TEXT | {"max_length": 32}))
    data.prepare_data()
    data.setup("fit")
    return data


def test_a_clinc150_batch_decodes_to_its_sentences(clinc, real_data):
    parts = json.loads((real_data / "clinc150.json").read_text())
    rows = parts["test"] + parts["oos_test"]
    loader = clinc.test_dataloader()
    for indices, (token_ids, targets) in zip(
        islice(loader.batch_sampler, 100), loader, strict=False
    ):
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


def test_targets_of_goemotions_are_ones_at_the_labels_of_the_file_alone(composed, real_data):
    data = read_data(composed("experiment=goemotions", f"data_dir={real_data}"))
    assert len(data.class_names) == 28
    assert (data.class_names[0], data.class_names[-1]) == ("admiration", "neutral")
    for split, part in (("train", "train"), ("validation", "dev"), ("test", "test")):
        with (real_data / f"goemotions_{part}.tsv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        expected = torch.zeros(len(rows), 28, dtype=torch.int64)
        for number, row in enumerate(rows):
            expected[number, [int(label) for label in row[1].split(",")]] = 1
        assert torch.equal(data.splits[split].targets, expected)


class Small(TextDataModule):
    """A text data module of two training sentences and other given ones."""

    def read_splits(self):
        train = [Sentence("turn the light on", "on"), Sentence("turn the light off please", "off")]
        others = [Sentence(text, "on") for text in ("zzz", "\u200d", "[PAD]", "light [PAD] on")]
        return {"train": train, "validation": others, "test": others}


@pytest.mark.parametrize(("max_length", "lengths"), [(64, [4, 5]), (2, [2, 2])])
def test_the_tokenizer_sees_the_training_split_alone_and_no_text_is_padding(max_length, lengths):
    data = Small(**(TEXT | {"max_length": max_length}))
    data.setup()
    # As this, a trainer cannot be sent to a loader's process.
    data.trainer = (nothing for nothing in "")
    assert "z" not in data.tokenizer.get_vocab()
    unknown, nothing, *others = (data.splits["validation"][index][0].tolist() for index in range(4))
    # Unknown, and not the padding; the tokeniser leaves nothing of the second.
    assert {*unknown, *nothing} == {1}
    assert all(0 not in row for row in others)
    token_ids, _ = pickle.loads(pickle.dumps(data.collate))(
        [data.splits["train"][0], data.splits["train"][1]]
    )
    assert (token_ids != 0).sum(1).tolist() == lengths
    assert token_ids.shape == (2, lengths[1])


@pytest.mark.parametrize(
    ("name", "sizes", "classes", "largest"),
    [
        ("clinc150", [15_100, 3_100, 5_500], 151, 100),
        ("sst5", [8_544, 1_101, 2_210], 5, 2_322),
        ("banking77", [9_002, 1_001, 3_080], 77, 169),
        ("reuters8", [4_936, 549, 2_189], 8, 2_556),
        ("goemotions", [43_410, 5_426, 5_427], 28, 14_219),
    ],
)
def test_published_texts_have_their_sizes_and_classes_and_test_split(
    composed, real_data, name, sizes, classes, largest
):
    config = composed(f"experiment={name}", f"data_dir={real_data}", "data.vocab_size=500")
    data = read_data(config)
    assert [len(split) for split in data.splits.values()] == sizes
    assert data.num_classes == classes
    assert int(data.class_counts.max()) == pytest.approx(largest, abs=2)
    if not data.order_by_seed:
        return
    other = read_data(composed(f"experiment={name}", f"data_dir={real_data}", "data.split_seed=1"))
    assert other.texts["test"] == data.texts["test"]
    assert other.texts["validation"] != data.texts["validation"]
