"""What is measured of a trained module: its test metrics, and the wrong training labels that it has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from as_lightning.benchmark.data.base import BenchmarkDataModule


class CheckpointWeights(pl.Callback):
    """Test the `state_dict` of the checkpoint, in whose place callbacks of the fit, as of EMA, may have put weights."""

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        trainer.strategy.load_model_state_dict(checkpoint, strict=pl_module.strict_loading)


def metrics_of_test(
    trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule, checkpoint: str | Path | None = None
) -> dict[str, float]:
    """What the test of a checkpoint (or of the module's own weights) logs, with the callbacks of `trainer`."""
    weights = CheckpointWeights()
    trainer.callbacks.append(weights)  # type: ignore[attr-defined]  # the last one: its weights hold
    try:
        tested = trainer.test(module, datamodule=data, ckpt_path=checkpoint or None, verbose=False)
    finally:
        trainer.callbacks.remove(weights)  # type: ignore[attr-defined]
    return {name: float(value) for metrics in tested for name, value in metrics.items()}


def memorisation(trainer: pl.Trainer, module: pl.LightningModule, data: BenchmarkDataModule) -> dict[str, float]:
    """The shares of the training samples with a wrong label that `predict_step` gives the wrong label (`memorised`)
    and the true one (`recovered`); nothing where no label is wrong. Several processes all get the same numbers.
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
