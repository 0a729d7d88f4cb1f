"""CLINC150's real file, and malformed ones."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.published import Clinc150, read_clinc_json
from as_lightning.benchmark.data.text.tokenized import fit_tokenizer


@pytest.fixture(scope="module")
def clinc(real_data) -> Clinc150:
    data = partial(Clinc150, **TEXT)(data_dir=real_data, vocab_size=4000, max_length=32)
    data.prepare_data()
    data.setup("fit")
    return data


def test_clinc150_has_its_published_sizes_and_classes(clinc):
    assert {name: len(split) for name, split in clinc.splits.items()} == {
        "train": 15_100,
        "validation": 3_100,
        "test": 5_500,
    }
    assert clinc.num_classes == 151
    assert "oos" in clinc.class_names


def test_a_clinc150_batch_decodes_to_its_sentences(clinc, real_data):
    parts = read_clinc_json(real_data / "clinc150.json")
    rows = parts["test"] + parts["oos_test"]
    loader = clinc.test_dataloader()
    for indices, (token_ids, targets) in zip(islice(loader.batch_sampler, 100), loader, strict=False):
        assert token_ids.dtype == targets.dtype == torch.int64
        for index, tokens, target in zip(indices, token_ids.tolist(), targets, strict=True):
            assert clinc.class_names[target] == rows[index].label
            decoded = clinc.tokenizer.decode([token for token in tokens if token])
            assert decoded.replace(" ", "") == rows[index].text.lower().replace(" ", "")


def test_without_length_buckets_the_batches_keep_the_order_of_the_file(clinc, monkeypatch):
    monkeypatch.setattr(clinc, "length_buckets", False)
    loaded = torch.cat([targets for _, targets in clinc.test_dataloader()])
    assert torch.equal(loaded, clinc.splits["test"].targets)


def padding_share(loader) -> float:
    padding = tokens = 0
    for token_ids, _ in loader:
        padding += int((token_ids == 0).sum())
        tokens += token_ids.numel()
    return padding / tokens


@pytest.mark.parametrize("split", ["train", "test"])
def test_length_buckets_leave_less_padding_in_the_batches(clinc, monkeypatch, split):
    loader = clinc.train_dataloader if split == "train" else clinc.test_dataloader
    assert padding_share(loader()) < 0.05
    monkeypatch.setattr(clinc, "length_buckets", False)
    assert padding_share(loader()) > 0.4


def test_fitting_the_tokenizer_twice_gives_the_same_tokens(clinc, real_data):
    parts = read_clinc_json(real_data / "clinc150.json")
    texts = [row.text for row in parts["train"] + parts["oos_train"]]
    assert fit_tokenizer(texts, 4000).get_vocab() == clinc.tokenizer.get_vocab()


NAMES = ("train", "val", "test", "oos_train", "oos_val", "oos_test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected JSON, got .*line 1"),
        ("[]", "expected a JSON object with the lists .*missing train"),
        (json.dumps({name: [] for name in NAMES if name != "oos_val"}), "missing oos_val"),
        (
            json.dumps({name: [["a", "b"], ["no label"]] if name == "val" else [] for name in NAMES}),
            r'val\[1\]: expected \[text, label\], got \["no label"\]',
        ),
        (
            json.dumps({name: [["a", 3]] if name == "test" else [] for name in NAMES}),
            r'test\[0\]: expected \[text, label\], got \["a", 3\]',
        ),
    ],
)
def test_a_malformed_clinc150_file_is_refused_with_file_and_place(tmp_path, content, message):
    path = tmp_path / "clinc150.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"clinc150.json: .*{message}"):
        read_clinc_json(path)


def test_a_damaged_clinc150_is_found_by_its_checksum(tmp_path, real_data):
    (tmp_path / "clinc150.json").write_bytes((real_data / "clinc150.json").read_bytes()[:-1])
    with pytest.raises(ValueError, match="wrong checksum"):
        partial(Clinc150, **TEXT)(data_dir=tmp_path).prepare_data()
