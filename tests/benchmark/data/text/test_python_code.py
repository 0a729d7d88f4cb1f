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


def test_the_classes_are_the_tokens_that_the_training_files_have_twice_and_the_splits_are_their_files(code):
    files = {
        split: [[*TOKEN.findall(file.read_text(errors="replace")), END_OF_FILE] for file in of_split]
        for split, of_split in code.split_files().items()
    }
    counts = Counter(token for file in files["train"] for token in file[:-1])
    names = code.class_names
    ranked = sorted((-count, token) for token, count in counts.items() if count >= 2)
    assert names == [UNKNOWN, END_OF_FILE, *(token for _, token in ranked)]
    for split, of_split in files.items():
        tokens = [token if token in set(names) else UNKNOWN for file in of_split for token in file]
        found = [names[number] for number in code.splits[split].inputs.flatten().tolist()]
        assert found == tokens[: len(found)]
        assert len(tokens) - LENGTH <= len(found) < len(tokens)


def test_no_file_is_in_two_splits_and_the_split_depends_on_its_own_seed_alone(code):
    files = code.split_files()
    everything = [file for of_split in files.values() for file in of_split]
    assert len(set(everything)) == len(everything)
    assert len(files["validation"]) == len(files["test"]) == round(0.05 * len(everything)) > 0
    torch.manual_seed(5)
    assert code_of(block_length=8).split_files() == files
    assert code_of(split_seed=1).split_files() != files


@pytest.mark.parametrize(
    ("files", "lines", "message"),
    [(1, 20, "expected at least 10 files that end in .py, found 1"), (20, 7, "is left for validation and test")],
)
def test_too_few_files_and_files_that_fill_no_block_of_a_split_are_refused(tmp_path, files, lines, message):
    for number in range(files):
        (tmp_path / f"{number}.py").write_text("a = 1\n" * lines)
    with pytest.raises(ValueError, match=message):
        code_of(root=tmp_path)


def test_a_file_that_cannot_be_decoded_is_left_out(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.py").write_text("a = 1\n" * 20)
    (tmp_path / "bad.py").write_bytes(b"b = '\xff'\n" * 20)
    assert code_of(root=tmp_path).class_names == [UNKNOWN, END_OF_FILE, "1", "=", "a"]


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
