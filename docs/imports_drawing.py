"""Draw which part of the package imports which, as a table inside ARCHITECTURE.md, in which imports point down.

    python docs/imports_drawing.py            # rewrites the drawing

The imports come from the source (read by grimp, nothing is run). A test compares the committed drawing with this
script's output; `make lint` checks the direction of the imports (import-linter, contracts in pyproject.toml).
"""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
DRAWN = re.compile(r"(?<=<!-- drawn by docs/imports_drawing.py -->\n).*?(?=\n<!-- end of drawing -->)", re.DOTALL)
APP = "as_lightning.benchmark"
OPENED = {"as_lightning", APP}  # what the drawing opens: any other package or module in them is one box


def box_of(module: str) -> str:
    """The box that a module belongs to: the part right below the deepest opened package above it."""
    return ".".join(module.split(".")[: 3 if module.startswith(f"{APP}.") else 2])


def boxes_and_arrows() -> tuple[list[str], set[tuple[str, str]]]:
    """All boxes, and which imports which; the ``__init__`` of opened packages is left out."""
    graph = grimp.build_graph("as_lightning", cache_dir=None)
    modules = graph.modules - OPENED
    pairs = {
        (box_of(m), box_of(other)) for m in modules for other in graph.find_modules_directly_imported_by(m) - OPENED
    }
    return sorted({box_of(module) for module in modules}), {pair for pair in pairs if pair[0] != pair[1]}


def drawing() -> str:
    """The table, from the part that knows most to the parts that import no other."""
    boxes, arrows = boxes_and_arrows()
    imported = {box: sorted(other for importer, other in arrows if importer == box) for box in boxes}

    def name(box: str) -> str:
        kind = "/" if (ROOT / "src" / Path(*box.split("."))).is_dir() else ".py"
        return f"`{box.removeprefix('as_lightning.').replace('.', '/')}{kind}`"

    lines = ["| part | imports |", "| --- | --- |"]
    for box in reversed([*TopologicalSorter(imported).static_order()]):
        lines.append(f"| {name(box)} | {', '.join(map(name, imported[box])) or '–'} |")
    return "\n".join(lines)


def page_with_drawing(text: str) -> str:
    """``text`` with the part between the two marks replaced by the drawing."""
    return DRAWN.sub(lambda _: drawing(), text)


if __name__ == "__main__":
    PAGE.write_text(page_with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
