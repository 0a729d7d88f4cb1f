"""Every method has a card, which says what a card must and describes every knob."""

from __future__ import annotations

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
PARTS |= {"baseline", "own_module"}  # what a comparison must know


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_card_that_says_what_style_asks_for(method: str) -> None:
    card = (CARDS / f"{method}.md").read_text(encoding="utf-8")
    for heading in (
        "## Formula",
        "## Knobs",
        "## When it helps",
        "## When it hurts",
        "**Source.**",
    ):
        assert heading in card, f"{method}.md has no section {heading!r}"
    assert card.startswith(f"# {method}\n\n**In short:** "), (
        f"{method}.md does not begin with what it does in short"
    )
    knobs = [knob for knob in method_config(method) if knob not in PARTS]
    for knob in knobs:
        assert f"`method.{knob}`" in card, f"{method}.md does not describe method.{knob}"
    if knobs:
        _, _, suggested = card.partition("## When it helps")[0].partition(
            "\n\n**Suggested values.** "
        )
        assert any(f"`{knob}`" in suggested or f"`method.{knob}`" in suggested for knob in knobs), (
            f"{method}.md suggests no values of {', '.join(knobs)}"
        )
