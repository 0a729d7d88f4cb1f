"""Text data: CLINC150's real file, and malformed ones."""

from __future__ import annotations

import csv
import json
from itertools import islice

import pytest
import torch

from as_lightning.benchmark.data.text.clinc150 import Clinc150, read_clinc_json
from as_lightning.benchmark.data.text.data_module import TextDataModule
from as_lightning.benchmark.data.text.labelled_text import Sentence
from as_lightning.benchmark.data.text.sst5 import SST5, read_fasttext
from as_lightning.benchmark.data.text.stratified_split import split_sentences
from as_lightning.benchmark.data.text.table import read_table
from as_lightning.benchmark.data.text.text_file import TextFile
from as_lightning.benchmark.data.text.tokenizer import fit_tokenizer


class Small(TextDataModule):
    """A text data module of given sentences."""

    def __init__(self, splits: dict[str, list[Sentence]], **arguments) -> None:
        super().__init__(**arguments)
        self.given = splits

    def read_splits(self):
        return self.given


SPLITS = {
    "train": [Sentence("turn the light on", "on"), Sentence("turn the light off please", "off")],
    "validation": [Sentence("light on", "on")],
    "test": [Sentence("off", "off")],
}


@pytest.fixture(scope="module")
def clinc(real_data) -> Clinc150:
    data = Clinc150(data_dir=real_data, vocab_size=4000, max_length=32)
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


def test_without_length_buckets_the_batches_keep_the_order_of_the_file(real_data):
    data = Clinc150(data_dir=real_data, length_buckets=False)
    data.setup()
    loaded = torch.cat([targets for _, targets in data.test_dataloader()])
    assert torch.equal(loaded, data.splits["test"].targets)


def test_the_tokenizer_sees_the_training_split_alone():
    data = Small({**SPLITS, "validation": [Sentence("zzz", "on")]})
    data.setup()
    assert "z" not in data.tokenizer.get_vocab()
    assert data.splits["validation"][0][0].unique().tolist() == [1]  # unknown, and not the padding


def test_fitting_the_tokenizer_twice_gives_the_same_tokens(clinc, real_data):
    parts = read_clinc_json(real_data / "clinc150.json")
    texts = [row.text for row in parts["train"] + parts["oos_train"]]
    assert fit_tokenizer(texts, 4000).get_vocab() == clinc.tokenizer.get_vocab()


def test_batches_are_padded_with_zero_to_their_longest_sentence():
    data = Small(SPLITS)
    data.setup()
    token_ids, _ = data.collate([data.splits["train"][0], data.splits["train"][1]])
    lengths = (token_ids != 0).sum(1)
    assert token_ids.shape == (2, lengths.max())
    assert lengths[0] < lengths[1]


def test_long_sentences_are_cut_at_max_length():
    data = Small(SPLITS, max_length=2)
    data.setup()
    assert max(len(ids) for ids in data.splits["train"].inputs) == 2


def test_a_class_that_the_training_split_lacks_is_refused_by_name():
    with pytest.raises(ValueError, match="the test split has classes that the train split lacks: dim"):
        Small({**SPLITS, "test": [Sentence("dim it", "dim")]}).setup()


@pytest.mark.parametrize(("arguments", "name"), [({"vocab_size": 2}, "vocab_size"), ({"max_length": 0}, "max_length")])
def test_bad_arguments_are_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        Small(SPLITS, **arguments)


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
        Clinc150(data_dir=tmp_path).prepare_data()


def test_sst5_has_its_published_sizes_and_classes(real_data):
    data = SST5(data_dir=real_data)
    data.prepare_data()
    data.setup()
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [8_544, 1_101, 2_210]
    assert data.class_names == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("line", ["no tab", "label\ttext", "__label__1\t ", ""])
def test_a_malformed_fasttext_line_is_refused_with_file_and_line(tmp_path, line):
    path = tmp_path / "set.txt"
    path.write_text(f"__label__1\tfine\n{line}\n__label__1\tfine\n")
    with pytest.raises(ValueError, match=r"set.txt:2: expected '__label__NAME<TAB>text', got"):
        list(read_fasttext(path))


ROWS = [("plain words", "a"), ('with, comma and "quotes"', "b"), ("with\ta tab", "a"), ("two\nlines", "b")]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_gives_its_rows_back_in_every_format(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        if ending == "jsonl":
            file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
        else:
            writer = csv.writer(file, delimiter="," if ending == "csv" else "\t")
            writer.writerows([("text", "label"), *ROWS])
    assert list(read_table(path, "text", "label")) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("set.csv", "text,label\na,b\n,b\n", r"set.csv:3: expected a text and a label, got '' and 'b'"),
        ("set.csv", "text,label\na\n", r"set.csv:2: expected a text and a label, got 'a' and None"),
        ("set.csv", "text,label\na,b,c\n", r"set.csv:2: more fields than the 2 columns"),
        ("set.csv", 'text,label\n"a,b\n', r"set.csv:2: unexpected end of data"),
        ("set.tsv", "sentence\tlabel\na\tb\n", r"set.tsv:2: no column 'text', there are 'sentence', 'label'"),
        ("set.jsonl", '{"text": "a", "label": 1}\n{"text"\n', r"set.jsonl:2: expected a JSON object, got .*"),
        ("set.jsonl", '["a", 1]\n', r"set.jsonl:1: expected a JSON object, got"),
        ("set.csv", "text,label\n", r"set.csv: expected rows of texts and labels, got none"),
        ("set.txt", "", r"set.txt: expected a file that ends in .csv, .tsv or .jsonl"),
    ],
)
def test_a_malformed_table_is_refused_with_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        list(read_table(tmp_path / name, "text", "label"))


def test_a_text_file_alone_is_split_the_same_whatever_the_runs_seed(tmp_path):
    with (tmp_path / "set.csv").open("w") as file:
        file.write("text,label\n" + "".join(f"text {index},{'ab'[index % 2]}\n" for index in range(100)))
    targets = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        data = TextFile("set.csv", data_dir=tmp_path)
        data.setup()
        assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [80, 10, 10]
        targets.append([ids.tolist() for ids in data.splits["test"].inputs])
    assert targets[0] == targets[1]


def test_text_files_of_their_own_are_the_splits(tmp_path):
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{name},a\n")
    data = TextFile("train.csv", tmp_path / "validation.csv", "test.csv", data_dir=tmp_path)
    assert {split: rows[0].text for split, rows in data.read_splits().items()} == {
        "train": "train",
        "validation": "validation",
        "test": "test",
    }


def test_one_of_the_other_text_files_alone_is_refused():
    with pytest.raises(ValueError, match="give validation_path and test_path, or neither"):
        TextFile("train.csv", validation_path="validation.csv")


def test_a_class_too_small_to_split_is_refused_by_name():
    sentences = [Sentence("x", "large")] * 20 + [Sentence("y", "small")] * 9
    with pytest.raises(ValueError, match="class 'small' has 9 sentences: at least 10 are needed"):
        split_sentences(sentences, 0)


def test_a_label_that_the_training_file_lacks_is_named_by_file_and_line(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + "some words,a\nother words,b\n" * 3)
    (tmp_path / "test.csv").write_text("text,label\nsome words,a\nodd words,c\n")
    data = TextFile("train.csv", "train.csv", "test.csv", data_dir=tmp_path)
    with pytest.raises(ValueError, match=r"test.csv:3: the training split has no 'c', it has a, b"):
        data.setup()
