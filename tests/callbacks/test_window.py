"""The alignment of accumulation windows with Lightning's zeroing and stepping."""

import math

from hypothesis import given
from hypothesis import strategies as st
from oracles.accumulation_loop import longest_window

from as_lightning.callbacks.window import aligned_window


@given(
    batch=st.integers(0, 500),
    wanted=st.integers(1, 64),
    remaining=st.integers(1, 200) | st.just(math.inf),
)
def test_an_aligned_window_is_the_longest_that_lightning_treats_as_one(
    batch: int, wanted: int, remaining: float
) -> None:
    length = aligned_window(batch, wanted, remaining)
    assert length == longest_window(batch, wanted, remaining)
    assert batch % length == 0  # zeroed before its first batch
    assert all((batch + i) % length != 0 for i in range(1, length))  # and not inside
    assert (batch + length) % length == 0  # stepped after its last batch
    assert all((batch + i + 1) % length != 0 for i in range(length - 1))  # and not before
