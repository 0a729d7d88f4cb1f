"""The margin warm-up (the authors' ``initial_as_delta`` and ``min_as_delta``)."""

from __future__ import annotations

import math
from typing import Any, Literal

from lightning.pytorch import Callback, Trainer

from as_lightning.functional.argument_checks import check_choice, check_count, check_number
from as_lightning.losses import MaskedLoss, masked_losses


class DeltaWarmup(Callback):
    r"""For the first batches of training, go from the margin ``initial`` to each loss's own
    ``delta``.

    It sets ``delta`` of every masked loss before each batch, and sets it back for validation.
    Without a Trainer (Fabric, or a loop of your own) set ``loss.delta`` yourself, by `delta_at`.

    Args:
        ratio: the share of training's batches that the warm-up lasts, in [0, 1]. It needs
            ``Trainer(max_epochs)`` without ``max_steps`` and a loader with a length. The length is
            fixed at the first batch, and a checkpoint keeps it.
        initial: the margin at the start, in [0, 1]; 1 is plain softmax.
        shape: ``"hold"`` stays at ``initial``, then drops; ``"linear"`` goes in a straight line.
        batches: the warm-up's length in batches, in place of ``ratio``.

    Raises:
        ValueError, TypeError: if an argument is out of range or of a wrong type, or not one of
            ``ratio`` and ``batches`` is given; at the first batch if a ``ratio`` needs the length
            of a training that has none.

    Source: the authors' code; batches, not optimizer steps, so that accumulation does not stretch
        it.

    Examples:
        >>> warmup = DeltaWarmup(ratio=0.1, shape="linear")
        >>> [round(warmup.delta_at(batch, total=100, delta=0.5), 2) for batch in (0, 5, 10, 99)]
        [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(
        self,
        ratio: float | None = None,
        initial: float = 1.0,
        shape: Literal["hold", "linear"] = "hold",
        batches: int | None = None,
    ) -> None:
        if (ratio is None) == (batches is None):
            raise ValueError(f"give one of ratio and batches, got {ratio=}, {batches=}")
        if batches is None:
            ratio = check_number("ratio", ratio, lambda r: 0 <= r <= 1, "a number in [0, 1]")
        else:
            batches = check_count("batches", batches, least=0)
        self.ratio = ratio
        self.initial = check_number("initial", initial, lambda d: 0 <= d <= 1, "in [0, 1]")
        self.shape = check_choice("shape", shape, ("hold", "linear"))
        self.batches = batches
        self._total = math.inf  # the batches of this training
        self._own: dict[MaskedLoss, float] = {}  # the margin of each loss that is warmed up now

    def delta_at(self, batch: int, total: float, delta: float) -> float:
        r"""Return the margin of the 0-based batch $b$ of a training of ``total`` batches.

        With $B = \lfloor \text{ratio} \cdot \text{total} \rfloor$ it is ``delta`` from $b = B$ on,
        and before that ``initial``, or $\text{initial} + (\delta - \text{initial})\, b / B$.
        """
        length = self._length(total)
        if batch >= length:
            return delta
        if self.shape == "hold":
            return self.initial
        return self.initial + (delta - self.initial) * batch / length

    def _length(self, total: float) -> int:
        if self.ratio is None:
            assert self.batches is not None
            return self.batches
        if not math.isfinite(total):
            raise ValueError(
                "DeltaWarmup(ratio=...) needs a training of known length, Trainer(max_epochs=...) "
                "without max_steps and a loader with a length: give batches=... instead"
            )
        return int(self.ratio * total + 1e-9)  # 0.29 * 100 is below 29

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *batch: Any) -> None:
        progress: Any = trainer.fit_loop.epoch_loop.batch_progress
        # not `ready`, which counts a batch twice after resuming from a checkpoint that an
        # exception in it has saved
        done = progress.total.completed
        if done == 0 or not math.isfinite(self._total):  # or the checkpoint has no warm-up
            self._total = training_batches(trainer)
        if done >= self._length(self._total):
            self._set_back()
            return
        if not self._own:
            self._own = {loss: loss.delta for loss in masked_losses(pl_module)}
        for loss, delta in self._own.items():
            loss.delta = self.delta_at(done, self._total, delta)

    def _set_back(self) -> None:
        while self._own:
            loss, delta = self._own.popitem()
            loss.delta = delta

    def on_validation_start(self, *_: Any) -> None:
        self._set_back()

    def on_train_end(self, *_: Any) -> None:
        self._set_back()

    def on_exception(self, *_: Any) -> None:
        self._set_back()

    def state_dict(self) -> dict[str, Any]:
        return {"training_batches": self._total}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._total = state_dict["training_batches"]


def training_batches(trainer: Trainer) -> float:
    """Return the batches of a training, infinite where Lightning cannot know them."""
    ends_with_steps = trainer.max_steps != -1 and not trainer.fast_dev_run  # type: ignore[attr-defined]
    if ends_with_steps or trainer.max_epochs in (None, -1):
        return math.inf
    return trainer.num_training_batches * trainer.max_epochs
