"""Label noise: as many wrong labels as asked for, the same ones for every method, in the training split alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from as_lightning.benchmark.data.base import corrupt_labels
from as_lightning.benchmark.data.digits import Digits


def digits(label_noise: float = 0.4, **arguments) -> Digits:
    data = Digits(label_noise=label_noise, **arguments)
    data.setup()
    return data


@given(labels=st.lists(st.integers(0, 4), max_size=60), rate=st.floats(0, 1), seed=st.integers(0, 1000))
def test_exactly_the_share_asked_for_gets_another_class(labels, rate, seed):
    targets = torch.tensor(labels, dtype=torch.int64)
    before = targets.clone()
    noisy = corrupt_labels(targets, 5, rate, seed)
    assert int((noisy != targets).sum()) == round(rate * len(labels))
    assert torch.equal(targets, before)
    assert bool(((noisy >= 0) & (noisy < 5)).all())


def test_every_other_class_is_equally_likely():
    noisy = corrupt_labels(torch.full((100_000,), 2), 5, 1.0, seed=0)
    counts = noisy.bincount(minlength=5)
    assert counts[2] == 0
    # 25,000 each, with a standard deviation of 137
    assert (counts[[0, 1, 3, 4]] - 25_000).abs().max() < 600


def test_validation_and_test_keep_their_labels_and_every_split_its_images():
    clean, noisy = digits(0.0), digits()
    for split in ("validation", "test"):
        assert torch.equal(clean.splits[split].targets, noisy.splits[split].targets)
    for split in ("train", "validation", "test"):
        assert torch.equal(clean.splits[split].inputs, noisy.splits[split].inputs)
    changed = clean.splits["train"].targets != noisy.splits["train"].targets
    assert int(changed.sum()) == round(0.4 * 1257)
    assert torch.equal(noisy.true_targets, clean.splits["train"].targets)
    assert clean.true_targets is None


def test_the_corrupted_samples_come_with_the_wrong_and_the_true_label():
    data = digits()
    train = data.splits["train"]
    images, pairs = (torch.cat(part) for part in zip(*data.corrupted_dataloader(), strict=True))
    wrong = train.targets != data.true_targets
    assert torch.equal(images, train.inputs[wrong])
    assert torch.equal(pairs, torch.stack([train.targets, data.true_targets], dim=-1)[wrong])
