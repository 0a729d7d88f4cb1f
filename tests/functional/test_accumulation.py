"""The accumulation policy."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from as_lightning.functional import accumulation_steps

counts = st.integers(0, 10**9).flatmap(lambda samples: st.tuples(st.just(samples), st.integers(0, samples)))


@example(counts=(8, 8), max_steps=5, previous=4, scale=1.0)
@example(counts=(0, 0), max_steps=5, previous=3, scale=1.0)
@example(counts=(5, 3), max_steps=4, previous=2, scale=1.0)  # 2.5 rounds up
@given(counts=counts, max_steps=st.integers(1, 64), previous=st.integers(1, 64), scale=st.sampled_from([0.5, 1.0, 2.0]))
def test_steps_are_the_rounded_ratio_clipped(
    counts: tuple[int, int], max_steps: int, previous: int, scale: float
) -> None:
    samples, masked = counts
    previous = min(previous, max_steps)
    steps = accumulation_steps(samples, masked, scale=scale, max_steps=max_steps, previous=previous, monotone=False)
    if samples == 0:
        expected = previous
    elif masked == samples:
        expected = min(max_steps, previous + 1)
    else:
        ratio = Fraction(scale) * samples / (samples - masked)
        rounded = math.floor(ratio + Fraction(1, 2))
        expected = min(max(rounded, 1), max_steps, previous + 1)
    assert steps == expected


@given(counts=counts, max_steps=st.integers(1, 64), previous=st.integers(1, 64))
def test_monotone_steps_stay_between_the_previous_and_one_more(
    counts: tuple[int, int], max_steps: int, previous: int
) -> None:
    steps = accumulation_steps(*counts, max_steps=max_steps, previous=previous)
    assert min(previous, max_steps) <= steps <= min(previous + 1, max_steps)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 1, "masked_samples": 2}, "masked_samples=2"),
        ({"samples": -1, "masked_samples": -1}, "samples=-1"),
        ({"samples": 2, "masked_samples": 1, "scale": 0.0}, "scale"),
        ({"samples": 2, "masked_samples": 1, "scale": math.nan}, "scale"),
        ({"samples": 2, "masked_samples": 1, "max_steps": 0}, "max_steps"),
        ({"samples": 2, "masked_samples": 1, "previous": 0}, "previous"),
    ],
)
def test_arguments_outside_their_range_are_refused_by_name(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        accumulation_steps(**arguments)
