"""Every notebook runs from top to bottom, and is committed with the outputs of such a run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import as_lightning

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
SUBJECTS = {"accumulating_tokens", "does_it_help_me", "quick_start", "reading_masking_curves", "softmax_family"}
# a text in one cell, and what takes its place: the test checks that the notebook runs, not what it shows
SMALL = {
    "quick_start": ("epochs = 12", "epochs = 1"),
    "reading_masking_curves": ("epochs = 20", "epochs = 1"),
    "does_it_help_me": ('"seeds": 3, "trainer": {"max_epochs": 4', '"seeds": 1, "trainer": {"max_epochs": 1'),
}


def code_cells(document: Any) -> list[Any]:
    return [cell for cell in document.cells if cell.cell_type == "code"]


def outputs_of(document: Any) -> list[Any]:
    return [output for cell in code_cells(document) for output in cell.outputs]


def check_outputs(outputs: list[Any]) -> None:
    assert [output for output in outputs if "image/png" in output.get("data", {})], "no figure was drawn"
    assert not [output for output in outputs if output.get("name") == "stderr"], "a cell warned"
    assert not [output for output in outputs if output.output_type == "error"], "a cell failed"


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == SUBJECTS


@notebook
def test_a_notebook_is_committed_with_the_outputs_of_one_run(path: Path) -> None:
    document = nbformat.read(path, as_version=4)
    check_outputs(outputs_of(document))
    assert [cell.execution_count for cell in code_cells(document)] == list(range(1, len(code_cells(document)) + 1))
    texts = [
        str(value) for output in outputs_of(document) for value in [output.get("text"), output.get("data")] if value
    ]
    assert not [text for text in texts if re.search(r"/(home|root|tmp|Users)/", text)], (
        "an output names a machine's path"
    )


@notebook
def test_a_notebook_is_small_enough_for_a_page(path: Path) -> None:
    assert path.stat().st_size < 400_000


@pytest.mark.slow
@notebook
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(Path(as_lightning.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, *filter(None, [os.environ.get("PYTHONPATH")]))))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    document = nbformat.read(path, as_version=4)
    if path.stem in SMALL:
        old, new = SMALL[path.stem]
        (cell,) = [cell for cell in code_cells(document) if old in cell.source]
        cell.source = cell.source.replace(old, new)
    client = NotebookClient(document, timeout=None, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()  # raises with the cell and its traceback where one fails
    check_outputs(outputs_of(document))
