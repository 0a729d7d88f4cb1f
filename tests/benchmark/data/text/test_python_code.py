"""The embedded source code: its tokens, its blocks, and what they depend on."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from as_lightning.benchmark.data.text.standard_library import (
    END_OF_FILE,
    TOKEN,
    UNKNOWN,
    PythonCode,
    library_folder,
    token_blocks,
)

LENGTH = 32


def code_of(**arguments) -> PythonCode:
    """The code of one package of the standard library, 33 files on Python 3.11."""
    settings = {"root": library_folder() / "asyncio", "block_length": LENGTH, "batch_tokens": 4 * LENGTH}
    data = PythonCode(**(settings | {"max_tokens": None} | arguments))
    data.setup()
    return data


@pytest.fixture(scope="module")
def code() -> PythonCode:
    return code_of()


@given(source=st.text(max_size=60))
def test_tokens_are_all_of_a_source_but_white_space(source):
    tokens = TOKEN.findall(source)
    assert "".join(tokens) == "".join(source.split())


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("def f_1(x):\n    return x", ["def", "f_1", "(", "x", ")", ":", "return", "x"]),
        ("1_000.5e3 0xFF .5", ["1_000.5e3", "0xFF", ".", "5"]),
        ("'it'  # größer", ["'", "it", "'", "#", "größer"]),
    ],
)
def test_a_token_is_a_word_a_number_or_a_sign(source, tokens):
    assert TOKEN.findall(source) == tokens


@given(tokens=st.lists(st.integers(0, 9), max_size=40), length=st.integers(1, 9))
def test_each_target_is_the_token_after_its_input(tokens, length):
    inputs, targets = token_blocks(tokens, length)
    assert inputs.shape == targets.shape == (max(len(tokens) - 1, 0) // length, length)
    count = inputs.numel()
    assert inputs.flatten().tolist() == tokens[:count]
    assert targets.flatten().tolist() == tokens[1 : count + 1]


def test_the_classes_are_the_tokens_that_the_training_files_have_twice_by_their_counts(code):
    counts = Counter(
        token for file in code.split_files()["train"] for token in TOKEN.findall(file.read_text(errors="replace"))
    )
    names = code.class_names
    assert names[:2] == [UNKNOWN, END_OF_FILE]
    assert len(set(names)) == len(names)
    assert min(counts[name] for name in names[2:]) >= 2
    ranked = [counts[name] for name in names[2:]]
    assert ranked == sorted(ranked, reverse=True)
    assert sum(count >= 2 for count in counts.values()) == len(names) - 2


def test_the_tokens_of_a_split_are_those_of_its_files_one_after_another(code):
    file = code.split_files()["test"][0]
    tokens = [*TOKEN.findall(file.read_text()), END_OF_FILE]
    known = set(code.class_names)
    found = code.splits["test"].inputs.flatten()[: len(tokens)].tolist()
    assert [code.class_names[number] for number in found] == [token if token in known else UNKNOWN for token in tokens]


def test_no_file_is_in_two_splits_and_the_split_depends_on_its_own_seed_alone(code):
    files = code.split_files()
    everything = [file for of_split in files.values() for file in of_split]
    assert len(set(everything)) == len(everything)
    assert len(files["validation"]) == len(files["test"]) == round(0.05 * len(everything)) > 0
    torch.manual_seed(5)
    assert code_of(block_length=8).split_files() == files
    assert code_of(split_seed=1).split_files() != files


def test_a_folder_of_too_few_files_is_refused(tmp_path):
    (tmp_path / "one.py").touch()
    with pytest.raises(ValueError, match=r"expected at least 10 files that end in .py, found 1"):
        code_of(root=tmp_path)


def test_files_that_fill_no_block_of_a_split_are_refused(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.py").write_text("a = 1\n" * 7)
    with pytest.raises(ValueError, match=r"PythonCode: nothing is left for validation and test"):
        code_of(root=tmp_path)


def test_a_file_that_cannot_be_decoded_is_left_out(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.py").write_text("a = 1\n" * 20)
    clean = code_of(root=tmp_path).splits["train"].inputs
    (tmp_path / "bad.py").write_bytes(b"b = '\xff'\n" * 20)
    files = code_of(root=tmp_path)
    assert files.class_names == [UNKNOWN, END_OF_FILE, "1", "=", "a"]
    assert len(files.splits["train"].inputs) <= len(clean) + 1


def test_validation_and_test_take_batches_of_at_most_1024_tokens(code):
    data = code_of(batch_tokens=64 * LENGTH)
    training, *evaluations = (
        next(iter(loader))[0]
        for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader(), code.val_dataloader())
    )
    assert training.numel() == 64 * LENGTH
    assert [inputs.numel() for inputs in evaluations] == [1024, 1024, 4 * LENGTH]


def test_max_tokens_limits_the_splits_and_leaves_the_classes(code):
    data = code_of(max_tokens={"train": 10_000, "test": 1_000})
    assert data.class_names == code.class_names
    assert data.splits["train"].inputs.numel() == 9_999 // LENGTH * LENGTH
    assert torch.equal(data.splits["test"].inputs, code.splits["test"].inputs[: 999 // LENGTH])
    assert len(data.splits["validation"]) == len(code.splits["validation"])
