"""Masked samples sleep: samples with zero loss and zero gradient are left out of the next epochs."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.utils.data import Subset

from as_lightning.callbacks.backward_skipping import BackwardSkipping
from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.callbacks.sample_skipping import SampleSkipping
from as_lightning.callbacks.skipping_epoch import SkippingEpoch
from as_lightning.callbacks.sleep_plan import Outcome, SleepPlan, check_share
from as_lightning.callbacks.window import masking_counter
from as_lightning.functional.argument_checks import check_switch
from as_lightning.functional.counts import masking_ratio
from as_lightning.functional.masking import check_delta
from as_lightning.masking_counter import MaskingCounter
from as_lightning.narrowed_loss import by_sample


class MaskedSampleSkipping(SampleSkipping):
    r"""Leave masked samples out of the next epochs: a sample that stays masked sleeps for 1, then 2, then 4 epochs.

    A sample is masked when the margin keeps none of its competitors, :math:`p_t - \max_{i \ne t} p_i > \delta`. Then
    its loss and its gradient are exactly zero. With tokens, a sample is masked when all its tokens are. Batches stay
    full, and epochs get shorter. Logged once per epoch:

    - ``masking/awake_ratio``: the share of the samples that the epoch's plan took;
    - ``masking/woken_ratio``: the share of live ones among the revisited samples: the price of skipping, measured;
    - ``masking/sample_passes``: visits since training began, in epochs of all samples;
    - ``masking/backward_ratio``, with ``skip_backward``: the share of the visits that took a backward pass.

    The module reports which samples are live by its ``masking_counter``, as
    :class:`~as_lightning.ASSoftmaxMixin` does. The training loader is one ``DataLoader`` of a map-style data set, with
    any sampler or batch sampler. While ``fit`` runs, ``trainer.reload_dataloaders_every_n_epochs`` is 1. With
    ``Trainer(overfit_batches=...)`` nothing sleeps.

    Args:
        max_sleep: the longest sleep in epochs, up to 255; 0 skips nothing.
        delta: a margin of its own for skipping, in [0, 1]; None takes the loss's. With one, the loss may be plain
            cross-entropy, which is AS-Softmax with margin 1.
        patience: how many visits in a row must find a sample masked before its first sleep.
        full_epochs: how many epochs at the start and at the end take all samples: counts (``int``), or shares of
            ``Trainer(max_epochs)`` (``float``). The first epoch takes all in any case.
        min_masked: nothing sleeps unless this share of all samples was masked when last visited; 0 switches this off.
        max_woken: when more than this share of an epoch's revisited samples were live, the longest sleep is halved; 1
            switches this off.
        class_floor: the share of each class that stays awake; 0 switches this off.
        targets: the class of each sample, for the floor, integers of shape ``(N,)``; None takes them from the data
            set's attribute ``targets``. Without any there is no floor.
        lr_pace: what a learning-rate scheduler with ``interval="step"`` follows. ``"data"``: the data covered, skipped
            or not, so that a schedule built from ``trainer.estimated_stepping_batches`` is at its end when training is.
            ``"steps"``: optimizer steps, as Lightning does it.
        refresh_batch_norm: renew the running statistics of BatchNorm layers before each validation, on random batches
            of all data.
        skip_backward: also skip the backward pass of masked samples in the batches of what is awake, for modules with
            :class:`~as_lightning.ASSoftmaxMixin`. A pass without gradients finds the live samples, the batch is
            narrowed to them, and the loss keeps the whole batch's denominator: without dropout the weights are those
            of AS-Softmax. It goes on and off by its measured cost; ``max_sleep=0`` does it alone.
        slack: what that search adds to the margin. The search runs in evaluation mode; a sample whose lead is below the
            margin and the slack takes the backward pass, because with dropout it may be live.

    Attributes:
        history: a :class:`~as_lightning.callbacks.SkippingEpoch` for each epoch that has ended.

        never_masked: the samples that each visit so far has found live, boolean, shape ``(N,)``, after an epoch has
            ended: the hard ones, and those with a wrong label.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is of another type.
        MisconfigurationException: in ``fit``, before the first batch, if the module has no masking counter, or the
            samples have no numbers (an iterable data set, a loader without a sampler, several loaders), with
            ``reload_dataloaders_every_n_epochs > 1``, beside another such callback, or if ``full_epochs`` leaves no
            epoch; later, if a loss does not say which samples are live, if a batch sampler
            yields what are no sample numbers, or if the data set changes its length. With ``skip_backward`` also for a
            module without the mixin, with manual optimization or compiled as a whole, for strategies other than one
            device and DDP, and later for BatchNorm in training mode, two losses in a step, ``reduction="none"``, and a
            part of a batch that cannot be narrowed.

    Source: the mask of AS-Softmax (paper, section III); Lightning's data hooks. See ``docs/skipping.md``.

    Example:
        >>> import lightning.pytorch as pl
        >>> skipping = MaskedSampleSkipping(max_sleep=4, full_epochs=(1, 0.1))
        >>> trainer = pl.Trainer(callbacks=[skipping], max_epochs=10, logger=False, enable_checkpointing=False)
        >>> skipping.history
        []
    """

    def __init__(
        self,
        max_sleep: int = 4,
        *,
        delta: float | None = None,
        patience: int = 1,
        full_epochs: tuple[float, float] = (1, 0),
        min_masked: float = 0.3,
        max_woken: float = 0.3,
        class_floor: float = 0.05,
        targets: Sequence[int] | Tensor | None = None,
        lr_pace: Literal["data", "steps"] = "data",
        refresh_batch_norm: bool = False,
        skip_backward: bool = False,
        slack: float = 0.1,
    ) -> None:
        super().__init__(full_epochs, lr_pace=lr_pace, refresh_batch_norm=refresh_batch_norm)
        slack = check_share("slack", slack)
        self.backward_skipping = BackwardSkipping(slack) if check_switch("skip_backward", skip_backward) else None
        self.delta = None if delta is None else check_delta(delta)
        self.targets = None if targets is None else _class_indices(targets)
        self._settings: dict[str, Any] = {
            "max_sleep": max_sleep,
            "patience": patience,
            "min_masked": min_masked,
            "max_woken": max_woken,
            "class_floor": class_floor,
        }
        self._sleep = SleepPlan(0, **self._settings)  # checks the settings; of the data set when this is known
        self._easiest = torch.empty(0, dtype=torch.int8)  # masked once, or live at every visit

    @property
    def never_masked(self) -> Tensor:
        return self._easiest == Outcome.LIVE

    @property
    def longest_sleep(self) -> int:
        """The longest sleep at present: ``max_sleep``, halved as often as too many revisited samples were live."""
        return self._sleep.longest_sleep

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        masking_counter(pl_module, self)
        if self.backward_skipping is not None:
            self.backward_skipping.install(trainer, pl_module, lambda: len(self._numbers or ()))

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        counter = masking_counter(pl_module, self)
        counter.wants_live, counter.live_delta = True, self.delta  # not in batches of a search of the learning rate

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.backward_skipping is not None:
            self.backward_skipping.after_backward()

    @property
    def backward_samples(self) -> int | None:
        return None if self.backward_skipping is None else self.backward_skipping.samples

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception)
        self._leave(pl_module)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        if stage == "fit":
            self._leave(pl_module)

    def _leave(self, pl_module: pl.LightningModule) -> None:
        counter = getattr(pl_module, "masking_counter", None)
        if isinstance(counter, MaskingCounter):
            counter.wants_live, counter.live_delta = False, None
        if self.backward_skipping is not None:
            self.backward_skipping.remove()

    def begin(self, loader: NumberedLoader) -> None:
        dataset: Any = loader.loader.dataset
        classes = _classes(dataset) if self.targets is None else self.targets
        if classes is None and self._settings["class_floor"] > 0:
            rank_zero_warn(
                f"{type(self).__name__} keeps no floor of awake samples for each class, for {type(dataset).__name__} "
                "has no attribute `targets` with one class per sample: give MaskedSampleSkipping(targets=...), or "
                "class_floor=0 for no floor."
            )
        if classes is not None and classes.shape != (len(dataset),):
            raise ValueError(
                f"targets must have shape {(len(dataset),)}, one class for each sample, got {tuple(classes.shape)}"
            )
        self._sleep = SleepPlan(len(dataset), classes=classes, **self._settings)
        self._easiest = torch.full((len(dataset),), Outcome.NOT_VISITED, dtype=torch.int8)

    def awake(self) -> Tensor:
        return self._sleep.awake()

    def found_in_batch(self, pl_module: pl.LightningModule, samples: int, outputs: Any) -> Tensor | None:
        counter = masking_counter(pl_module, self)
        live, counter.wants_live = counter.take_live(), False
        if live is None and not outputs:  # training_step has skipped the batch
            return None
        if live is None:
            raise MisconfigurationException(
                f"{type(pl_module).__name__}.training_step has not said which samples are live: compute the training "
                "loss with self.as_softmax_loss(logits, target), name the attribute that training_step calls in "
                "`as_softmax_replaces`, or call self.masking_counter.record_live(live_samples(logits, target, delta))."
            )
        return by_sample(live, samples)  # the values of Outcome

    def end_epoch(self, found: Tensor, *, may_skip: bool) -> dict[str, int]:
        self._easiest = torch.where(
            (found == Outcome.MASKED) | (self._easiest == Outcome.NOT_VISITED), found, self._easiest
        )
        counts = self._sleep.end_epoch(found, may_sleep=may_skip)
        return {"masked": counts.masked, "revisited": counts.revisited, "woken": counts.woken}

    def logged(self, epoch: SkippingEpoch) -> dict[str, float]:
        logged = super().logged(epoch) | {"masking/woken_ratio": float(masking_ratio(epoch.woken, epoch.revisited))}
        if self.backward_skipping is not None:
            logged["masking/backward_ratio"] = float(masking_ratio(epoch.backward, epoch.visits))
        return logged

    def plan_state(self) -> dict[str, Any]:
        return self._sleep.state_dict() | {"easiest": self._easiest.clone()}

    def load_plan_state(self, state_dict: dict[str, Any]) -> None:
        self._sleep.load_state_dict(state_dict)
        self._easiest = state_dict["easiest"].clone()


def _classes(dataset: Any) -> Tensor | None:
    """The class of each sample, where the data set has ``targets``."""
    if isinstance(dataset, Subset):
        classes = _classes(dataset.dataset)
        return None if classes is None else classes[torch.as_tensor(dataset.indices)]
    try:
        classes = _class_indices(getattr(dataset, "targets", None))
    except (TypeError, ValueError):
        return None
    return classes if classes.shape == (len(dataset),) else None


def _class_indices(targets: Any) -> Tensor:
    """Targets as a tensor of class indices, or an error if they are none."""
    expected = "targets must be integers from 0, one class for each sample"
    try:
        classes = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"{expected}, got {reprlib.repr(targets)}") from None
    if classes.is_floating_point() or classes.is_complex():
        raise TypeError(f"{expected}, got {classes.dtype}")
    if classes.dtype.is_signed and classes.numel() and int(classes.min()) < 0:
        raise ValueError(f"{expected}, got {int(classes.min())}")
    return classes
