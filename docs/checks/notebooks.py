"""The notebooks are committed with the outputs of one run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from docs.notebook_outputs import NOTEBOOKS, checked_outputs, code_cells

SUBJECTS = {
    "accumulating_tokens",
    "does_it_help_me",
    "quick_start",
    "reading_masking_curves",
    "softmax_family",
}
notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == SUBJECTS


@notebook
def test_a_notebook_is_committed_with_the_outputs_of_one_run(path: Path) -> None:
    document = nbformat.read(path, as_version=4)
    outputs = checked_outputs(document)
    assert [cell.execution_count for cell in code_cells(document)] == list(
        range(1, len(code_cells(document)) + 1)
    )
    texts = [
        str(value)
        for output in outputs
        for value in [output.get("text"), output.get("data")]
        if value
    ]
    assert not [text for text in texts if re.search(r"/(home|root|tmp|Users)/", text)], (
        "an output names a machine's path"
    )


@notebook
def test_a_notebook_is_small_enough_for_a_page(path: Path) -> None:
    assert path.stat().st_size < 400_000
