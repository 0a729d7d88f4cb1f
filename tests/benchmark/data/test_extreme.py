"""Synthetic data of many classes: sizes, the law of their frequencies, and what they depend on."""

from __future__ import annotations

import pytest
import torch

from as_lightning.benchmark.data.extreme import Extreme

SMALL = {"batch_size": 256, "classes": 50, "features": 8, "train_samples": 20_000, "evaluation_samples": 500}


def extreme(**arguments) -> Extreme:
    data = Extreme(**(SMALL | arguments))
    data.setup()
    return data


def test_splits_have_the_sizes_and_shapes_asked_for():
    data = extreme()
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [20_000, 500, 500]
    inputs, targets = data.splits["train"].inputs, data.splits["train"].targets
    assert (inputs.shape, inputs.dtype, targets.dtype) == ((20_000, 8), torch.float32, torch.int64)
    assert data.num_classes == 50
    assert data.input_spec == {"in_features": 8}


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_frequencies_follow_zipfs_law(exponent):
    counts = extreme(exponent=exponent).splits["train"].targets.bincount(minlength=50).double()
    expected = torch.arange(1, 51).double().pow(-exponent)
    expected *= 20_000 / expected.sum()
    # Pearson's chi-square with 49 degrees of freedom exceeds 85.4 once in a thousand
    assert float(((counts - expected) ** 2 / expected).sum()) < 85.4


def test_without_noise_a_class_is_one_vector_in_all_splits():
    data = extreme(noise=0.0)
    inputs = torch.cat([data.splits[split].inputs for split in data.splits])
    targets = torch.cat([data.splits[split].targets for split in data.splits])
    assert len(inputs.unique(dim=0)) == len(targets.unique())
