"""What a comparison gives its jobs on the command line."""

from __future__ import annotations

from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from as_lightning.benchmark.compare.job_overrides import override_value

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=8)
NUMBERS = st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | TEXTS, lambda items: st.lists(items, max_size=3))


@given(VALUES)
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    (override,) = OverridesParser.create().parse_overrides([f"++method.x={override_value(value)}"])
    read = override.value()
    assert (str(read) if isinstance(value, str) else read) == value
    assert not override.is_sweep_override()
