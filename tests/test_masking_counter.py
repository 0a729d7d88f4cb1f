"""Counting over an accumulation window."""

from __future__ import annotations

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
        return 2 * window

    assert counter.close_window((0, 1), over_two_ranks).tolist() == [4, 8, 12, 16]
    assert counter.close_window((0, 1), over_two_ranks).tolist() == [4, 8, 12, 16]
    assert len(reductions) == 1


def test_a_closed_window_leaves_nothing_to_the_next():
    counter = MaskingCounter()
    counter.update(counts(1, 2, 3, 4))
    counter.close_window((0, 0), lambda window: window)
    counter.update(counts(0, 1, 0, 2))
    assert counter.close_window((0, 1), lambda window: window).tolist() == [0, 1, 0, 2]


def test_a_window_without_updates_is_all_zero():
    assert MaskingCounter().close_window((0, 0), lambda window: window).tolist() == [0, 0, 0, 0]


def test_counts_lose_nothing_beyond_float_precision():
    counter = MaskingCounter()
    large = 2**53 + 1
    counter.update(counts(1, large, 0, 0))
    counter.update(counts(0, 1, 0, 0))
    assert counter.close_window((0, 0), lambda window: window).tolist()[1] == large + 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda counter: pickle.loads(pickle.dumps(counter))])
def test_a_copy_counts_on_its_own(duplicate):
    counter = MaskingCounter()
    counter.update(counts(1, 2, 3, 4))
    other = duplicate(counter)
    other.update(counts(1, 2, 3, 4))
    assert counter.close_window((0, 0), lambda window: window).tolist() == [1, 2, 3, 4]
    assert other.close_window((0, 0), lambda window: window).tolist() == [2, 4, 6, 8]


def live(*flags: bool) -> torch.Tensor:
    return torch.tensor(flags)


def test_live_samples_are_recorded_until_they_are_taken():
    counter = MaskingCounter()
    assert (counter.wants_live, counter.live_delta, counter.take_live()) == (False, None, None)
    counter.record_live(live(True, False, False))
    assert counter.take_live().tolist() == [True, False, False]
    assert counter.take_live() is None


def test_a_sample_that_is_live_in_one_of_two_losses_is_live():
    counter = MaskingCounter()
    counter.record_live(live(True, False, False))
    counter.record_live(live(False, False, True))
    assert counter.take_live().tolist() == [True, False, True]


def test_two_losses_of_other_samples_are_refused():
    counter = MaskingCounter()
    counter.record_live(live(True, False, False))
    with pytest.raises(ValueError, match=r"two losses .* shapes \(3,\) and \(2,\).*one\s+loss per step"):
        counter.record_live(live(True, False))
