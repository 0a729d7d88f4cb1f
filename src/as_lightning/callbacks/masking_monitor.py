"""Logs how much the margin masks, once per optimizer step and once per epoch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from as_lightning.callbacks import window as windows
from as_lightning.callbacks.adaptive_gradient_accumulation import AdaptiveGradientAccumulation
from as_lightning.functional.counts import MaskingCounts, masking_ratio


class EpochMasking(NamedTuple):
    """The counts of an epoch, summed over its batches and the ranks (see ``MaskingCounts``)."""

    epoch: int
    masked_samples: int
    samples: int
    masked_classes: int
    classes: int


class MaskingMonitor(windows.WindowCallback):
    r"""Log the masking ratio, the margin and the accumulation, to every logger and for other
    callbacks.

    Once per optimizer step, for the window of batches that led to it (summed over the ranks):

    - ``masking/sample_ratio``: masked samples / samples, 0 in a window of ignored rows;
    - ``masking/class_ratio``: masked competitors / competitors;
    - ``masking/delta``: the margin of the loss, if there is one margin;
    - ``accumulation/steps``: the batches per optimizer step, unless `AdaptiveGradientAccumulation`
      logs them;
    - ``masking/samples_seen``: samples since training began.

    Once per epoch ``masking/sample_ratio_epoch`` and ``masking/class_ratio_epoch``. The progress
    bar shows the share of masked samples as ``masked``.

    ``Trainer(log_every_n_steps=...)`` says which steps are written; the first one always is. The
    host reads the counts of these steps alone. A run that is resumed between two steps goes on as
    if it had not stopped. The callback moves itself to the front of ``trainer.callbacks``.

    Attributes:
        history: an `EpochMasking` for each epoch of this training that has ended.

    Raises:
        MisconfigurationException: at the start of ``fit`` if the module has neither a masking
            counter (as that of `ASSoftmaxMixin`) nor a loss module such as `ASSoftmaxLoss`, and at
            the first batch if training has computed a loss and counted nothing.

    Source: paper, figure of masking ratios; Lightning's ``LearningRateMonitor`` for when to log.

    Examples:
        >>> quiet = {"logger": False, "enable_checkpointing": False}
        >>> trainer = Trainer(callbacks=[MaskingMonitor()], **quiet)
    """

    def _reset(self) -> None:
        self.history: list[EpochMasking] = []
        self._samples_before = 0  # in the epochs that have ended
        # The epoch of the counts below, None before its first window.
        self._open_epoch: int | None = None
        self._epoch_counts = torch.zeros(4, dtype=torch.int64)  # of its windows, over the ranks
        self._window_counts: Tensor | None = None  # of the open window, on this rank

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.refuse_uncounted(pl_module, windows.counts_masking(pl_module))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._window_counts, self._steps = None, trainer.global_step
        # Lightning does not end an epoch whose last batch has saved the checkpoint that this
        # training resumes.
        if self._open_epoch not in (None, trainer.current_epoch):
            self._end_epoch()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._window_counts = None
        if self._open_epoch is not None:  # an exception ended it, and another fit begins it anew
            self._samples_before += int(self._epoch_counts[1])
            self._start_epoch()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.counter.pause()
        counts = self.counter.counts
        # A loader that gives None begins no batch.
        if batch is not None and counts is not None:
            before = self._window_counts
            self._window_counts = counts if before is None else before + counts
        stepped, self._steps = trainer.global_step > self._steps, trainer.global_step
        if not self._counted and (outputs or (stepped and not pl_module.automatic_optimization)):
            self._counted = self.counter.counts is not None
            self.refuse_uncounted(pl_module, self._counted)
        in_window = trainer.fit_loop.batch_idx % trainer.accumulate_grad_batches + 1
        if in_window < trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        if self._window_counts is None:
            self._window_counts = torch.zeros(4, dtype=torch.int64, device=pl_module.device)
        window = windows.sum_over_ranks(trainer, self._window_counts)
        self._window_counts, self._open_epoch = None, trainer.current_epoch
        self._epoch_counts = self._epoch_counts.to(window.device) + window
        # Lightning's own metrics carry the number of batches that stepped, not of steps: with
        # manual optimization these are all batches, however many optimizers have stepped in each.
        step = trainer.fit_loop.total_batch_idx
        if pl_module.automatic_optimization:
            step = trainer.global_step - 1
            if not stepped:
                return
        if not windows.is_logged(trainer, step):
            return
        numbers = torch.cat([window, self._epoch_counts[1:2]]).tolist()
        masked_samples, samples, masked_classes, classes, of_epoch = numbers
        metrics = {
            "masking/sample_ratio": float(masking_ratio(masked_samples, samples)),
            "masking/class_ratio": float(masking_ratio(masked_classes, classes)),
            "masking/samples_seen": float(self._samples_before + of_epoch),
        }
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        if not any(isinstance(other, AdaptiveGradientAccumulation) for other in callbacks):
            metrics["accumulation/steps"] = float(in_window)
        margins = {loss.delta for loss in self.counter.losses}
        if len(margins) == 1:
            metrics["masking/delta"] = float(margins.pop())
        trainer.progress_bar_metrics["masked"] = metrics["masking/sample_ratio"]
        windows.publish(trainer, metrics, step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._open_epoch is None:  # no window has ended in it
            return
        counts = MaskingCounts(*self._epoch_counts)
        ratios = {
            "masking/sample_ratio_epoch": counts.sample_ratio,
            "masking/class_ratio_epoch": counts.class_ratio,
        }
        # Lightning needs a batch_size where training_step takes a dataloader_iter
        pl_module.log_dict(ratios, logger=bool(trainer.loggers), batch_size=1)
        self._end_epoch()
        trainer.progress_bar_metrics["masked"] = float(masking_ratio(*self.history[-1][1:3]))

    def _end_epoch(self) -> None:
        assert self._open_epoch is not None
        self.history.append(EpochMasking(self._open_epoch, *self._epoch_counts.tolist()))
        self._samples_before += self.history[-1].samples
        self._start_epoch()

    def _start_epoch(self) -> None:
        self._open_epoch, self._epoch_counts = None, torch.zeros(4, dtype=torch.int64)

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": [tuple(epoch) for epoch in self.history],
            "samples_before": self._samples_before,
            "open_epoch": self._open_epoch,
            "epoch": self._epoch_counts.tolist(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        self.history = [EpochMasking(*epoch) for epoch in state_dict["history"]]
        self._samples_before = state_dict["samples_before"]
        self._open_epoch = state_dict["open_epoch"]
        self._epoch_counts = torch.tensor(state_dict["epoch"])
