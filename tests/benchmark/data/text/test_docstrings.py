"""The embedded docstrings."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial

import pytest
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.standard_library import Docstrings, docstring_paragraphs, source_files


@pytest.fixture(scope="module")
def splits():
    return partial(Docstrings, **TEXT)().read_splits()


def test_classes_are_public_standard_modules_each_in_every_split_and_large_enough(splits):
    sizes = Counter(sentence.label for rows in splits.values() for sentence in rows)
    assert len(sizes) > 50
    assert min(sizes.values()) >= 30
    assert all(module in sys.stdlib_module_names and not module.startswith("_") for module in sizes)
    assert all({sentence.label for sentence in rows} == set(sizes) for rows in splits.values())


def test_splits_are_disjoint_and_of_80_10_and_10_percent(splits):
    total = sum(map(len, splits.values()))
    assert len({sentence for rows in splits.values() for sentence in rows}) == total
    assert [round(len(splits[name]) / total, 2) for name in ("train", "validation", "test")] == [0.8, 0.1, 0.1]


def test_paragraphs_are_read_without_importing_and_leave_out_tests_and_other_grammars(tmp_path):
    package = tmp_path / "pack"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text('"""One\nparagraph.\n\nAnother."""\nraise SystemExit\n')
    (package / "old.py").write_text("print 'python 2'\n")
    (package / "tests" / "test_it.py").write_text('"""Not this."""\n')
    (package / "code.py").write_text(
        'class A:\n    """Of a class."""\n    async def f(self):\n        """Of a method."""\n'
    )
    paragraphs = [text for file in source_files(tmp_path) for text in docstring_paragraphs(file) if text]
    assert sorted(paragraphs) == ["Another.", "Of a class.", "Of a method.", "One paragraph."]
