"""What sets a run apart, and its score, for the loggers: TensorBoard's tab *HParams* is a table of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from as_lightning.benchmark.run.settings import foreign_settings

NO_MARGIN = 1.0  # with margin 1 nothing is masked: plain cross-entropy


def run_settings(config: DictConfig) -> dict[str, Any]:
    """Budget, margin, learning rate, method and seed of a run, and all else that may differ as one text.

    These are the five columns that TensorBoard shows of a longer table. The margin is 1 for a method that has none:
    AS-Softmax with margin 1 is plain cross-entropy. The budget is 1 for a run that is no part of a comparison.
    """
    ignored = {"name", "targets", "delta", *foreign_settings(config.method)}
    knobs = {
        str(key): value
        for key, value in config.method.items()
        if isinstance(value, (int, float, str)) and not str(key).startswith("_") and key not in ignored
    }
    others = {"experiment": config.name, "batch_size": config.data.get("batch_size")}
    others |= {"max_epochs": config.trainer.max_epochs, **knobs}
    budget = OmegaConf.select(config, "comparison.budget")
    return {
        "budget": 1.0 if budget is None else float(budget),
        "delta": float(config.method.get("delta", NO_MARGIN)),
        "lr": float(config.optimizer.lr),
        "method": config.method.name,
        "seed": config.seed,
        "settings": ", ".join(f"{name} {value}" for name, value in others.items() if value is not None),
    }


@rank_zero_only
def log_settings(loggers: Sequence[Logger], settings: Mapping[str, Any], scores: Mapping[str, float]) -> None:
    """Hand the settings to every logger, TensorBoard with the scores that its table shows beside them."""
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(dict(settings), {f"hparams/{name}": value for name, value in scores.items()})
        else:
            logger.log_hyperparams(dict(settings))
        logger.finalize("success")
