"""Run notebooks from top to bottom and store their outputs: ``python docs/notebook_outputs.py [NOTEBOOK ...]``.

Without arguments all of ``notebooks/``. Widgets are left out, since a page shows nothing of them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"


def store_outputs(path: Path) -> None:
    """Execute the notebook in an empty folder and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    metadata = notebook.metadata.copy()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    notebook.metadata = metadata  # not the versions of this machine
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        store_outputs(path)
