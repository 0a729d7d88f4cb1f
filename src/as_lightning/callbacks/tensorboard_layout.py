"""The charts that TensorBoard's dashboard *Custom Scalars* opens with."""

from __future__ import annotations

import lightning.pytorch as pl
from lightning.pytorch.loggers import TensorBoardLogger

from as_lightning.callbacks.metric_names import VALIDATION

# Patterns of tags: TensorBoard matches them at the start of a tag. Modules name their losses and scores as they like.
CHARTS = {
    "masked samples / samples": [r"masking/sample_ratio$"],
    "masked classes / classes": [r"masking/class_ratio$"],
    "validation score": [rf"({VALIDATION})[/_](acc|accuracy|f1|f1_micro|span_f1|score|auroc)$"],
    "loss": [r"(?!test).*loss"],
    "margin delta": [r"masking/delta$"],
    "batches per optimizer step": [r"masking/accumulate_grad_batches$"],
    "lead of the target in validation": [r"margin/mean$", r"margin/share_above_delta$"],
}
LAYOUT = {"as-lightning": {title: ["Multiline", tags] for title, tags in CHARTS.items()}}


def write_layout(trainer: pl.Trainer) -> None:
    """Write the layout to each TensorBoard logger of the trainer; TensorBoard merges equal layouts of several runs."""
    if not trainer.is_global_zero:
        return
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_custom_scalars(LAYOUT)
