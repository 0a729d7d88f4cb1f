"""The standard library's docstrings: the data module of ``experiment=docstrings``."""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.data_module import TextDataModule, with_missing_splits

LEFT_OUT = {"test", "tests", "idle_test", "site-packages"}


def library_folder() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(root: Path) -> list[Path]:
    """Return the ``.py`` files below ``root`` in order, without tests and installed packages."""
    files = root.rglob("*.py")
    return sorted(file for file in files if LEFT_OUT.isdisjoint(file.relative_to(root).parts))


def docstring_paragraphs(file: Path) -> Iterator[str]:
    """Yield the paragraphs of all docstrings of a source file, read without importing it."""
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

    splits_by_seed = True

    def __init__(self, **text: Any) -> None:
        super().__init__(**text)
        self.paths = {"library": library_folder()}

    def files(self) -> dict[str, Path]:
        return {str(file): file for file in source_files(library_folder())}

    def read_splits(self) -> dict[str, list[Sentence]]:
        root = library_folder()
        distinct = set()
        for file in self.files().values():
            module = file.relative_to(root).parts[0].removesuffix(".py")
            if module in sys.stdlib_module_names and not module.startswith("_"):
                distinct |= {Sentence(text, module) for text in docstring_paragraphs(file)}
        distinct = {row for row in distinct if len(row.text.split()) >= MIN_WORDS}
        sizes = Counter(row.label for row in distinct)
        sentences = sorted(row for row in distinct if sizes[row.label] >= MIN_PARAGRAPHS)
        if not sentences:
            raise RuntimeError(
                f"no docstrings below {root}: this Python comes without its library's source files"
            )
        return with_missing_splits({"train": sentences}, self.split_seed)
