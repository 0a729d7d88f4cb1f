"""Leaves out samples at random: the control that every other way of skipping has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor

from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.callbacks.sample_skipping import SampleSkipping
from as_lightning.callbacks.sleep_plan import check_share
from as_lightning.functional.argument_checks import check_seed


class RandomSkipping(SampleSkipping):
    """Leave out as many samples in each epoch as given, drawn at random anew each time.

    Give it the ``masking/awake_ratio`` of another run's epochs, and it visits as many samples as that run did.

    Args:
        awake_ratios: the share of the samples that each epoch takes, in (0, 1]; the last one holds for all later
            epochs. The first epoch takes all in any case.
        seed: of the random choice.
        lr_pace: see :class:`~as_lightning.callbacks.sample_skipping.SampleSkipping`.
        refresh_batch_norm: see there.

    Attributes:
        history: a :class:`~as_lightning.callbacks.SkippingEpoch` for each epoch that has ended.

    Raises:
        ValueError: if there is no ratio, or one lies outside (0, 1].
        TypeError: if an argument is of another type.

    Source: Okanovic et al., "Repeated Random Sampling for Minimizing the Time-to-Accuracy of Learning", ICLR 2024.

    Example:
        >>> import lightning.pytorch as pl
        >>> control = RandomSkipping(awake_ratios=[1.0, 0.6, 0.4])
        >>> trainer = pl.Trainer(callbacks=[control], logger=False, enable_checkpointing=False)
    """

    def __init__(
        self,
        awake_ratios: Sequence[float],
        *,
        seed: int = 0,
        lr_pace: Literal["data", "steps"] = "data",
        refresh_batch_norm: bool = False,
    ) -> None:
        super().__init__(full_epochs=(0, 0), lr_pace=lr_pace, refresh_batch_norm=refresh_batch_norm)
        if not isinstance(awake_ratios, Sequence) or isinstance(awake_ratios, str):
            raise TypeError(f"awake_ratios must be a list of shares in (0, 1], one per epoch, got {awake_ratios!r}")
        self.awake_ratios = [check_share("awake_ratios", ratio) for ratio in awake_ratios]
        if not self.awake_ratios or min(self.awake_ratios) == 0:
            raise ValueError(f"awake_ratios must be shares in (0, 1], one for each epoch, got {list(awake_ratios)}")
        self.seed = check_seed(seed)

    def begin(self, loader: NumberedLoader) -> None:
        self._awake = torch.ones(len(loader.loader.dataset), dtype=torch.bool)  # type: ignore[arg-type]

    def awake(self) -> Tensor:
        return self._awake

    def found_in_batch(self, pl_module: pl.LightningModule, samples: int, outputs: Any) -> Tensor | None:
        return torch.ones(samples, dtype=torch.bool)

    def end_epoch(self, found: Tensor, *, may_skip: bool) -> dict[str, int]:
        self._awake = torch.ones_like(self._awake)
        if may_skip:
            epoch, samples = len(self.history) + 1, len(self._awake)
            ratio = self.awake_ratios[min(epoch, len(self.awake_ratios) - 1)]
            generator = torch.Generator().manual_seed(self.seed + epoch)
            self._awake[torch.randperm(samples, generator=generator)[round(ratio * samples) :]] = False
        return {}

    def plan_state(self) -> dict[str, Any]:
        return {"awake": self._awake}

    def load_plan_state(self, state_dict: dict[str, Any]) -> None:
        self._awake = state_dict["awake"].clone()
