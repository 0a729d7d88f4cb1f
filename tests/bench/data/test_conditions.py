"""A long tail, few samples and wrong labels: as asked for, in the training split alone."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch import seed_everything

from as_lightning.bench.data.conditions import Conditions, long_tail_sizes
from as_lightning.bench.data.digits import Digits


@pytest.mark.parametrize("kind", ["uniform", "pairs"])
@given(
    labels=st.lists(st.integers(0, 4), max_size=60), rate=st.floats(0, 1), seed=st.integers(0, 1000)
)
def test_exactly_the_share_asked_for_gets_another_class(kind, labels, rate, seed):
    targets = torch.tensor(labels, dtype=torch.int64)
    noisy = Conditions(rate, kind, draw_seed=seed).noisy(targets, 5)
    changed = noisy != targets
    assert int(changed.sum()) == round(rate * len(labels))
    assert targets.tolist() == labels
    assert bool(((noisy >= 0) & (noisy < 5)).all())
    assert kind == "uniform" or torch.equal(noisy[changed], (targets[changed] + 1) % 5)


def test_every_other_class_is_equally_likely():
    noisy = Conditions(1.0, draw_seed=0).noisy(torch.full((100_000,), 2), 5)
    counts = noisy.bincount(minlength=5)
    assert counts[2] == 0
    assert (counts[[0, 1, 3, 4]] - 25_000).abs().max() < 600  # their standard deviation is 137


def digits(seed: int = 0, **arguments: Any) -> Digits:
    seed_everything(seed, verbose=False)
    data = Digits(**arguments)
    data.setup()
    return data


def labelled(data: Digits) -> list[tuple[bytes, int]]:
    """Each training image, all of which differ, with its label."""
    train = data.splits["train"]
    return [
        (image.numpy().tobytes(), int(label))
        for image, label in zip(train.inputs, train.targets, strict=True)
    ]


@pytest.mark.parametrize(
    ("condition", "by_seed"),
    [
        ({"label_noise": 0.4}, True),
        ({"label_noise": 0.4, "label_noise_kind": "pairs"}, True),
        ({"label_noise": 0.4, "draw_seed": 3}, False),
        ({"shots": 7}, True),
        ({"shots": 7, "draw_seed": 3}, False),
        ({"imbalance": 20}, True),
        ({"imbalance": 20, "draw_seed": 3}, False),
        ({"imbalance": 20, "label_noise": 0.4}, True),
    ],
)
def test_a_condition_changes_the_training_split_alone_by_the_seed(condition, by_seed):
    clean, data = digits(), digits(**condition)
    for split in ("validation", "test"):
        assert torch.equal(clean.splits[split].targets, data.splits[split].targets)
        assert torch.equal(clean.splits[split].inputs, data.splits[split].inputs)
    found, labels = labelled(data), dict(labelled(clean))
    assert found == labelled(digits(**condition))
    assert (found != labelled(digits(1, **condition))) == by_seed
    kept = [image for image, _ in found]
    assert kept == [image for image in labels if image in set(kept)]  # in the order that they had
    names = dict(zip(clean.example_names("train"), labels, strict=True))
    assert kept == [names[name] for name in data.example_names("train")]
    wrong = [label != labels[image] for image, label in found]
    assert sum(wrong) == round(condition.get("label_noise", 0.0) * len(found))
    assert data.class_counts.tolist() == [
        [label for _, label in found].count(number) for number in range(10)
    ]
    assert "shots" not in condition or data.class_counts.unique().tolist() == [condition["shots"]]


def test_a_long_tail_of_balanced_classes_has_the_sizes_of_its_source():
    # CIFAR-10-LT with an imbalance of 100, as published
    expected = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    generators = [torch.Generator().manual_seed(seed) for seed in range(5)]
    found = [long_tail_sizes(torch.full((10,), 5000), 100, generator) for generator in generators]
    assert all(sorted(sizes.tolist(), reverse=True) == expected for sizes in found)
    assert len({int(sizes.argmin()) for sizes in found}) > 1  # which class is rare follows the seed
    small = torch.tensor([5000, *[60] * 9])  # a class keeps what it has
    assert {int(long_tail_sizes(small, 100, generator)[1:].max()) for generator in generators} == {
        60
    }
