"""Every notebook runs from top to bottom."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from harness.notebooks import NOTEBOOKS, check_outputs, code_cells
from nbclient import NotebookClient

import as_lightning

notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# a text in one cell, and what takes its place: the test checks that the notebook runs, not what it shows
SMALL = {
    "quick_start": ("epochs = 12", "epochs = 1"),
    "reading_masking_curves": ("epochs = 20", "epochs = 1"),
    "does_it_help_me": ('"seeds": 3, "trainer": {"max_epochs": 4', '"seeds": 1, "trainer": {"max_epochs": 1'),
}


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
    check_outputs(document)
