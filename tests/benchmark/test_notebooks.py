"""Every notebook runs from top to bottom. Those whose outputs are results are committed with them, others without."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import as_lightning

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
WITH_OUTPUTS = {"what_sleeps"}  # what they show takes minutes; here they run on little data
notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert "softmax_family" in [path.stem for path in NOTEBOOKS]


@notebook
def test_a_notebook_is_committed_with_its_outputs_or_without_any(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    if path.stem not in WITH_OUTPUTS:
        assert all(not cell.outputs and cell.execution_count is None for cell in cells)
        return
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert "skipped" not in "".join(output.get("text", "") for cell in cells for output in cell.outputs)


@notebook
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(Path(as_lightning.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, *filter(None, [os.environ.get("PYTHONPATH")]))))
    monkeypatch.setenv("SMALL_NOTEBOOK", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    document = nbformat.read(path, as_version=4)
    client = NotebookClient(document, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()  # raises with the cell and its traceback where one fails
    outputs = [output for cell in document.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if "image/png" in output.get("data", {})], "no figure was drawn"
    assert not [output for output in outputs if output.get("name") == "stderr"], "a cell warned"
