"""Draw which part of the package imports which, as a Mermaid graph inside ARCHITECTURE.md.

    python docs/imports_drawing.py            # rewrites the drawing

The arrows come from the import statements (read by grimp, nothing is run). A test compares the committed drawing with
this script's output; `make lint` checks the direction of the arrows (import-linter, contracts in pyproject.toml).
"""

from __future__ import annotations

import re
from collections import Counter
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


def boxes_and_arrows() -> tuple[list[str], dict[tuple[str, str], int]]:
    """All boxes, and the number of imports between each two; the ``__init__`` of opened packages is left out."""
    graph = grimp.build_graph("as_lightning", cache_dir=None)
    modules = graph.modules - OPENED
    pairs = (
        (box_of(m), box_of(other)) for m in modules for other in graph.find_modules_directly_imported_by(m) - OPENED
    )
    return sorted({box_of(module) for module in modules}), Counter(pair for pair in pairs if pair[0] != pair[1])


def drawing() -> str:
    """The Mermaid graph, boxes of the app in a frame of their own."""

    def name(box: str) -> str:
        return box.removeprefix("as_lightning.").replace(".", "_")

    def node(box: str) -> str:
        kind = "/" if (ROOT / "src" / Path(*box.split("."))).is_dir() else ".py"
        return f'{name(box)}["{box.rpartition(".")[2]}{kind}"]'

    boxes, counted = boxes_and_arrows()
    inside = [box for box in boxes if box.startswith(f"{APP}.")]
    lines = ["```mermaid", "flowchart TD", '    subgraph app ["benchmark/ (the Hydra app)"]']
    lines += [*(f"        {node(box)}" for box in inside), "    end"]
    lines += [f"    {node(box)}" for box in boxes if box not in inside]
    lines += [f"    {name(a)} -->|{count}| {name(b)}" for (a, b), count in sorted(counted.items())]
    return "\n".join([*lines, "```"])


def page_with_drawing(text: str) -> str:
    """``text`` with the part between the two marks replaced by the drawing."""
    return DRAWN.sub(lambda _: drawing(), text)


if __name__ == "__main__":
    PAGE.write_text(page_with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
