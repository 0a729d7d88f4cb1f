"""Every method has a short card of one template, which describes every knob."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from as_lightning.bench.packages import config_dir
from as_lightning.comparison.methods import method_config

METHODS = sorted(
    path.stem for path in (config_dir() / "method").glob("*.yaml") if path.stem != "base"
)
CARDS = Path(__file__).parents[1] / "methods"
# what a method is made of; all else in its file is a knob
PARTS = {"_target_", "name", "criterion", "probabilities", "targets", "head", "callbacks", "search"}
PARTS |= {"baseline", "knobs", "arguments"}  # what a comparison must know


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_card_of_the_template(method: str) -> None:
    lines = (CARDS / f"{method}.md").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [f"# {method}", ""]
    assert len(lines) <= 22
    parts = (
        "**Formula** ",
        ("**Knobs.** None.", "| **Knobs** |"),
        "**When.** ",
        "**Our numbers.** ",
    )
    found = [line for line in lines if line.startswith(("**", "| **"))]
    assert len(found) == len(parts)
    for part, line in zip(parts, found, strict=True):
        assert line.startswith(part), f"{method}.md: {line!r} is not {part!r}"
    assert "*Helps:*" in found[2]
    assert any("*Hurts:*" in line for line in lines)


@pytest.mark.parametrize("method", METHODS)
def test_a_card_describes_every_knob_and_says_what_to_try(method: str) -> None:
    lines = (CARDS / f"{method}.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    described = [name for row in rows for name in re.findall(r"`method\.(\w+)`", row)]
    knobs = [knob for knob in method_config(method) if knob not in PARTS]
    assert sorted(described) == sorted(knobs)
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        assert all(cells), row
