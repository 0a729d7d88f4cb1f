"""The embedded digits."""

from __future__ import annotations

import torch

from as_lightning.benchmark.data.digits import Digits


def test_splits_are_disjoint_complete_and_stratified_and_a_batch_is_images_in_the_unit_interval():
    data = Digits(batch_size=16)
    data.setup()
    sizes = {name: len(split) for name, split in data.splits.items()}
    assert sizes == {"train": 1257, "validation": 180, "test": 360}
    images = torch.cat([split.inputs.flatten(1) for split in data.splits.values()])
    assert len(images.unique(dim=0)) == len(images)
    for split in data.splits.values():
        shares = split.targets.bincount() / len(split)
        assert shares.min() > 0.08
        assert shares.max() < 0.12
    images, targets = next(iter(data.train_dataloader()))
    assert (images.shape, images.dtype, targets.dtype) == ((16, 1, 8, 8), torch.float32, torch.int64)
    assert 0.0 <= images.min() < images.max() <= 1.0
    assert data.num_classes == 10
