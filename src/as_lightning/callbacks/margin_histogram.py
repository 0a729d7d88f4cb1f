"""How far the target leads in validation: a histogram of the margin."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.callbacks.evaluation_logits import Logits, ValidationCallback
from as_lightning.callbacks.window import sum_over_ranks
from as_lightning.functional.argument_checks import check_count
from as_lightning.functional.calling_convention import in_float64
from as_lightning.functional.leads import target_leads
from as_lightning.losses import MaskedLoss


class MarginHistogram(ValidationCallback):
    r"""Log at the end of each validation how far the target leads its strongest competitor.

    The lead $p_t - \max_{i \ne t} p_i$ in [-1, 1]: above 0 the prediction is right, above ``delta``
    AS-Softmax masks the sample. Every logger gets ``margin/mean`` and ``margin/share_above_delta``,
    the share of samples whose lead is above the margin of the mixin or of the module's
    `ASSoftmaxLoss`, where that is below 1. A ``TensorBoardLogger`` gets the histogram
    ``margin/validation``. Of several validation loaders the first one is taken. A lead that is NaN
    is in no bin, and makes the mean NaN.

    Args:
        logits: called as ``logits(pl_module, batch)``, returns logits and target; without it they
            are found as `TemperatureScaling` finds them.
        bins: how many intervals of equal length [-1, 1] is cut into.
        ignore_index: target value of rows, or of single labels, that take no part.

    Attributes:
        counts: of the last validation, samples per bin, ``int64`` of shape ``(bins,)``; None before
            the first.

    Raises:
        ValueError, TypeError: if ``bins`` is no integer from 1 on.
        MisconfigurationException: as `TemperatureScaling`, and for logits of one class.

    Examples:
        >>> quiet = {"logger": False, "enable_checkpointing": False}
        >>> trainer = Trainer(callbacks=[MarginHistogram()], **quiet)
    """

    def __init__(self, logits: Logits = None, bins: int = 40, ignore_index: int = -100) -> None:
        super().__init__(logits, ignore_index)
        self.bins = check_count("bins", bins, least=1)
        self._reset()

    def _reset(self) -> None:
        self.counts: Tensor | None = None
        # counts per bin, then sums: leads, their squares, samples, those above delta
        self._sums = torch.zeros(self.bins + 4, dtype=torch.float64)
        self._delta = 1.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and trainer.global_step == 0:  # not the continuation of an earlier fit
            self._reset()

    def _begin_validation(self, pl_module: LightningModule) -> None:
        self._sums = torch.zeros(self.bins + 4, dtype=torch.float64)
        self._delta = _delta(pl_module)

    def _add_batch(self, pl_module: LightningModule, batch: Any) -> None:
        logits, target, _ = self.source.of(pl_module, batch)
        if logits.dim() < 2 or logits.size(-1) < 2:
            raise MisconfigurationException(
                "MarginHistogram: a target leads another class, so logits must have shape (..., C) "
                f"with C of at least 2, got {tuple(logits.shape)}"
            )
        rows, target = logits.flatten(0, -2), target.flatten(0, logits.dim() - 2)  # of tokens too
        leads = in_float64(target_leads(rows, target, self.ignore_index))
        above = leads > self._delta
        moments = torch.stack(
            [leads.sum(), leads.square().sum(), leads.new_tensor(len(leads)), above.sum().double()]
        )
        # torch.bincount waits for the device, and torch.histc is not deterministic on a GPU
        index = ((leads + 1.0) * (self.bins / 2)).long().clamp(0, self.bins - 1)
        counts = leads.new_zeros(self.bins).scatter_add_(0, index, (~leads.isnan()).double())
        self._sums = self._sums.to(leads.device) + torch.cat([counts, moments])

    def _finish_validation(self, trainer: Trainer, pl_module: LightningModule) -> None:
        sums = sum_over_ranks(trainer, self._sums).cpu()
        self.counts = sums[: self.bins].long()
        total, squares, samples, above = sums[self.bins :].tolist()
        if not samples:
            return
        metrics = {"margin/mean": total / samples}
        if self._delta < 1.0:
            metrics["margin/share_above_delta"] = above / samples
        # they are sums over the ranks already
        pl_module.log_dict(metrics, sync_dist=False, batch_size=1)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):  # it writes on the first rank alone
                logger.experiment.add_histogram_raw(
                    "margin/validation",
                    min=-1.0,
                    max=1.0,
                    num=int(samples),
                    sum=total,
                    sum_squares=squares,
                    bucket_limits=torch.linspace(-1.0, 1.0, self.bins + 1)[1:].tolist(),
                    bucket_counts=self.counts.tolist(),
                    global_step=trainer.global_step,
                )


def _delta(pl_module: LightningModule) -> float:
    """Return the margin of the module's masked losses, 1 (which no lead exceeds) without one."""
    deltas = {loss.delta for loss in pl_module.modules() if isinstance(loss, MaskedLoss)}
    shared = deltas.pop() if len(deltas) == 1 else 1.0
    return float(getattr(pl_module, "as_softmax_delta", shared))
