"""Embedded text: the paragraphs of the standard library's docstrings, by the module that they are in."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.text.data_module import Sentence, TextDataModule, split_sentences
from as_lightning.benchmark.data.text.python_code import is_test, library_folder


def docstring_paragraphs(root: Path, module: str) -> Iterator[str]:
    """The paragraphs of all docstrings of a top-level module or package below ``root``, read without importing it."""
    package = root / module
    files = [root / f"{module}.py"] if not package.is_dir() else sorted(package.rglob("*.py"))
    for file in files:
        if not file.is_file() or is_test(file.relative_to(root)):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except SyntaxError:  # lib2to3 keeps files of other grammars
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                    yield " ".join(paragraph.split())


class Docstrings(TextDataModule):
    """Guess the standard-library module from a paragraph of its docstrings; no download.

    A class is a public top-level module with at least ``min_paragraphs`` different paragraphs (at least 10) of at least
    ``min_words`` words: 82 modules and 11,741 paragraphs on CPython 3.11.7. The split is 80 / 10 / 10 %, by
    ``split_seed``.

    Raises:
        ValueError: if an argument is out of range.
        RuntimeError: if this Python has no source files of its standard library.
    """

    from_standard_library = True

    def __init__(self, split_seed: int = 0, min_paragraphs: int = 30, min_words: int = 5, **text: Any) -> None:
        super().__init__(**text)
        if min_paragraphs < 10:
            raise ValueError(
                f"min_paragraphs must be at least 10 (a class needs all three splits), got {min_paragraphs}"
            )
        if min_words < 1:
            raise ValueError(f"min_words must be at least 1, got {min_words}")
        self.split_seed, self.min_paragraphs, self.min_words = split_seed, min_paragraphs, min_words

    @property
    def splits_by_seed(self) -> bool:
        return True

    def read_splits(self) -> dict[str, list[Sentence]]:
        root = library_folder()
        sentences = sorted(
            {
                Sentence(paragraph, module)
                for module in sys.stdlib_module_names
                if not module.startswith("_")
                for paragraph in docstring_paragraphs(root, module)
                if len(paragraph.split()) >= self.min_words
            }
        )
        sizes = Counter(sentence.label for sentence in sentences)
        sentences = [sentence for sentence in sentences if sizes[sentence.label] >= self.min_paragraphs]
        if not sentences:
            raise RuntimeError(f"no docstrings below {root}: this Python comes without its library's source files")
        return split_sentences(sentences, self.split_seed)
