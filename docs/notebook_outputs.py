"""Run notebooks from top to bottom and store their outputs: ``python docs/notebook_outputs.py [NOTEBOOK ...]``.

Without arguments all of ``notebooks/``. Widgets are left out, since a page shows nothing of them.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"

if __name__ == "__main__":  # tests import what lies here
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
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
