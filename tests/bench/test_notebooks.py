"""Every notebook runs from top to bottom, and the demo shows what it says."""

import os
import re
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import as_lightning
from docs.notebook_outputs import NOTEBOOKS, checked_outputs, code_cells

# a text in one cell, and what takes its place: the test checks that the notebook runs, not what it
# shows
SMALL = {
    "quick_start": ("epochs = 12", "epochs = 1"),
    "reading_masking_curves": ("epochs = 20", "epochs = 1"),
    "does_it_help_me": (
        '"seeds": 3, "trainer": {"max_epochs": 4',
        '"seeds": 1, "trainer": {"max_epochs": 1',
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(as_lightning.__file__).parents[1]), prepend=os.pathsep
    )
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    document = nbformat.read(path, as_version=4)
    if path.stem in SMALL:
        old, new = SMALL[path.stem]
        (cell,) = [cell for cell in code_cells(document) if old in cell.source]
        cell.source = cell.source.replace(old, new)
    client = NotebookClient(
        document, timeout=None, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()  # raises with the cell and its traceback where one fails
    checked_outputs(document)


def test_the_demos_windows_and_masking_are_what_its_text_says(capsys):
    demo = import_module("docs.demo")
    demo.masking_and_accumulation()
    demo.exact_windows()
    printed = capsys.readouterr().out
    masked = [int(share) for share in re.findall(r"masked +(\d+)% \|", printed)]
    assert masked[0] < 45 < 85 < masked[-1]
    stock, ours = (float(apart) for apart in re.findall(r"(\d\.\de-\d+)$", printed, re.MULTILINE))
    assert ours < 1e-14 < 1e-3 < stock
