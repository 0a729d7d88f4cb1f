"""What a run measures while it trains: its time and its evaluations."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from as_lightning.bench.run.checkpoint_io import WholeFileCheckpointIO
from as_lightning.bench.run.identity import RunIdentity
from as_lightning.callbacks import TemperatureScaling

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class RunRecorder(pl.Callback):
    """Records the time spent training, and every evaluation with the training time up to it.

    The clock stops in validation, and while `WholeFileCheckpointIO` writes. It includes the loading
    of data, the time between two epochs, and the callbacks that come before this one. `monitor` is
    the name under which the score is logged, averaged over the processes; `config` and `inputs` are
    the run's, and are saved in its checkpoints.

    An evaluation has diverged if a trained weight is not finite, or an output of the module's
    forward is nothing but NaN. Its score is then NaN, whatever a metric computes from the class
    that stands for NaN.
    """

    RESTORED = ("train_seconds", "epoch_seconds", "evaluations")

    def __init__(
        self,
        monitor: str,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.monitor = monitor
        self.identity = RunIdentity.of(config or {}, inputs)
        self.written = json.dumps({"config": config or {}, "inputs": inputs or {}}, default=str)
        self.train_seconds = 0.0
        self.epoch_seconds: list[float] = []  # each with the preparation of its epoch
        # epoch, step, train_seconds, score; loss if it is logged, cross_entropy at the best
        # temperature if it is fitted
        self.evaluations: list[dict[str, float]] = []
        self.diverged = False  # whether the latest evaluation has diverged
        self._metrics_before: Mapping[str, Any] = {}  # what was logged before this validation
        self._hooks: list[RemovableHandle] = []
        self._only_nan: list[Tensor] = []  # of each output, whether it is nothing but NaN
        self._clock = clock
        self._mark = 0.0
        self._saving_seconds = 0.0  # spent on writing checkpoints, up to the mark

    def _count(self, trainer: pl.Trainer) -> None:
        """Add the time since the mark, without that of writing checkpoints, and set the mark."""
        previous = self._mark, self._saving_seconds
        self._set_mark(trainer)
        self.train_seconds += (self._mark - previous[0]) - (self._saving_seconds - previous[1])

    def _set_mark(self, trainer: pl.Trainer) -> None:
        io = trainer.strategy.checkpoint_io
        self._mark, self._saving_seconds = (
            self._clock(),
            io.seconds if isinstance(io, WholeFileCheckpointIO) else 0.0,
        )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._set_mark(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        self._count(trainer)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._only_nan = []
        if (
            pl_module._compiled_call_impl is None
        ):  # else the hook would be compiled anew for each batch
            self._hooks = [pl_module.register_forward_hook(self._look_at)]

    def _look_at(self, module: nn.Module, inputs: Any, output: Any) -> None:
        for leaf in tree_leaves(output):
            dense = isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
            if dense and leaf.dtype in FLOATS and leaf.dim() > 1 and leaf.numel():
                self._only_nan.append(leaf.isnan().all())

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        while self._hooks:  # before others export the module in on_validation_end
            self._hooks.pop().remove()

    on_validation_epoch_end = on_test_epoch_end

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trained_weights = (
            weight
            for weight in pl_module.parameters()
            if weight.requires_grad and not is_lazy(weight)
        )
        diverged = not all(bool(weight.isfinite().all()) for weight in trained_weights)
        for only_nan in self._only_nan:
            with suppress(
                RuntimeError, TypeError
            ):  # e.g. of a tensor of a vmap that has ended, or a masked tensor
                diverged |= bool(only_nan)
        self.diverged = not trainer.strategy.reduce_boolean_decision(not diverged)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self.on_test_epoch_end(trainer, pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.on_test_start(trainer, pl_module)
        self._metrics_before = dict(trainer.callback_metrics)
        if not trainer.sanity_checking:
            self._count(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.on_test_end(trainer, pl_module)
        self._set_mark(trainer)
        if trainer.sanity_checking:
            return
        # Lightning keeps the earlier value of a metric that this validation does not log
        before, metrics = self._metrics_before, trainer.callback_metrics
        logged = {name: value for name, value in metrics.items() if value is not before.get(name)}
        if self.monitor in logged:
            # not current_epoch, which is one more where a callback validates at the end of training
            epoch = trainer.fit_loop.epoch_progress.current.ready - 1
            progress = {
                "epoch": epoch,
                "step": trainer.global_step,
                "train_seconds": self.train_seconds,
            }
            losses = [
                over_ranks(trainer, logged[name])
                for name in ("val/loss", "val_loss")
                if name in logged
            ]
            loss = {"loss": losses[0]} if losses else {}
            # the same loss for all candidates, at the temperature that suits each: it decides
            # between equal scores
            callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
            scaled = [
                callback.validation_nll
                for callback in callbacks
                if isinstance(callback, TemperatureScaling)
            ]
            if scaled and math.isfinite(scaled[0]):
                loss["cross_entropy"] = scaled[0]
            score = math.nan if self.diverged else over_ranks(trainer, logged[self.monitor])
            self.evaluations.append({**progress, "score": score, **loss})

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._count(trainer)
        self.epoch_seconds.append(self.train_seconds - sum(self.epoch_seconds))

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        states = checkpoint["callbacks"]
        if RunIdentity.of(**written_config(checkpoint)).changed(self.identity):
            states[self.state_key][
                "evaluations"
            ] = []  # those of another run, whose best is not this run's
            for key in [key for key, state in states.items() if "best_model_path" in state]:
                del states[key]

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("written", *self.RESTORED)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in self.RESTORED:
            setattr(self, name, state_dict[name])


def written_config(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The configuration and the inputs that the recorder has put into a checkpoint."""
    return dict(json.loads(checkpoint["callbacks"]["RunRecorder"]["written"]))


def over_ranks(trainer: pl.Trainer, value: Any) -> float:
    """The mean over the processes, each of which may have logged the value of its own part of the
    data.
    """
    if trainer.world_size > 1:
        value = trainer.strategy.reduce(torch.as_tensor(value).detach().clone(), reduce_op="mean")
    return float(value)
