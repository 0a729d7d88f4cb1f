"""The masking rate and the loss-accuracy correlation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from harness.normal_floats import floats
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from as_lightning import LossAccuracyCorrelation, MaskingRate
from as_lightning.functional import MaskingCounts


def counts(*values: int) -> MaskingCounts:
    return MaskingCounts(*torch.tensor(values))


@pytest.mark.parametrize(("level", "expected"), [("sample", 3 / 40), ("class", 50 / 360)])
def test_rate_is_the_ratio_of_sums_and_not_the_mean_of_ratios(level, expected):
    rate = MaskingRate(level)
    rate.update(counts(3, 10, 40, 90))
    rate.update(counts(0, 30, 10, 270))
    assert rate.compute().item() == pytest.approx(expected)


def test_rate_before_any_sample_is_zero():
    rate = MaskingRate()
    rate.update(counts(0, 0, 0, 0))
    assert rate.compute() == 0


@given(
    st.lists(
        st.tuples(floats(0, 10), floats(0, 1)), min_size=3, max_size=20, unique_by=(lambda p: p[0], lambda p: p[1])
    )
)
def test_correlation_equals_scipys_pearson(evaluations):
    losses, accuracies = np.array(evaluations).T
    if min(losses.std(), accuracies.std()) < 1e-3:
        return  # too close to constant for the two roundings to agree
    correlation = LossAccuracyCorrelation()
    for loss, accuracy in evaluations:
        correlation.update(torch.tensor(loss), accuracy)
    assert correlation.compute().item() == pytest.approx(stats.pearsonr(losses, accuracies).statistic, abs=1e-6)


@pytest.mark.parametrize("evaluations", [[], [(1.0, 0.5)], [(1.0, 0.5), (1.0, 0.6)], [(1.0, 0.5), (0.8, 0.5)]])
def test_correlation_is_nan_where_it_is_not_defined(evaluations):
    correlation = LossAccuracyCorrelation()
    for loss, accuracy in evaluations:
        correlation.update(loss, accuracy)
    assert correlation.compute().isnan()
