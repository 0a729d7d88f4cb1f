"""The accumulation policy."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from as_lightning.functional import accumulation_steps

counts = st.integers(0, 10**9).flatmap(
    lambda samples: st.tuples(st.just(samples), st.integers(0, samples))
)


@example(counts=(8, 8), max_steps=5, previous=4, scale=1.0, monotone=False)
@example(counts=(0, 0), max_steps=5, previous=3, scale=1.0, monotone=False)
@example(counts=(5, 3), max_steps=4, previous=2, scale=1.0, monotone=False)  # 2.5 rounds up
@given(
    counts=counts,
    max_steps=st.integers(1, 64),
    previous=st.integers(1, 64),
    scale=st.sampled_from([0.5, 1.0, 2.0]),
    monotone=st.booleans(),
)
def test_steps_are_the_rounded_ratio_clipped_and_never_fewer_than_before_where_they_are_monotone(
    counts, max_steps, previous, scale, monotone
):
    samples, masked = counts
    previous = min(previous, max_steps)
    steps = accumulation_steps(
        samples, masked, scale=scale, max_steps=max_steps, previous=previous, monotone=monotone
    )
    if samples == 0:
        expected = previous
    elif masked == samples:
        expected = min(max_steps, previous + 1)
    else:
        ratio = Fraction(scale) * samples / (samples - masked)
        rounded = math.floor(ratio + Fraction(1, 2))
        expected = min(max(rounded, 1), max_steps, previous + 1)
    assert steps == (max(expected, previous) if monotone else expected)


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
def test_arguments_outside_their_range_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        accumulation_steps(**arguments)
