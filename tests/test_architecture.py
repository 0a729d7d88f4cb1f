"""The drawing in ARCHITECTURE.md is that of the code as it stands."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_drawing_of_the_imports_is_that_of_the_code():
    script = runpy.run_path(str(ROOT / "docs" / "imports_drawing.py"))
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert page == script["page_with_drawing"](page), "run `python docs/imports_drawing.py`"


def test_no_two_parts_import_each_other():
    imports = runpy.run_path(str(ROOT / "docs" / "imports_drawing.py"))["imports"]()
    assert any(imports.values())
    assert not [
        (part, other)
        for part, others in imports.items()
        for other in others
        if part in imports[other]
    ]
