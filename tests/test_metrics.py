"""The masking rate."""

import pytest
import torch
from torchmetrics import MetricCollection

from as_lightning.functional import MaskingCounts
from as_lightning.metrics import MaskingRate


def counts(*values):
    return MaskingCounts(*torch.tensor(values))


@pytest.mark.parametrize(("level", "expected"), [("sample", 3 / 40), ("class", 50 / 360)])
def test_rate_is_the_ratio_of_sums_and_not_the_mean_of_ratios(level, expected):
    rate = MaskingRate(level)
    rate.update(counts(3, 10, 40, 90))
    rate.update(counts(0, 30, 10, 270))
    assert rate.compute().item() == pytest.approx(expected)


def test_rates_of_both_levels_in_one_collection_are_those_of_either_alone():
    both = MetricCollection({level: MaskingRate(level) for level in ("sample", "class")})
    both.update(counts(0, 0, 0, 0))  # after which the states are equal, and a collection keeps one
    both.update(counts(3, 10, 40, 90))
    assert {name: value.item() for name, value in both.compute().items()} == pytest.approx(
        {"sample": 3 / 10, "class": 40 / 90}
    )


def test_rate_before_any_sample_is_zero():
    rate = MaskingRate()
    rate.update(counts(0, 0, 0, 0))
    assert rate.compute() == 0
