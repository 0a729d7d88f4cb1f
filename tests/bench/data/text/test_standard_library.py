"""The embedded texts: the docstrings of the standard library, and the tokens and blocks of its
source code.
"""

from collections import Counter

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.bench.data.base import collected_messages
from as_lightning.bench.data.text import standard_library
from as_lightning.bench.data.text.standard_library import (
    END_OF_FILE,
    TOKEN,
    UNKNOWN,
    Docstrings,
    PythonCode,
    docstring_paragraphs,
    library_folder,
    source_files,
)

LENGTH = 32


def test_docstrings_are_split_80_10_10_and_classes_are_public_modules_large_enough_and_in_every_split(
    tmp_path, monkeypatch
):
    for name in (
        "asyncio",
        "email",
        "logging",
        "this.py",
        "_pydecimal.py",
    ):  # one is too small, one is not public
        (tmp_path / name).symlink_to(library_folder() / name)
    monkeypatch.setattr(
        standard_library,
        "source_files",
        lambda root: [*tmp_path.glob("*.py"), *tmp_path.glob("*/*.py")],
    )
    monkeypatch.setattr(standard_library, "library_folder", lambda: tmp_path)
    docstrings = Docstrings(**TEXT).read_splits()
    sizes = Counter(sentence.label for rows in docstrings.values() for sentence in rows)
    assert sizes.keys() == {"asyncio", "email", "logging"}
    assert min(sizes.values()) >= 30
    assert all({sentence.label for sentence in rows} == set(sizes) for rows in docstrings.values())
    total = len({sentence for rows in docstrings.values() for sentence in rows})
    assert total == sizes.total()
    assert [
        round(len(docstrings[name]) / total, 2) for name in ("train", "validation", "test")
    ] == [0.8, 0.1, 0.1]


def test_paragraphs_are_read_without_importing_and_leave_out_tests_and_other_grammars(tmp_path):
    (tmp_path / "pack" / "tests").mkdir(parents=True)
    for name, source in {
        "__init__.py": '"""One\nparagraph.\n\nAnother."""\nraise SystemExit\n',
        "old.py": "print 'python 2'\n",
        "tests/test_it.py": '"""Not this."""\n',
        "code.py": 'class A:\n    """Of a class."""\n    async def f(self):\n        """Of a method."""\n',
    }.items():
        (tmp_path / "pack" / name).write_text(source)
    paragraphs = [
        text for file in source_files(tmp_path) for text in docstring_paragraphs(file) if text
    ]
    assert sorted(paragraphs) == ["Another.", "Of a class.", "Of a method.", "One paragraph."]


def code_of(**arguments) -> PythonCode:
    """The code of one package of the standard library, 33 files on Python 3.11."""
    settings = {
        "root": library_folder() / "asyncio",
        "block_length": LENGTH,
        "batch_tokens": 4 * LENGTH,
    }
    data = PythonCode(**(settings | {"max_tokens": None} | arguments))
    data.setup()
    return data


@pytest.fixture(scope="module")
def code() -> PythonCode:
    return code_of()


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


def test_the_classes_are_the_tokens_that_the_training_files_have_twice_and_the_splits_are_their_files(
    code,
):
    files = {
        split: [
            [*TOKEN.findall(file.read_text(errors="replace")), END_OF_FILE] for file in of_split
        ]
        for split, of_split in code.split_files().items()
    }
    counts = Counter(token for file in files["train"] for token in file[:-1])
    names, known = code.class_names, set(code.class_names)
    ranked = sorted((-count, token) for token, count in counts.items() if count >= 2)
    assert names == [UNKNOWN, END_OF_FILE, *(token for _, token in ranked)]
    for split, of_split in files.items():
        tokens = [token if token in known else UNKNOWN for file in of_split for token in file]
        found, targets = (
            [names[number] for number in part.flatten()] for part in code.splits[split][:]
        )
        assert found == tokens[: len(found)]
        assert targets == tokens[1 : len(found) + 1]  # the token after each
        assert len(tokens) - LENGTH <= len(found) < len(tokens)


def test_no_file_is_in_two_splits_and_the_split_depends_on_its_own_seed_alone(code):
    files = code.split_files()
    everything = [file for of_split in files.values() for file in of_split]
    assert len(set(everything)) == len(everything)
    assert len(files["validation"]) == len(files["test"]) == round(0.05 * len(everything)) > 0
    torch.manual_seed(5)
    assert code_of(block_length=8).split_files() == files != code_of(split_seed=1).split_files()


def test_too_few_files_or_too_little_for_a_block_are_refused_and_what_cannot_be_decoded_is_left_out(
    tmp_path,
):
    def written(files: int, lines: int) -> PythonCode:
        for number in range(files):
            (tmp_path / f"{number}.py").write_text("a = 1\n" * lines)
        return code_of(root=tmp_path)

    with pytest.raises(ValueError, match=r"expected at least 10 files that end in .py, found 1"):
        written(1, 20)
    with pytest.raises(ValueError, match="is left for validation and test"):
        written(20, 7)
    (tmp_path / "bad.py").write_bytes(b"b = '\xff'\n" * 20)
    with collected_messages() as messages:
        assert written(20, 20).class_names == [UNKNOWN, END_OF_FILE, "1", "=", "a"]
    assert (
        f"1 files are left out, which are not in the encoding they declare: {tmp_path / 'bad.py'}"
        in messages
    )


def test_validation_and_test_take_batches_of_at_most_1024_tokens(code):
    data = code_of(batch_tokens=64 * LENGTH)
    loaders = (
        data.train_dataloader(),
        data.val_dataloader(),
        data.test_dataloader(),
        code.val_dataloader(),
    )
    assert [next(iter(loader))[0].numel() for loader in loaders] == [
        64 * LENGTH,
        1024,
        1024,
        4 * LENGTH,
    ]


def test_max_tokens_limits_the_splits_and_leaves_the_classes(code):
    data = code_of(max_tokens={"train": 10_000, "test": 1_000})
    assert data.class_names == code.class_names
    assert data.splits["train"].inputs.numel() == 9_999 // LENGTH * LENGTH
    assert torch.equal(data.splits["test"].inputs, code.splits["test"].inputs[: 999 // LENGTH])
    assert len(data.splits["validation"]) == len(code.splits["validation"])
