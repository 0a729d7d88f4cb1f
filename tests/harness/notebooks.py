"""The committed notebooks, their cells, and what these must have put out."""

from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code_cells(document: Any) -> list[Any]:
    return [cell for cell in document.cells if cell.cell_type == "code"]


def outputs_of(document: Any) -> list[Any]:
    return [output for cell in code_cells(document) for output in cell.outputs]


def check_outputs(document: Any) -> None:
    outputs = outputs_of(document)
    assert [output for output in outputs if "image/png" in output.get("data", {})], "no figure was drawn"
    assert not [output for output in outputs if output.get("name") == "stderr"], "a cell warned"
    assert not [output for output in outputs if output.output_type == "error"], "a cell failed"
