"""Write which part of the package imports which, as a table inside ARCHITECTURE.md, in which
imports point down.

    python docs/imports_drawing.py            # rewrites the table

The imports come from the source (read by grimp, nothing is run). A test compares the committed
table with this script's output; `make lint` checks the direction of the imports (import-linter,
contracts in pyproject.toml).
"""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
DRAWN = re.compile(
    r"(?<=<!-- drawn by docs/imports_drawing.py -->\n).*?(?=\n<!-- end of drawing -->)", re.DOTALL
)
OPENED = {"as_lightning", "as_lightning.bench"}  # any other package in them is one part


def imports() -> dict[str, list[str]]:
    """What each part imports, with all that is in it."""
    graph = grimp.build_graph("as_lightning", cache_dir=None)
    parts = sorted(set().union(*map(graph.find_children, OPENED)) - OPENED)
    for part in parts:
        graph.squash_module(part)
    return {
        part: sorted(graph.find_modules_directly_imported_by(part) - OPENED - {part})
        for part in parts
    }


def page_with_drawing(text: str) -> str:
    """``text`` with the table between the two marks, from the part that knows most to those that
    import no other.
    """

    def name(part: str) -> str:
        kind = "/" if (ROOT / "src" / Path(*part.split("."))).is_dir() else ".py"
        return f"`{part.removeprefix('as_lightning.').replace('.', '/')}{kind}`"

    imported, lines = imports(), ["| part | imports |", "| --- | --- |"]
    for part in reversed([*TopologicalSorter(imported).static_order()]):
        lines.append(f"| {name(part)} | {', '.join(map(name, imported[part])) or '–'} |")
    return DRAWN.sub(lambda _: "\n".join(lines), text)


if __name__ == "__main__":
    PAGE.write_text(page_with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
