"""What adaptive accumulation cannot work with, refused when ``fit`` starts."""

from __future__ import annotations

import lightning.pytorch as pl
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch.nn.modules.batchnorm import _BatchNorm

from as_lightning.callbacks.window import masking_counter


def refuse_trainer(
    trainer: pl.Trainer, pl_module: pl.LightningModule, callback: pl.Callback, kind: type[pl.Callback]
) -> None:
    """Raise unless ``callback``, one of its ``kind``, alone decides ``accumulate_grad_batches``, starting from 1."""
    name = type(callback).__name__
    if trainer.strategy.handles_gradient_accumulation:
        raise MisconfigurationException(
            f"{name} cannot change the accumulation of {type(trainer.strategy).__name__}, which (as DeepSpeed does) "
            "fixes it at the start and accumulates by itself. Use strategy='ddp' or 'fsdp', or remove the callback."
        )
    if trainer.accumulate_grad_batches != 1:
        raise MisconfigurationException(
            f"{name} sets the trainer's accumulate_grad_batches and starts from 1, got "
            f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}). Remove that argument, or the "
            "callback."
        )
    rivals = (kind, GradientAccumulationScheduler, StochasticWeightAveraging)
    for other in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(other, StochasticWeightAveraging) and not _has_batch_norm(pl_module):
            continue  # it sets the accumulation only to renew batch-norm statistics
        if other is not callback and isinstance(other, rivals):
            raise MisconfigurationException(
                f"{name} and {type(other).__name__} both set the trainer's accumulate_grad_batches: remove one of the "
                "two callbacks."
            )


def refuse_module(pl_module: pl.LightningModule, callback: pl.Callback) -> None:
    """Raise unless Lightning takes the steps, passes the batch index, and the module counts its masking."""
    name, module_name = type(callback).__name__, type(pl_module).__name__
    if not pl_module.automatic_optimization:
        raise MisconfigurationException(
            f"{name} needs automatic optimization, but {module_name}.automatic_optimization is False: a manual "
            "training_step decides itself when to step. Set it to True, or remove the callback and call "
            "as_lightning.functional.accumulation_steps in training_step."
        )
    if is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True):
        raise MisconfigurationException(
            f"{name} needs to know which batch comes, but {module_name}.training_step takes a dataloader_iter: take "
            "(batch, batch_idx), or remove the callback."
        )
    masking_counter(pl_module, callback)


def _has_batch_norm(pl_module: pl.LightningModule) -> bool:
    return any(isinstance(module, _BatchNorm) for module in pl_module.modules())
