"""Label noise: how many of the wrong training labels a model has learned by heart."""

from __future__ import annotations

import lightning.pytorch as pl
import torch

from as_lightning.data.base import BenchmarkDataModule


def memorisation(trainer: pl.Trainer, module: pl.LightningModule, data: BenchmarkDataModule) -> dict[str, float]:
    """What the trained module says of the training samples whose label is wrong.

    Args:
        trainer: that has trained the module.
        module: whose ``predict_step`` gives class indices.
        data: with label noise, set up.

    Returns:
        ``memorised``: the share of them to which the module gives the wrong label that it was trained with;
        ``recovered``: the share to which it gives the true one; both in [0, 1], at the weights of training's end.
        Of several processes each asks for its own part of the samples.
    """
    loader = data.corrupted_dataloader()
    predicted = trainer.predict(module, dataloaders=loader)
    assert predicted is not None
    wrong, true = torch.cat([pairs for _, pairs in loader]).unbind(-1)
    classes = torch.cat([part for part in predicted if isinstance(part, torch.Tensor)]).cpu()
    return {
        "memorised": float((classes == wrong).double().mean()),
        "recovered": float((classes == true).double().mean()),
    }
