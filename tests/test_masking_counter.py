"""The counter adds up one batch, and knows what its loss divides by."""

import pytest
import torch

from as_lightning import MaskingCounter
from as_lightning.functional import MaskingCounts

COUNTS = MaskingCounts(*torch.tensor([1, 4, 5, 12]))


def test_nothing_is_counted_between_batches():
    counter = MaskingCounter()
    counter.update(COUNTS)
    counter.pause()
    counter.update(COUNTS)
    assert counter.counts is not None
    assert counter.counts.tolist() == [1, 4, 5, 12]
    counter.begin_batch()
    assert counter.counts is None
    assert counter.denominator is None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([None], 4.0),
        ([2.5], 2.5),
        ([None, 4.0], 4.0),
        ([torch.nan], torch.nan),
        ([2.0, 3.0], torch.nan),
        ([2.0, torch.nan, 2.0], torch.nan),
    ],
)
def test_the_denominator_is_that_of_all_losses_or_not_a_number(reported, expected):
    counter = MaskingCounter()
    for denominator in reported:
        counter.update(COUNTS, None if denominator is None else torch.tensor(denominator))
    assert counter.denominator is not None
    torch.testing.assert_close(
        counter.denominator.double(), torch.tensor(expected).double(), equal_nan=True
    )


def test_counts_outlive_a_graph_that_writes_the_next_batch_over_its_outputs():
    counter = MaskingCounter()
    counter.update(COUNTS)
    output_of_the_graph = counter.counts
    counter.pause()
    output_of_the_graph.zero_()
    assert counter.counts.tolist() == [1, 4, 5, 12]
