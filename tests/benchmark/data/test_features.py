"""Feature vectors from a file: what is read, and which files are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from harness.configured_encoder import configured_encoder

from as_lightning.benchmark.data.features import Features

SIZES = {"train": 12, "validation": 4, "test": 6}


def arrays(**replaced) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    made = {f"{split}_inputs": random.normal(size=(size, 5)).astype(np.float16) for split, size in SIZES.items()}
    made |= {f"{split}_labels": np.array(["dog", "cat"])[np.arange(size) % 2] for split, size in SIZES.items()}
    return {name: values for name, values in (made | replaced).items() if values is not None}


def read(path, **replaced) -> Features:
    np.savez(path / "features.npz", **arrays(**replaced))
    data = Features("features.npz", data_dir=path)
    data.setup()
    return data


@pytest.mark.parametrize("names", [["cat", "dog"], [3, 7]])
def test_vectors_come_as_they_are_and_labels_are_numbered_in_their_order(tmp_path, names):
    labels = {f"{split}_labels": np.array(names[::-1])[np.arange(size) % 2] for split, size in SIZES.items()}
    data = read(tmp_path, **labels)
    assert data.class_names == list(map(str, names))
    assert data.input_spec == {"in_features": 5}
    for split, size in SIZES.items():
        expected = torch.from_numpy(arrays()[f"{split}_inputs"]).float()
        torch.testing.assert_close(data.splits[split].inputs, expected, rtol=0, atol=0)
        assert data.splits[split].targets.tolist() == [1, 0] * (size // 2)


def test_without_hidden_layers_the_head_sees_the_vectors_themselves(tmp_path):
    data = read(tmp_path)
    vectors = data.splits["train"].inputs
    encoder = configured_encoder("mlp", widths=[], **data.input_spec)
    assert encoder(vectors) is vectors
    assert encoder.out_features == 5
    assert configured_encoder("mlp", widths=[7], **data.input_spec)(vectors).shape == (12, 7)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"test_labels": None}, "expected an .npz with the arrays train_inputs, .* test_labels"),
        ({"train_labels": np.array([{}] * 12)}, "expected an .npz with the arrays .*allow_pickle"),
        ({"test_inputs": np.ones((6, 4))}, r"expected test_inputs \(N, d\).* got \(6, 4\) and \(6,\)"),
        ({"train_labels": np.ones(11)}, r"expected train_inputs \(N, d\).* got \(12, 5\) and \(11,\)"),
        ({"train_labels": np.ones((12, 2))}, r"got \(12, 5\) and \(12, 2\)"),
        ({"test_inputs": np.full((6, 5), np.nan)}, "6 rows of test_inputs hold NaN or infinity"),
        ({"test_labels": np.array(["emu"] * 6)}, "the test split has classes that the train split lacks: emu"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_what_is_wrong(tmp_path, replaced, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, **replaced)
