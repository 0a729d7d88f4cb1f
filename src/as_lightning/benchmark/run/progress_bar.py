"""The progress bar of a run: with the share of masked samples and the validation score."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import RichProgressBar


class RunProgressBar(RichProgressBar):
    """Lightning's bar, which also shows ``masked`` (of the latest step that was logged) and the latest score.

    Args:
        monitor: the name under which the score is logged, ``val/accuracy``.
        **settings: of :class:`lightning.pytorch.callbacks.RichProgressBar`.
    """

    def __init__(self, monitor: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.monitor = monitor

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        metrics = {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}
        logged = trainer.callback_metrics
        if "masking/sample_ratio" in logged:
            metrics["masked"] = f"{100 * float(logged['masking/sample_ratio']):.0f}%"
        if self.monitor in logged:
            metrics[self.monitor] = f"{float(logged[self.monitor]):.4f}"
        return metrics
