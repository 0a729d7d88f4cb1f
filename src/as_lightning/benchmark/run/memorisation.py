"""Label noise: how many of the wrong training labels a model has learned by heart."""

from __future__ import annotations

import lightning.pytorch as pl
import torch

from as_lightning.benchmark.data.base import BenchmarkDataModule


def memorisation(trainer: pl.Trainer, module: pl.LightningModule, data: BenchmarkDataModule) -> dict[str, float]:
    """What the trained module says of the training samples whose label is wrong.

    Args:
        trainer: that has trained the module.
        module: whose ``predict_step`` gives class indices.
        data: with label noise, set up.

    Returns:
        ``memorised``: the share of them to which the module gives the wrong label that it was trained with;
        ``recovered``: the share to which it gives the true one; both in [0, 1], at the weights of training's end.
        Nothing where the noise is so little that no label is wrong.
        Several processes share the samples, and all get the same numbers.
    """
    loader = data.corrupted_dataloader()
    if not len(loader):
        return {}
    predicted = trainer.predict(module, dataloaders=loader)
    assert predicted is not None
    pairs = torch.cat([pairs for _, pairs in loader])
    # Lightning deals the samples out to the ranks in turn
    wrong, true = pairs[trainer.global_rank :: trainer.world_size].unbind(-1)
    classes = torch.cat([part for part in predicted if isinstance(part, torch.Tensor)]).cpu()
    counts = torch.stack([(classes == wrong).sum(), (classes == true).sum()]).to(trainer.strategy.root_device)
    memorised, recovered = trainer.strategy.reduce(counts, reduce_op="sum").tolist()
    return {"memorised": memorised / len(pairs), "recovered": recovered / len(pairs)}
