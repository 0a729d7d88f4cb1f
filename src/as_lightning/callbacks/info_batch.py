"""InfoBatch, a published way of skipping samples: a control for the skipping of masked ones."""

from __future__ import annotations

import functools
from operator import attrgetter
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.callbacks.sample_skipping import SampleSkipping
from as_lightning.callbacks.sleep_plan import check_share
from as_lightning.callbacks.stand_in import StandIn
from as_lightning.functional.argument_checks import check_seed


class InfoBatch(SampleSkipping):
    r"""Prune part of the samples whose last loss lies below the mean, and give the others of them more weight.

    With the last loss :math:`\ell_i` of each sample, and :math:`\bar\ell` the mean over the samples, each epoch leaves
    out a share :math:`r` of the samples with :math:`\ell_i < \bar\ell`, drawn at random. The losses of the rest of
    them count :math:`1 / (1 - r)`, so that the expected gradient is that of all data. The last epochs take all data,
    each with weight 1. The batch's loss is the mean of the weighted losses; samples whose target is the criterion's
    ``ignore_index`` take no part in any mean.

    Args:
        prune_ratio: the share :math:`r` of the samples below the mean that is left out, in [0, 1).
        full_epochs: how many epochs at the start and at the end take all samples: counts (``int``), or shares of
            ``Trainer(max_epochs)`` (``float``).
        criterion: the module's attribute that ``training_step`` calls as the loss (dots reach into submodules): an
            ``nn.Module`` with ``reduction="mean"`` of one loss per sample. While ``fit`` runs it computes the losses
            with reduction ``"none"``, and the callback takes the mean.
        seed: of the random choice.
        lr_pace: see :class:`~as_lightning.callbacks.sample_skipping.SampleSkipping`.
        refresh_batch_norm: see there.

    Attributes:
        history: a :class:`~as_lightning.callbacks.SkippingEpoch` for each epoch that has ended.

    Raises:
        ValueError: if ``prune_ratio`` lies outside [0, 1).
        TypeError: if an argument is of another type.
        MisconfigurationException: in ``fit``, if the module has no such criterion, or it gives no loss for each sample.

    Source: Qin et al., "InfoBatch: Lossless Training Speed Up by Unbiased Dynamic Data Pruning", ICLR 2024, section 3
    (r = 0.5, the last 12.5% of the epochs on all data).

    Example:
        >>> import lightning.pytorch as pl
        >>> trainer = pl.Trainer(callbacks=[InfoBatch()], max_epochs=8, logger=False, enable_checkpointing=False)
    """

    found_dtype = torch.float32
    not_visited = -torch.inf

    def __init__(
        self,
        prune_ratio: float = 0.5,
        full_epochs: tuple[float, float] = (1, 0.125),
        *,
        criterion: str = "criterion",
        seed: int = 0,
        lr_pace: Literal["data", "steps"] = "data",
        refresh_batch_norm: bool = False,
    ) -> None:
        super().__init__(full_epochs, lr_pace=lr_pace, refresh_batch_norm=refresh_batch_norm)
        if check_share("prune_ratio", prune_ratio) == 1:
            raise ValueError("prune_ratio must be below 1: of the samples below the mean loss some must be left")
        if not isinstance(criterion, str):
            raise TypeError(f"criterion must be the name of an attribute of the module, got {criterion!r}")
        self.prune_ratio, self.criterion, self.seed = prune_ratio, criterion, check_seed(seed)
        self._installed: StandIn | None = None  # in the place of the criterion's forward
        self._losses_of_batch: Tensor | None = None

    def begin(self, loader: NumberedLoader) -> None:
        samples = len(loader.loader.dataset)  # type: ignore[arg-type]
        self._losses = torch.full((samples,), torch.nan)  # a sample that was never visited is above any mean
        self._awake = torch.ones(samples, dtype=torch.bool)
        self._weights = torch.ones(samples)

    def awake(self) -> Tensor:
        return self._awake

    def end_epoch(self, found: Tensor, *, may_skip: bool) -> dict[str, int]:
        self._losses = torch.where(found > self.not_visited, found, self._losses)
        self._awake, self._weights = torch.ones_like(self._awake), torch.ones_like(self._weights)
        if may_skip:
            below = (self._losses < self._losses.nanmean()).nonzero().squeeze(-1)
            generator = torch.Generator().manual_seed(self.seed + len(self.history))
            drawn = below[torch.randperm(len(below), generator=generator)]
            self._awake[drawn[: int(self.prune_ratio * len(below))]] = False
            self._weights[below] = 1 / (1 - self.prune_ratio)
        return {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        try:
            criterion = attrgetter(self.criterion)(pl_module)
        except AttributeError:
            criterion = None
        if not isinstance(criterion, nn.Module) or getattr(criterion, "reduction", None) != "mean":
            raise MisconfigurationException(
                f"InfoBatch(criterion={self.criterion!r}) must name an nn.Module of {type(pl_module).__name__} that "
                'training_step calls as the loss, with reduction="mean" (such as nn.CrossEntropyLoss), got '
                f"{criterion!r}."
            )
        if getattr(criterion, "weight", None) is not None:
            raise MisconfigurationException(
                "InfoBatch weighs samples itself, and the mean of a criterion with class weights is another: drop the "
                "criterion's weight, or remove the callback."
            )
        self._installed = StandIn(criterion, "forward", functools.partial(self._weighted_mean, criterion))

    def _weighted_mean(self, criterion: Any, forward: Any, *args: Any, **kwargs: Any) -> Tensor:
        numbers = self._numbers
        if numbers is None:  # validation
            return forward(*args, **kwargs)
        criterion.reduction = "none"
        try:
            losses = forward(*args, **kwargs)
        finally:
            criterion.reduction = "mean"
        if losses.shape != (len(numbers),):
            raise MisconfigurationException(
                f"InfoBatch needs one loss for each sample, of shape ({len(numbers)},), got {tuple(losses.shape)}: it "
                "is for data with one class for each sample."
            )
        target = kwargs["target"] if "target" in kwargs else args[1]
        ignored = target == getattr(criterion, "ignore_index", None)
        known = ~ignored if isinstance(ignored, Tensor) and ignored.shape == losses.shape else torch.ones_like(losses)
        self._losses_of_batch = losses.detach().where(known.bool(), self.not_visited)
        return (losses * self._weights[torch.tensor(numbers)].to(losses)).sum() / known.sum()

    def found_in_batch(self, pl_module: pl.LightningModule, samples: int, outputs: Any) -> Tensor | None:
        losses, self._losses_of_batch = self._losses_of_batch, None
        return losses

    def _release_criterion(self) -> None:
        if self._installed is not None:
            self._installed.remove()
        self._installed = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_installed": None}

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        self._release_criterion()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception)
        self._release_criterion()

    def plan_state(self) -> dict[str, Any]:
        return {"losses": self._losses, "awake": self._awake, "weights": self._weights}

    def load_plan_state(self, state_dict: dict[str, Any]) -> None:
        self._losses, self._awake = state_dict["losses"].clone(), state_dict["awake"].clone()
        self._weights = state_dict["weights"].clone()
