"""Counting over an accumulation window."""

import copy
import pickle

import pytest
import torch

from as_lightning import MaskingCounter
from as_lightning.functional import MaskingCounts


def counts(*values: int) -> MaskingCounts:
    return MaskingCounts(*torch.tensor(values))


def test_a_closed_window_leaves_nothing_to_the_next():
    counter = MaskingCounter()
    for expected in ([2, 4, 6, 8], [1, 2, 3, 4], [0, 0, 0, 0]):
        for _ in range(expected[0]):
            counter.update(counts(1, 2, 3, 4))
        assert counter.close_window().counts.tolist() == expected


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda counter: pickle.loads(pickle.dumps(counter))]
)
def test_a_copy_counts_on_its_own(duplicate):
    counter = MaskingCounter()
    counter.update(counts(1, 2, 3, 4))
    other = duplicate(counter)
    other.update(counts(1, 2, 3, 4))
    assert counter.close_window().counts.tolist() == [1, 2, 3, 4]
    assert other.close_window().counts.tolist() == [2, 4, 6, 8]
