"""The margin warm-up (the authors' ``initial_as_delta`` and ``min_as_delta``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import lightning.pytorch as pl
import torch

from as_lightning.functional.argument_checks import check_choice, check_count, check_number

UNKNOWN_LENGTH = (
    "DeltaWarmup(ratio=...) needs a training of known length, Trainer(max_epochs=...) without "
    "max_steps and a loader "
    "with a length: give batches=... instead"
)


@dataclass(
    unsafe_hash=True
)  # not frozen, which Lightning refuses among hyperparameters that it logs
class DeltaWarmup:
    r"""For the first batches of training, go from the margin ``initial`` to the loss's own
    ``delta``.

    With $b$ the 0-based batch and $B = \lfloor r \cdot \text{total} \rfloor$ (or ``batches``):

    $$
    \delta_b = \begin{cases} \delta & b \ge B \\
    \text{initial} & b < B,\ \text{shape} = \text{hold} \\
    \text{initial} + (\delta - \text{initial})\, b / B & b < B,\ \text{shape} = \text{linear}
    \end{cases}
    $$

    Without a Trainer (Fabric, or a loop of your own), and in a module within the one that it
    trains, set ``module.as_softmax_progress = batches / total`` before each batch.

    Args:
        ratio: the share of training's batches that the warm-up lasts, in [0, 1]. It needs
            ``Trainer(max_epochs)`` without ``max_steps`` and a loader with a length; a checkpoint
            keeps the length.
        initial: the margin at the start, in [0, 1]; 1 is plain softmax.
        shape: ``"hold"`` stays at ``initial``, then drops; ``"linear"`` goes in a straight line.
        batches: the warm-up's length in batches, in place of ``ratio``.

    Raises:
        ValueError: if an argument lies outside its range, or both or none of ``ratio`` and
            ``batches`` are given.
        TypeError: if ``ratio`` or ``initial`` is no number, or ``batches`` no integer.

    Source: the authors' code; batches, not optimizer steps, so that accumulation does not stretch
        it.

    Examples:
        >>> warmup = DeltaWarmup(ratio=0.1, shape="linear")
        >>> [round(warmup.delta_at(batch, total_batches=100, delta=0.5), 2) for batch in (0, 5, 10, 99)]
        [1.0, 0.75, 0.5, 0.5]
    """

    ratio: float | None = None
    initial: float = 1.0
    shape: Literal["hold", "linear"] = "hold"
    batches: int | None = None

    def __post_init__(self) -> None:
        if (self.ratio is None) == (self.batches is None):
            raise ValueError(
                f"give one of ratio and batches, got ratio={self.ratio}, batches={self.batches}"
            )
        if self.ratio is not None:
            self.ratio = check_number(
                "ratio", self.ratio, lambda ratio: 0.0 <= ratio <= 1.0, "a number in [0, 1]"
            )
        if self.batches is not None:
            self.batches = check_count("batches", self.batches, least=0)
        check_choice("shape", self.shape, ("hold", "linear"))
        self.initial = check_number(
            "initial", self.initial, lambda share: 0.0 <= share <= 1.0, "a margin in [0, 1]"
        )

    def delta_at(self, batch: int, total_batches: float, delta: float) -> float:
        """The margin of the 0-based ``batch`` of a training of ``total_batches``, finite if
        ``ratio`` is given.
        """
        if self.batches is not None:
            length = self.batches
        elif math.isfinite(total_batches):
            length = int((self.ratio or 0.0) * total_batches + 1e-9)  # 0.29 * 100 is below 29
        else:
            raise ValueError(UNKNOWN_LENGTH)
        return self._delta(batch, length, delta)

    def delta_at_progress(self, progress: float | None, delta: float) -> float:
        """The margin where ``progress`` of training is done; raises if that is None or the length
        is in batches.
        """
        if progress is None or self.ratio is None:
            raise RuntimeError(
                "without a Trainer, and in a module within the one that it trains, a DeltaWarmup "
                "cannot know how far "
                "training is: give it ratio=..., and set module.as_softmax_progress = batches / "
                "total before each batch"
            )
        check_number(
            "as_softmax_progress", progress, lambda share: 0.0 <= share <= 1.0, "a share in [0, 1]"
        )
        return self._delta(progress, self.ratio, delta)

    def _delta(self, done: float, length: float, delta: float) -> float:
        if done >= length:
            return delta
        return (
            self.initial
            if self.shape == "hold"
            else self.initial + (delta - self.initial) * done / length
        )


class WarmupOfTraining:
    """A `DeltaWarmup`, or None, in a training whose length the first batch fixes: later epochs may
    have another.

    ``training_batches`` is that length, infinite where Lightning cannot know it and None before the
    first batch.
    """

    def __init__(self, warmup: DeltaWarmup | None) -> None:
        if not (warmup is None or isinstance(warmup, DeltaWarmup)):
            raise TypeError(
                "delta_warmup must be a DeltaWarmup, such as DeltaWarmup(ratio=0.1), got "
                f"{warmup!r}"
            )
        self.warmup = warmup
        self.training_batches: float | None = None
        self._margin: float | None = (
            None  # of the batch that began last, unless it is the final one
        )

    def start(self, trainer: pl.Trainer) -> None:
        """Raise ``ValueError`` if a ``ratio`` needs the length of training, which neither trainer
        nor checkpoint tells.

        Call it in ``on_fit_start``: before and after, the limits of the trainer may be those of a
        search (``BatchSizeFinder``).
        """
        if self.warmup is None:
            return
        resumed = trainer.ckpt_path is not None and self.training_batches is not None
        ends_with_steps = trainer.max_steps != -1 and not trainer.fast_dev_run  # type: ignore[attr-defined]
        if (
            self.warmup.ratio is not None
            and not resumed
            and (ends_with_steps or trainer.max_epochs in (None, -1))
        ):
            raise ValueError(UNKNOWN_LENGTH)

    def margin(
        self,
        module: pl.LightningModule,
        trainer: pl.Trainer | None,
        progress: float | None,
        delta: float,
    ) -> float:
        """The margin of the batch that began last, or without batch hooks that at ``progress``.
        They are missing in a loop by hand, and in a module within the one that ``trainer`` trains,
        unless that one passes them on.
        """
        after_training = trainer is None and module._trainer is not None and progress is None
        if self.warmup is None or after_training:
            return delta
        gets_batch_hooks = progress is None and self.training_batches is not None
        if trainer is not None and (gets_batch_hooks or trainer.lightning_module is module):
            return delta if self._margin is None else self._margin
        return self.warmup.delta_at_progress(progress, delta)

    def begin_batch(self, trainer: pl.Trainer, delta: float) -> None:
        """Fix the margin of a batch. (In ``training_step`` a compiled module would compile anew for
        every batch.)
        """
        if self.warmup is None:
            return
        # not `ready`, which counts a batch twice after resuming from a checkpoint that an exception
        # in it has saved
        batch_progress: Any = trainer.fit_loop.epoch_loop.batch_progress
        batch = batch_progress.total.completed
        if batch == 0 or self.training_batches is None:
            epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
            self.training_batches = trainer.num_training_batches * epochs
        margin = self.warmup.delta_at(batch, self.training_batches, delta)
        self._margin = None if margin == delta else margin


torch.serialization.add_safe_globals([DeltaWarmup])  # it may lie in a checkpoint's hyperparameters
