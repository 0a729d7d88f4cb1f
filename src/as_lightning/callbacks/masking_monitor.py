"""Logs how much the margin masks, once per optimizer step and once per epoch."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import lightning.pytorch as pl
import torch
from torch import Tensor

from as_lightning.callbacks.hook_order import move_to_front
from as_lightning.callbacks.open_window import COUNTS, save_open_counts, start_counting
from as_lightning.callbacks.tensorboard_layout import write_layout
from as_lightning.callbacks.window import close_window, masking_counter, window_ends
from as_lightning.functional.counts import MaskingCounts, masking_ratio


class EpochMasking(NamedTuple):
    """The counts of an epoch, summed over its batches and the ranks (see ``MaskingCounts``)."""

    epoch: int
    masked_samples: int
    samples: int
    masked_classes: int
    classes: int


class _Step(NamedTuple):
    """An optimizer step that no logger has yet."""

    step: int
    window: Tensor
    accumulated: int
    delta: float | None


class MaskingMonitor(pl.Callback):
    r"""Log the masking ratio, the margin and the accumulation, to every logger and for other callbacks.

    Once per optimizer step, for the window of batches that led to it (summed over the ranks):

    - ``masking/sample_ratio``: masked samples / samples;
    - ``masking/class_ratio``: masked competitors / competitors;
    - ``masking/delta``: the margin, if the module has one (``current_delta``);
    - ``masking/accumulate_grad_batches``: Lightning's ``accumulate_grad_batches`` in the window;
    - ``masking/samples_seen``: samples since training began.

    Once per epoch ``masking/sample_ratio_epoch`` and ``masking/class_ratio_epoch``, over all its samples. How often
    the logger writes is ``Trainer(log_every_n_steps=...)``, and the first and the last optimizer step of a training are
    always written. The steps between are only counted, on the device. The host reads the counts of the steps that are
    written, and once per epoch. An empty window (only ignored rows) has ratio 0.

    A ``TensorBoardLogger`` also gets a layout for the dashboard *Custom Scalars*: masked samples and classes, margin,
    accumulation, loss and score, a chart each.

    It counts training alone: what was counted before ``fit`` began (a learning-rate search, an earlier fit, a call by
    hand) is forgotten, and a resumed run goes on where its checkpoint was saved, also inside a window.

    The callback moves itself to the front of ``trainer.callbacks``, so that checkpoints that other callbacks save hold
    the batch that ends.

    Args:
        step: what the loggers get as the step of these curves: ``"optimizer"``, the optimizer step as for the module's
            own metrics, or ``"samples"``, the samples seen since training began. With adaptive accumulation runs of the
            same data have different numbers of optimizer steps; by samples their curves end at the same place.

    Attributes:
        history: an :class:`EpochMasking` for each epoch that has ended, of this training.

    Raises:
        ValueError: if ``step`` is neither of the two.
        MisconfigurationException: at the start of ``fit`` if the module has no masking counter, and at the first
            optimizer step if training has computed a loss and counted nothing.

    Source: paper, figure of masking ratios; Lightning's ``LearningRateMonitor`` for when to log.

    Example:
        >>> import lightning.pytorch as pl
        >>> trainer = pl.Trainer(callbacks=[MaskingMonitor()], logger=False, enable_checkpointing=False)
    """

    def __init__(self, step: Literal["optimizer", "samples"] = "optimizer") -> None:
        if step not in ("optimizer", "samples"):
            raise ValueError(f"step must be 'optimizer' or 'samples', got {step!r}")
        self.step = step
        self._fitting = True
        self._forget()

    def _forget(self) -> None:
        """The state before training."""
        self.history: list[EpochMasking] = []
        self._samples_before = 0
        self._open_epoch: int | None = None  # the epoch that the counts below belong to; None before its first window
        self._epoch = torch.zeros(4, dtype=torch.int64)  # the counts of the epoch's windows but the latest
        self._windows: list[Tensor] = []  # the latest, to be added up in one go
        self._saved_counts: Tensor | None = None  # of an open window, from a checkpoint
        self._unwritten: _Step | None = None  # the latest step, unless it is written

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._forget()
        move_to_front(trainer, self)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        masking_counter(pl_module, self)  # not in setup: the module's own setup comes after it
        write_layout(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        start_counting(trainer, pl_module, self, self._saved_counts)
        self._saved_counts = None
        # Lightning does not end an epoch whose last batch has saved the checkpoint that this training resumes
        if self._open_epoch not in (None, trainer.current_epoch):
            self._end_epoch()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._open_epoch is not None:  # an exception has ended it, and another fit of the trainer begins it anew
            self._samples_before += int(self._sum_of_epoch()[1])
            self._start_epoch()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0:  # no window lies over the start of an epoch, where a search of the learning rate may lie
            masking_counter(pl_module, self).drop_window()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not window_ends(trainer, batch_idx):
            return
        self._open_epoch = trainer.current_epoch
        self._windows.append(close_window(trainer, pl_module, self, outputs, batch_idx))
        # Not pl_module.log: it costs more than a millisecond for five names, on every step, written or not.
        step = logged_step(trainer, pl_module)
        delta = getattr(pl_module, "current_delta", None)
        self._unwritten = _Step(step, self._windows[-1], trainer.accumulate_grad_batches, delta)
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and (step == 0 or (step + 1) % every == 0 or trainer.should_stop):
            self._write(trainer)
        elif len(self._windows) == 256:
            self._sum_of_epoch()

    def _sum_of_epoch(self) -> Tensor:
        if self._windows:
            latest = torch.stack(self._windows).sum(0)
            self._epoch = self._epoch.to(latest.device) + latest
            self._windows.clear()
        return self._epoch

    def _write(self, trainer: pl.Trainer) -> None:
        """Write the latest step, if it is not written yet."""
        if self._unwritten is None:
            return
        step, window, accumulated, delta = self._unwritten
        self._unwritten = None
        *counts, samples_of_epoch = torch.cat([window, self._sum_of_epoch()[1:2].to(window.device)]).tolist()
        masked_samples, samples, masked_classes, classes = counts
        samples_seen = self._samples_before + samples_of_epoch
        metrics = {
            "masking/sample_ratio": float(masking_ratio(masked_samples, samples)),
            "masking/class_ratio": float(masking_ratio(masked_classes, classes)),
            "masking/accumulate_grad_batches": float(accumulated),
            "masking/samples_seen": float(samples_seen),
        }
        if delta is not None:
            metrics["masking/delta"] = float(delta)
        _publish(trainer, metrics, step=samples_seen if self.step == "samples" else step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.log_every_n_steps:  # type: ignore[attr-defined]
            self._write(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._open_epoch is None:  # no window has ended in it
            return
        counts = MaskingCounts(*self._sum_of_epoch())
        ratios = {
            "masking/sample_ratio_epoch": counts.sample_ratio,
            "masking/class_ratio_epoch": counts.class_ratio,
        }
        pl_module.log_dict(ratios, logger=self.step == "optimizer")
        if self.step == "samples":
            samples_seen = self._samples_before + int(counts.samples)
            _publish(trainer, {name: float(ratio) for name, ratio in ratios.items()}, step=samples_seen)
        self._end_epoch()

    def _end_epoch(self) -> None:
        assert self._open_epoch is not None
        self.history.append(EpochMasking(self._open_epoch, *self._sum_of_epoch().tolist()))
        self._samples_before += self.history[-1].samples
        self._start_epoch()

    def _start_epoch(self) -> None:
        self._open_epoch, self._epoch = None, torch.zeros(4, dtype=torch.int64)

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": [tuple(epoch) for epoch in self.history],
            "samples_before": self._samples_before,
            "open_epoch": self._open_epoch,
            "epoch": self._sum_of_epoch().tolist(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        self.history = [EpochMasking(*epoch) for epoch in state_dict["history"]]
        self._samples_before = state_dict["samples_before"]
        self._open_epoch = state_dict["open_epoch"]
        self._epoch, self._windows = torch.tensor(state_dict["epoch"]), []

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        save_open_counts(trainer, pl_module, self, checkpoint)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._fitting:
            self._saved_counts = checkpoint.get(COUNTS)


def _publish(trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
    """Hand metrics to every logger, and to the callbacks that read the trainer's."""
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in metrics.items()}
    trainer.callback_metrics.update(values)
    trainer.logged_metrics.update(values)
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=step)


def logged_step(trainer: pl.Trainer, pl_module: pl.LightningModule) -> int:
    """The step that Lightning's own metrics of this batch carry, on a batch that ends a window.

    Lightning counts the batches that stepped. With manual optimization these are all, however many optimizers have
    stepped in each (and so raised ``global_step``).
    """
    return trainer.global_step - 1 if pl_module.automatic_optimization else trainer.fit_loop.total_batch_idx
