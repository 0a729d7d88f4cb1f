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
    counter.resume()
    counter.update(COUNTS)
    assert counter.counts.tolist() == [2, 8, 10, 24]
    counter.begin_batch()
    assert counter.counts is None
    assert counter.denominator is None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (["samples"], 4.0),
        ([1.0], 1.0),
        ([torch.tensor(2.5)], 2.5),
        (["samples", torch.tensor(4.0)], 4.0),
        ([None], torch.nan),
        ([2.0, 3.0], torch.nan),
        ([2.0, None, 2.0], torch.nan),
    ],
)
def test_the_denominator_is_that_of_all_losses_or_not_a_number(reported, expected):
    counter = MaskingCounter()
    for denominator in reported:
        counter.update(COUNTS, denominator)
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
