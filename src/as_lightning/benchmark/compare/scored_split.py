"""The test split of a user's module: what its test steps log, in all dataloaders."""

from __future__ import annotations

import lightning.pytorch as pl


def metrics_of_test(
    trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule, checkpoint: str | None = None
) -> dict[str, float]:
    """The test metrics of all dataloaders. If there are several, Lightning adds the dataloader's number to the names.

    Args:
        trainer: that has trained the module.
        module: to test.
        data: with the test split.
        checkpoint: the weights to test; by default those that the module has.
    """
    tested = trainer.test(module, datamodule=data, ckpt_path=checkpoint, verbose=False)
    return {name: value for metrics in tested for name, value in metrics.items()}
