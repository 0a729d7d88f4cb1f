"""Draw which part of the package imports which, as a Mermaid graph inside ARCHITECTURE.md.

    python docs/imports_drawing.py            # rewrites the drawing

The arrows come from the import statements (read by grimp, nothing is run). A test compares the committed drawing with
this script's output; `make lint` checks the direction of the arrows (import-linter, contracts in pyproject.toml).
"""

from __future__ import annotations

from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
START, END = "<!-- drawn by docs/imports_drawing.py -->", "<!-- end of drawing -->"
PACKAGE = "as_lightning"
APP = f"{PACKAGE}.benchmark"
# packages that the drawing opens; every other package or module below them is one box
OPENED = (PACKAGE, APP)


def box_of(module: str) -> str:
    """The box that a module belongs to: the part right below the deepest opened package above it."""
    for package in sorted(OPENED, key=len, reverse=True):
        if module.startswith(f"{package}."):
            return f"{package}.{module[len(package) + 1 :].split('.')[0]}"
    return module


def boxes_and_arrows() -> tuple[list[str], dict[tuple[str, str], int]]:
    """All boxes, and the number of imports between each two; the ``__init__`` of opened packages is left out."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    modules = sorted(graph.modules - set(OPENED))
    counted: dict[tuple[str, str], int] = {}
    for importer in modules:
        for imported in sorted(graph.find_modules_directly_imported_by(importer) - set(OPENED)):
            pair = box_of(importer), box_of(imported)
            if pair[0] != pair[1]:
                counted[pair] = counted.get(pair, 0) + 1
    return sorted({box_of(module) for module in modules}), counted


def drawing() -> str:
    """The Mermaid graph, boxes of the app in a frame of their own."""
    boxes, counted = boxes_and_arrows()
    inside = [box for box in boxes if box.startswith(f"{APP}.")]
    lines = ["```mermaid", "flowchart TD"]
    lines += ['    subgraph app ["benchmark/ (the Hydra app)"]']
    lines += [f"        {node(box)}" for box in inside]
    lines += ["    end"]
    lines += [f"    {node(box)}" for box in boxes if box not in inside]
    lines += [f"    {name(a)} -->|{count}| {name(b)}" for (a, b), count in sorted(counted.items())]
    return "\n".join([*lines, "```"])


def name(box: str) -> str:
    return box.removeprefix(f"{PACKAGE}.").replace(".", "_")


def node(box: str) -> str:
    is_package = (ROOT / "src" / Path(*box.split("."))).is_dir()
    label = box.rpartition(".")[2] + ("/" if is_package else ".py")
    return f'{name(box)}["{label}"]'


def page_with_drawing(text: str) -> str:
    """``text`` with the part between the two marks replaced by the drawing."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{drawing()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(drawing())
