"""Every notebook runs from top to bottom, and is committed without its outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import as_lightning

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert "softmax_family" in [path.stem for path in NOTEBOOKS]


@notebook
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@notebook
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(Path(as_lightning.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, *filter(None, [os.environ.get("PYTHONPATH")]))))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    document = nbformat.read(path, as_version=4)
    client = NotebookClient(document, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()  # raises with the cell and its traceback where one fails
    outputs = [output for cell in document.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if "image/png" in output.get("data", {})], "no figure was drawn"
    assert not [output for output in outputs if output.get("name") == "stderr"], "a cell warned"
