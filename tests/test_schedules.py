"""The margin warm-up."""

from __future__ import annotations

import math

import pytest
from harness.normal_floats import floats
from hypothesis import given
from hypothesis import strategies as st

from as_lightning import DeltaWarmup


def test_hold_stays_at_initial_and_then_drops_to_delta():
    warmup = DeltaWarmup(ratio=0.3, initial=0.9)
    assert [warmup.delta_at(batch, 10, 0.1) for batch in range(10)] == [0.9] * 3 + [0.1] * 7


def test_linear_goes_in_equal_steps_from_initial_to_delta():
    warmup = DeltaWarmup(batches=4, initial=0.9, shape="linear")
    assert [warmup.delta_at(batch, math.inf, 0.1) for batch in range(6)] == pytest.approx(
        [0.9, 0.7, 0.5, 0.3, 0.1, 0.1]
    )


@given(
    ratio=floats(0, 1),
    initial=floats(0, 1),
    delta=floats(0, 1),
    shape=st.sampled_from(["hold", "linear"]),
    total=st.integers(1, 1000),
)
def test_every_margin_lies_between_initial_and_delta_and_the_last_batch_after_the_warmup_is_at_delta(
    ratio, initial, delta, shape, total
):
    warmup = DeltaWarmup(ratio=ratio, initial=initial, shape=shape)
    low, high = sorted((initial, delta))
    margins = [warmup.delta_at(batch, total, delta) for batch in range(total)]
    assert all(low - 1e-12 <= margin <= high + 1e-12 for margin in margins)
    assert sum(margin != delta for margin in margins) <= int(ratio * total)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of ratio and batches"),
        ({"ratio": 0.1, "batches": 3}, "one of ratio and batches"),
        ({"ratio": 1.5}, r"ratio must be a number in \[0, 1\], got 1.5"),
        ({"ratio": "a"}, r"ratio must be a number in \[0, 1\], got 'a'"),
        ({"batches": -1}, "batches must be an integer of at least 0, got -1"),
        ({"batches": 1.5}, "batches must be an integer of at least 0, got 1.5"),
        ({"ratio": 0.1, "initial": 2.0}, r"initial: delta .*\[0, 1\], got 2.0"),
        ({"ratio": 0.1, "shape": "cosine"}, "shape must be 'hold' or 'linear', got 'cosine'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DeltaWarmup(**arguments)


def test_a_ratio_of_an_unknown_length_is_refused_and_names_batches():
    with pytest.raises(ValueError, match=r"give batches=\.\.\. instead"):
        DeltaWarmup(ratio=0.1).delta_at(0, math.inf, 0.1)
