"""Feature vectors from a file: what is read, and what the head sees of it."""

import numpy as np
import pytest
import torch
from harness.configured_encoder import configured_encoder

from as_lightning.benchmark.data.features import Features

SIZES = {"train": 12, "validation": 4, "test": 6}


@pytest.mark.parametrize("names", [["cat", "dog"], [3, 7]])
def test_vectors_come_as_they_are_and_labels_are_numbered_in_their_order(tmp_path, names):
    inputs = {
        split: np.random.default_rng(0).normal(size=(size, 5)).astype(np.float16) for split, size in SIZES.items()
    }
    arrays = {f"{split}_inputs": values for split, values in inputs.items()}
    arrays |= {f"{split}_labels": np.array(names[::-1] * (size // 2)) for split, size in SIZES.items()}
    np.savez(tmp_path / "features.npz", **arrays)
    data = Features("features.npz", data_dir=tmp_path)
    data.setup()
    assert data.class_names == list(map(str, names))
    assert data.input_spec == {"in_features": 5}
    for split, size in SIZES.items():
        assert torch.equal(data.splits[split].inputs, torch.from_numpy(inputs[split]).float())
        assert data.splits[split].targets.tolist() == [1, 0] * (size // 2)
    vectors = data.splits["train"].inputs
    without_hidden_layers = configured_encoder("mlp", widths=[], **data.input_spec)
    assert without_hidden_layers(vectors) is vectors
    assert without_hidden_layers.out_features == 5
    assert configured_encoder("mlp", widths=[7], **data.input_spec)(vectors).shape == (12, 7)
