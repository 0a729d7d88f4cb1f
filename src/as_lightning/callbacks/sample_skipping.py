"""How a callback leaves samples out of Lightning's epochs; which ones, a subclass decides."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from typing import Any, Literal, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from as_lightning.callbacks.adaptive_gradient_accumulation import AdaptiveGradientAccumulation
from as_lightning.callbacks.batch_norm_refresh import has_batch_norm, refresh_batch_norm
from as_lightning.callbacks.epoch_batches import batches_of_awake, replicas_of
from as_lightning.callbacks.epoch_record import EpochRecord
from as_lightning.callbacks.full_epochs import FullEpochs
from as_lightning.callbacks.loader_intercept import LoaderIntercept
from as_lightning.callbacks.lr_pace import follow_data
from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.callbacks.skipping_requirements import refuse_module, refuse_trainer, refuse_unsharded
from as_lightning.callbacks.window import window_ends


class SkippingEpoch(NamedTuple):
    """An epoch of training, summed over the ranks.

    Attributes:
        epoch: 0-based epoch.
        samples: the samples of the data set.
        awake: how many of them the plan took.
        visits: how many visits there were: fewer than ``awake`` after an early stop or with ``limit_train_batches``,
            more where a sampler draws a sample several times.
        masked: visited samples that were masked.
        revisited: visited samples that had been put to sleep since they were last found live.
        woken: revisited samples that were live.
        backward: visits that took a backward pass: fewer than ``visits`` with ``skip_backward``.
    """

    epoch: int
    samples: int
    awake: int
    visits: int
    masked: int = 0
    revisited: int = 0
    woken: int = 0
    backward: int = 0


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
            of all data (:func:`~as_lightning.callbacks.batch_norm_refresh.refresh_batch_norm`).

    Attributes:
        history: a :class:`SkippingEpoch` for each epoch that has ended.
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
        if lr_pace not in ("data", "steps"):
            raise ValueError(f"lr_pace must be 'data' or 'steps', got {lr_pace!r}")
        self.full_epochs = FullEpochs(*full_epochs)
        self.lr_pace, self.refresh_batch_norm = lr_pace, refresh_batch_norm
        self._intercept = LoaderIntercept(self._number)
        self._fitting = False
        self._forget()

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
        self._full_batches = 0  # of an epoch that takes all samples
        self._followed = 0  # batches of the epoch that the schedule has followed
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

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        refuse_module(pl_module, self)  # not in setup: the module's own setup comes after it
        if has_batch_norm(pl_module) and not self.refresh_batch_norm:
            rank_zero_warn(
                f"{type(pl_module).__name__} has BatchNorm layers, whose running statistics will see only the samples "
                f"that {type(self).__name__} does not skip. Set refresh_batch_norm=True to renew them on random "
                "batches of all data before each validation."
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.train_dataloader is not self._loader:
            raise MisconfigurationException(
                f"{type(self).__name__} needs one torch.utils.data.DataLoader for training, got "
                f"{type(trainer.train_dataloader).__name__}: train on one loader, or remove the callback."
            )

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
        if samples != self._samples:
            raise MisconfigurationException(
                f"{type(self).__name__} has planned for {self._samples} samples of training data, but there are "
                f"{samples} now: a data set must keep its samples, and their numbers, in every epoch."
            )
        if self._saved is not None:
            saved, self._saved = self._saved, None
            self._resume(trainer, saved)
        # Lightning may ask for the loader before it has read from a checkpoint which epoch comes
        current = trainer.current_epoch == self._epoch
        plan = self.awake() if current else torch.ones(samples, dtype=torch.bool)
        if current:
            self._plan = plan
        if current and self._rest is not None:
            loader.plan(self._rest["batches"], self._rest["length"])
            return loader
        batch_sampler: Any = loader.loader.batch_sampler
        if plan.all() and replicas_of(loader.loader) == (1, 0) and hasattr(batch_sampler, "__len__"):
            loader.plan(batch_sampler, len(batch_sampler))  # the very batches of a training without the callback
            return loader
        batches = batches_of_awake(
            loader.loader,
            plan,
            trainer.current_epoch,
            broadcast=trainer.strategy.broadcast,
            least_over_ranks=lambda count: _least_over_ranks(trainer, count),
        )
        loader.plan(batches, len(batches))
        return loader

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._running, self._followed, self._rest = True, 0, None
        self._record = EpochRecord(self._samples, self.found_dtype, self.not_visited)
        if self._plan.all():
            self._full_batches = int(trainer.num_training_batches)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert self._loader is not None
        self._numbers = self._loader.numbers

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        numbers, self._numbers = self._numbers, None
        assert numbers is not None
        found = self.found_in_batch(pl_module, len(numbers), outputs)
        if found is not None:
            self._record.add(numbers, found, self.backward_samples)
        if window_ends(trainer, batch_idx):
            self._pace(trainer, pl_module, batch_idx)

    def _pace(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch_idx: int) -> None:
        batches, self._followed = batch_idx + 1 - self._followed, batch_idx + 1
        epoch_batches = int(trainer.num_training_batches)
        if self.lr_pace == "steps" or epoch_batches >= self._full_batches or not pl_module.automatic_optimization:
            return
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        adaptive = any(isinstance(callback, AdaptiveGradientAccumulation) for callback in callbacks)
        accumulated = 1 if adaptive else trainer.accumulate_grad_batches
        full_steps = -(-self._full_batches // accumulated) * (trainer.max_epochs or 0)
        if trainer.max_steps != -1 and trainer.max_steps < full_steps:
            return  # training ends with its steps, whatever the data, and so does the schedule
        follow_data(
            trainer,
            pl_module,
            last_batch=batch_idx,
            batches=batches,
            epoch_batches=epoch_batches,
            full_epoch_batches=self._full_batches,
            accumulated=accumulated,
        )

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.refresh_batch_norm and self._running and self._loader is not None and not self._plan.all():
            refresh_batch_norm(trainer, pl_module, self._loader, seed=trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        found, visits, backward = self._record.over_ranks(trainer)
        awake = int(torch.count_nonzero(self._plan))
        overfitting: float = trainer.overfit_batches  # type: ignore[attr-defined]
        may_skip = not (overfitting or self.full_epochs.contains(self._epoch + 1, trainer.max_epochs))
        counts = self.end_epoch(found, may_skip=may_skip)
        epoch = SkippingEpoch(self._epoch, self._samples, awake, visits, **counts, backward=backward)
        self.history.append(epoch)
        self._running, self._rest = False, None
        self._epoch += 1
        pl_module.log_dict(self.logged(epoch))

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
            "full_batches": self._full_batches,
        }
        return state | {"plan": self.plan_state()} if self._samples else state

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Inside an epoch, save what its visits have found, and the batches that each process has still to take."""
        if not self._running or self._loader is None:
            return
        found, visits, backward = self._record.over_ranks(trainer)
        rest = [self._loader.rest_of_pass()]
        if trainer.world_size > 1:
            gathered: list[Any] = [None] * trainer.world_size
            torch.distributed.all_gather_object(gathered, rest[0])
            rest = gathered
        checkpoint["callbacks"][self.state_key]["inside_epoch"] = {
            "found": found,
            "visits": visits,
            "backward": backward,
            "rest": rest,
            "length": len(self._loader),
            "followed": self._followed,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            self._saved = state_dict

    def _resume(self, trainer: pl.Trainer, state: dict[str, Any]) -> None:
        self.history = [SkippingEpoch(*epoch) for epoch in state["history"]]
        self._epoch, self._full_batches = state["epoch"], state["full_batches"]
        if "plan" in state:
            self.load_plan_state(state["plan"])
        inside = state.get("inside_epoch")
        if inside is None:
            return
        if len(inside["rest"]) != trainer.world_size:
            raise MisconfigurationException(
                f"The checkpoint lies inside an epoch whose plan is for {len(inside['rest'])} processes, but there are "
                f"{trainer.world_size}: resume with as many, or from a checkpoint of the end of an epoch."
            )
        self._running, self._followed = True, inside["followed"]
        self._record = EpochRecord.from_state(inside, trainer)
        self._rest = {"batches": inside["rest"][trainer.global_rank], "length": inside["length"]}


def _least_over_ranks(trainer: pl.Trainer, count: int) -> int:
    device = trainer.strategy.root_device
    return int(trainer.strategy.reduce(torch.tensor(count, device=device), reduce_op="min"))
