"""Embedded text: the standard library's docstrings."""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from as_lightning.bench.data.files import has_suffix
from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.data_module import TextDataModule, split_in_three

TEST_FOLDERS = {"test", "tests", "idle_test"}


def library_folder() -> Path:
    """The folder of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(root: Path) -> list[Path]:
    """The ``.py`` files below ``root`` in alphabetical order, without tests and
    installed packages.
    """
    paths = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [
            name for name in subfolders if name != "site-packages" and name not in TEST_FOLDERS
        ]
        paths += [Path(folder, name) for name in files if has_suffix(name, (".py",))]
    return sorted(paths)


def docstring_paragraphs(file: Path) -> Iterator[str]:
    """The paragraphs of all docstrings of a source file, read without importing it."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # lib2to3 keeps files of other grammars
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                yield " ".join(paragraph.split())


MIN_PARAGRAPHS, MIN_WORDS = 30, 5  # of a module, and of a paragraph


class Docstrings(TextDataModule):
    """Guess the standard-library module from a paragraph of its docstrings; no download.

    A class is a public top-level module with at least 30 different paragraphs of at least 5 words:
    82 modules and 11,741 paragraphs on CPython 3.11.7. The split is 80 / 10 / 10 %, by
    ``split_seed``. A RuntimeError says if this Python comes without the source files of its
    library.
    """

    from_standard_library = True
    splits_by_seed = True

    def read_splits(self) -> dict[str, list[Sentence]]:
        root = library_folder()
        distinct = set()
        for file in source_files(root):
            module = file.relative_to(root).parts[0].removesuffix(".py")
            if module in sys.stdlib_module_names and not module.startswith("_"):
                paragraphs = [
                    text for text in docstring_paragraphs(file) if len(text.split()) >= MIN_WORDS
                ]
                distinct |= {Sentence(text, module) for text in paragraphs}
        sizes = Counter(sentence.label for sentence in distinct)
        sentences = sorted(
            sentence for sentence in distinct if sizes[sentence.label] >= MIN_PARAGRAPHS
        )
        if not sentences:
            raise RuntimeError(
                f"no docstrings below {root}: this Python comes without its library's source files"
            )
        return split_in_three(sentences, self.split_seed)
