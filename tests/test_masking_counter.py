"""Counting over an accumulation window."""

import copy
import pickle

import pytest
import torch

from as_lightning import MaskingCounter
from as_lightning.functional import MaskingCounts


def counts(*values: int) -> MaskingCounts:
    return MaskingCounts(*torch.tensor(values))


def test_the_first_close_of_a_window_reduces_and_a_second_with_its_key_does_not():
    counter = MaskingCounter()
    counter.update(counts(1, 2, 3, 4))
    counter.update(counts(1, 2, 3, 4))
    reductions = []

    def over_two_ranks(window):
        reductions.append(window)
        return window._replace(counts=2 * window.counts)

    assert counter.close_window((0, 1), over_two_ranks).counts.tolist() == [4, 8, 12, 16]
    assert counter.close_window((0, 1), over_two_ranks).counts.tolist() == [4, 8, 12, 16]
    assert len(reductions) == 1
    counter.update(counts(0, 1, 0, 2))  # a closed window leaves nothing to the next
    assert counter.close_window((0, 2), lambda window: window).counts.tolist() == [0, 1, 0, 2]
    assert counter.close_window((0, 3), lambda window: window).counts.tolist() == [0, 0, 0, 0]


def test_counts_lose_nothing_beyond_float_precision():
    counter = MaskingCounter()
    large = 2**53 + 1
    counter.update(counts(1, large, 0, 0))
    counter.update(counts(0, 1, 0, 0))
    assert counter.close_window((0, 0), lambda window: window).counts.tolist()[1] == large + 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda counter: pickle.loads(pickle.dumps(counter))])
def test_a_copy_counts_on_its_own(duplicate):
    counter = MaskingCounter()
    counter.update(counts(1, 2, 3, 4))
    other = duplicate(counter)
    other.update(counts(1, 2, 3, 4))
    assert counter.close_window((0, 0), lambda window: window).counts.tolist() == [1, 2, 3, 4]
    assert other.close_window((0, 0), lambda window: window).counts.tolist() == [2, 4, 6, 8]
