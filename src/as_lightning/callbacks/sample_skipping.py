"""How a callback leaves samples out of Lightning's epochs; which ones, a subclass decides."""

from __future__ import annotations

import sys
from abc import abstractmethod
from array import array
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor

from as_lightning.callbacks.batch_norm_refresh import BatchNormRefresh
from as_lightning.callbacks.batches_of_ranks import batches_of_all_ranks, batches_of_this_rank
from as_lightning.callbacks.epoch_plan import plan_epoch
from as_lightning.callbacks.epoch_record import EpochRecord
from as_lightning.callbacks.evaluation_logits import fitting
from as_lightning.callbacks.full_epochs import FullEpochs
from as_lightning.callbacks.hook_order import move_to_front
from as_lightning.callbacks.loader_intercept import LoaderIntercept
from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.callbacks.open_window import can_reduce_while_saving
from as_lightning.callbacks.skipping_epoch import SkippingEpoch
from as_lightning.callbacks.skipping_pace import SkippingPace
from as_lightning.callbacks.skipping_requirements import (
    refuse_module,
    refuse_other_loader,
    refuse_other_samples,
    refuse_trainer,
    refuse_unsharded,
)
from as_lightning.callbacks.window import window_ends


class SampleSkipping(pl.Callback):
    """Leaves samples out of epochs: batches stay full, epochs get shorter.

    The callback stands before the training loader with a
    :class:`~as_lightning.callbacks.numbered_loader.NumberedLoader`, and sets
    ``trainer.reload_dataloaders_every_n_epochs`` to 1, so that Lightning renews its lengths in each epoch. A subclass
    says which samples are awake, and what to remember of a batch: one number per sample. The largest in an epoch
    counts. With ``Trainer(overfit_batches=...)``, which is to see the same batches in every epoch, nothing is left out.

    Args:
        full_epochs: how many epochs at the start and at the end take all samples: counts (``int``), or shares of
            ``Trainer(max_epochs)`` (``float``). The first epoch takes all in any case.
        lr_pace: what a learning-rate scheduler with ``interval="step"`` follows. ``"data"``: the data covered, skipped
            or not, so that a schedule built from ``trainer.estimated_stepping_batches`` is at its end when training is.
            ``"steps"``: optimizer steps, as Lightning does it.
        refresh_batch_norm: renew the running statistics of BatchNorm layers before each validation, on random batches
            of all data; frozen layers are left alone.

    Attributes:
        history: a :class:`~as_lightning.callbacks.SkippingEpoch` for each epoch that has ended.
    """

    found_dtype: torch.dtype = torch.int8
    not_visited: float = -1  # the number of a sample that an epoch has not visited

    def __init__(
        self,
        full_epochs: tuple[float, float] = (1, 0),
        *,
        lr_pace: Literal["data", "steps"] = "data",
        refresh_batch_norm: bool = False,
    ) -> None:
        self.full_epochs = FullEpochs.of(full_epochs)
        self._batch_norm = BatchNormRefresh(refresh_batch_norm)
        self._pace = SkippingPace(lr_pace)
        self._intercept = LoaderIntercept(self._number)
        self._fitting = False
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also a pickled one, has no loader, whose open pass cannot be copied: it takes up the next one."""
        return vars(self) | {"_loader": None, "_numbers": None, "_ended": None}

    def _forget(self) -> None:
        """The state before training."""
        self.history: list[SkippingEpoch] = []
        self._loader: NumberedLoader | None = None
        self._samples = 0  # of the data set; 0 before it is known
        self._epoch = 0  # the epoch that runs, or that comes next
        self._plan = torch.empty(0, dtype=torch.bool)  # who is awake in it
        self._record = EpochRecord(0, self.found_dtype, self.not_visited)
        self._running = False  # whether the epoch has begun
        self._numbers: array[int] | None = None  # of the running batch
        self._ended: array[int] | None = None  # those of the latest batch that has ended
        self._pace.forget()
        self._saved: dict[str, Any] | None = None  # from a checkpoint, until the data set is known
        self._rest: dict[str, Any] | None = None  # of an epoch inside which a checkpoint lay

    # What a subclass decides

    @abstractmethod
    def begin(self, loader: NumberedLoader) -> None:
        """Begin a training on the data set of ``loader``."""

    @abstractmethod
    def awake(self) -> Tensor:
        """The plan of the next epoch, the same on every call: boolean, shape ``(N,)``."""

    @abstractmethod
    def found_in_batch(self, pl_module: pl.LightningModule, samples: int, outputs: Any) -> Tensor | None:
        """What a batch of ``samples`` has told: one number per sample, on the device; None if it has told nothing."""

    @abstractmethod
    def end_epoch(self, found: Tensor, *, may_skip: bool) -> dict[str, int]:
        """Take in what an epoch found of each sample; returns the counts of :class:`SkippingEpoch` that it knows."""

    @abstractmethod
    def plan_state(self) -> dict[str, Any]:
        """What :meth:`load_plan_state` needs, for a checkpoint."""

    @abstractmethod
    def load_plan_state(self, state_dict: dict[str, Any]) -> None:
        """Go on from a :meth:`plan_state`; :meth:`begin` has been called."""

    @property
    def backward_samples(self) -> int | None:
        """How many samples of the batch took a backward pass; None for all."""
        return None

    @property
    def lr_pace(self) -> Literal["data", "steps"]:
        """What a learning-rate scheduler with ``interval="step"`` follows."""
        return self._pace.follows

    # The start and the end of fit

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        refuse_trainer(trainer, self, kind=SampleSkipping)
        self.full_epochs.check(trainer.max_epochs)
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._forget()
        self._intercept.install(trainer)
        move_to_front(trainer, self)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        refuse_module(pl_module, self)  # not in setup: the module's own setup comes after it

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        refuse_other_loader(trainer, self._loader, self)
        self._batch_norm.start()
        if self._running and trainer.current_epoch > self._epoch:
            # Lightning neither ends an epoch whose last batch has saved the checkpoint that this training resumes nor
            # begins the next, which takes all its batches only if Lightning counts the last one's as at an end
            self._end_epoch(trainer)
            self._begin_epoch()
            trainer.fit_loop.epoch_loop.batch_progress.current.completed = sys.maxsize

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._intercept.remove(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._intercept.remove(trainer)

    # One epoch

    def _number(self, trainer: pl.Trainer, dataloader: object) -> NumberedLoader:
        """Stand before the loader, and plan the trainer's current epoch."""
        if self._loader is None or self._loader.loader is not dataloader:  # else its workers may be kept
            self._loader = NumberedLoader(dataloader)
            refuse_unsharded(trainer, self._loader, self)
        loader = self._loader
        samples = len(loader.loader.dataset)  # type: ignore[arg-type]
        if self._samples == 0:
            self._samples = samples
            self.begin(loader)
        refuse_other_samples(samples, self._samples, self)
        if self._saved is not None:
            saved, self._saved = self._saved, None
            self._resume(trainer, saved)
        fit_loop: Any = trainer.fit_loop
        if trainer.current_epoch < self._epoch == fit_loop.epoch_progress.current.processed:
            loader.plan([], fit_loop.epoch_loop.batch_progress.current.completed)  # Lightning takes up an ended epoch
            return loader
        # Lightning may ask for the loader before it has read from a checkpoint which epoch comes
        current = trainer.current_epoch == self._epoch
        plan = self.awake() if current else torch.ones(samples, dtype=torch.bool)
        if current:
            self._plan = plan
        if current and self._rest is not None:
            loader.plan(self._rest["batches"], self._rest["length"])
            return loader
        plan_epoch(trainer, loader, plan)
        return loader

    def _begin_epoch(self) -> None:
        self._running, self._pace.followed, self._rest = True, 0, None
        self._ended = self._loader.numbers if self._loader is not None else None
        self._record = EpochRecord(self._samples, self.found_dtype, self.not_visited)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begin_epoch()
        if self._plan.all():
            self._pace.full_batches = int(trainer.num_training_batches)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert self._loader is not None
        self._numbers = self._loader.numbers

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert self._loader is not None
        numbers, self._numbers = self._numbers, None
        self._ended = self._loader.numbers if numbers is None else numbers
        if numbers is not None:  # else a batch of None, for which Lightning calls no on_train_batch_start
            self._batch_norm.see_batch(pl_module, batch_idx, self)
            found = self.found_in_batch(pl_module, len(numbers), outputs)
            if found is not None:
                self._record.add(numbers, found, self.backward_samples)
        if window_ends(trainer, batch_idx):
            self._pace.follow(trainer, pl_module, batch_idx)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if fitting(trainer) and self._running and self._loader is not None and not self._plan.all():
            self._batch_norm.refresh(trainer, pl_module, self._loader, seed=trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._running:
            pl_module.log_dict(self.logged(self._end_epoch(trainer)))

    def _end_epoch(self, trainer: pl.Trainer) -> SkippingEpoch:
        found, visits, backward = self._record.over_ranks(trainer)
        awake = int(torch.count_nonzero(self._plan))
        overfitting: float = trainer.overfit_batches  # type: ignore[attr-defined]
        may_skip = not (overfitting or self.full_epochs.contains(self._epoch + 1, trainer.max_epochs))
        counts = self.end_epoch(found, may_skip=may_skip)
        epoch = SkippingEpoch(self._epoch, self._samples, awake, visits, **counts, backward=backward)
        self.history.append(epoch)
        self._running, self._rest = False, None
        self._epoch += 1
        return epoch

    def logged(self, epoch: SkippingEpoch) -> dict[str, float]:
        """What is logged of an epoch that has ended."""
        return {
            "masking/awake_ratio": epoch.awake / epoch.samples,
            "masking/sample_passes": sum(passed.visits for passed in self.history) / epoch.samples,
        }

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        state = {
            "history": [tuple(epoch) for epoch in self.history],
            "epoch": self._epoch,
            "full_batches": self._pace.full_batches,
        }
        return state | {"plan": self.plan_state()} if self._samples else state

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Inside an epoch, save what its visits have found, and the batches that each process has still to take.

        Not of several processes that may be at different batches: they draw the rest of the epoch anew.
        """
        if not self._running or self._loader is None:
            return
        inside: dict[str, Any] = {"length": len(self._loader), "followed": self._pace.followed}
        if can_reduce_while_saving(trainer):
            inside["found"], inside["visits"], inside["backward"] = self._record.over_ranks(trainer)
            rest = [*self._batch_to_repeat(trainer, self._loader.numbers), *self._loader.rest_of_pass()]
            inside["rest"] = batches_of_all_ranks(trainer, rest)
        checkpoint["callbacks"][self.state_key]["inside_epoch"] = inside

    def _batch_to_repeat(self, trainer: pl.Trainer, numbers: array[int] | None) -> list[list[int]]:
        """The batch handed over last, if it was not trained on: a resumed training begins with it."""
        progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        trained = numbers is self._ended or progress.processed > progress.completed
        return [] if numbers is None or trained else [numbers.tolist()]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            self._saved = state_dict

    def _resume(self, trainer: pl.Trainer, state: dict[str, Any]) -> None:
        self.history = [SkippingEpoch(*epoch) for epoch in state["history"]]
        self._epoch, self._pace.full_batches = state["epoch"], state["full_batches"]
        if "plan" in state:
            self.load_plan_state(state["plan"])
        inside = state.get("inside_epoch")
        if inside is None:
            return
        self._running, self._pace.followed = True, inside["followed"]
        if "rest" not in inside:
            self._record = EpochRecord(self._samples, self.found_dtype, self.not_visited)
            return
        self._rest = {"batches": batches_of_this_rank(trainer, inside["rest"]), "length": inside["length"]}
        self._record = EpochRecord.from_state(inside, trainer)
