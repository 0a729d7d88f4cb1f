"""Run notebooks from top to bottom and store their outputs: ``python docs/notebook_outputs.py
[NOTEBOOK ...]``.

Without arguments all of ``notebooks/``. Widgets are left out, since a page shows nothing of them.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


def code_cells(document: Any) -> list[Any]:
    """The cells of a notebook that are run."""
    return [cell for cell in document.cells if cell.cell_type == "code"]


def checked_outputs(document: Any) -> list[Any]:
    """What a notebook has put out: figures, and neither warnings nor errors."""
    outputs = [output for cell in code_cells(document) for output in cell.outputs]
    assert [output for output in outputs if "image/png" in output.get("data", {})], (
        "no figure was drawn"
    )
    assert not [output for output in outputs if output.get("name") == "stderr"], "a cell warned"
    assert not [output for output in outputs if output.output_type == "error"], "a cell failed"
    return outputs


if __name__ == "__main__":  # tests import what lies here
    for path in [Path(name) for name in sys.argv[1:]] or NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        metadata = notebook.metadata.copy()
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(
                notebook, kernel_name="python3", resources={"metadata": {"path": folder}}
            ).execute()
        notebook.metadata = metadata  # not the versions of this machine
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # the time of day
        for cell in code_cells(notebook):
            cell.outputs = [
                output for output in cell.outputs if WIDGET not in output.get("data", {})
            ]
        nbformat.write(notebook, path)
