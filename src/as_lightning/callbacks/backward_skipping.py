"""Before each training step a search finds the live samples of the batch, and the step takes these alone."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.seed import isolate_rng
from torch.nn.modules.batchnorm import _BatchNorm

from as_lightning.callbacks.backward_pace import BackwardPace
from as_lightning.callbacks.narrowed_batch import narrow_batch
from as_lightning.callbacks.stand_in import StandIn
from as_lightning.mixin import ASSoftmaxMixin
from as_lightning.narrowed_loss import LossReached, NarrowedLoss, Search

WAY_OUT = "or sleep only (skip_backward=False)"


class BackwardSkipping:
    """Stands before ``training_step`` while ``fit`` runs.

    A batch that :class:`~as_lightning.callbacks.backward_pace.BackwardPace` chooses is searched: ``training_step`` runs
    without gradients and in evaluation mode up to its loss. It leaves no trace: what it logs is dropped, and random
    states (PyTorch's, NumPy's and Python's) and the modes of the layers are put back. The batch is then narrowed to its
    live samples, and ``training_step`` runs as ever. Its loss keeps the whole batch's denominator and counts.

    Args:
        slack: what the search adds to the margin.
        pace: which batches are searched; None measures with the machine's clock, which waits for the device.

    Attributes:
        samples: of the latest batch, how many took the backward pass.
        pace: the pace while ``fit`` runs.
    """

    def __init__(self, slack: float, pace: BackwardPace | None = None) -> None:
        self.slack = slack
        self.samples = 0
        self.pace = pace
        self._given_pace = pace
        self._installed: StandIn | None = None  # in the place of the module's training_step
        self._batch_norms: list[_BatchNorm] = []

    def install(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch_samples: Callable[[], int]) -> None:
        """Begin; ``batch_samples`` gives the number of samples of the running batch, 0 if it is not to be searched.

        Raises:
            MisconfigurationException: if the training is not one that this works with.
        """
        module = _checked_module(pl_module, self.slack)
        _check_strategy(trainer)
        self._batch_norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
        self.pace = self._given_pace or BackwardPace(
            functools.partial(_device_clock, module), functools.partial(_mean_over_ranks, trainer)
        )
        self._installed = StandIn(
            module,
            "training_step",
            lambda step, batch, *rest: self._training_step(module, step, batch_samples(), batch, *rest),
        )

    def remove(self) -> None:
        """Leave the module as it was."""
        if self._installed is not None:
            self._installed.remove()
        self._installed = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also a pickled one, has the settings alone: the rest belongs to the training that runs."""
        return vars(self) | {"pace": self._given_pace, "_installed": None, "_batch_norms": []}

    def after_backward(self) -> None:
        """The backward pass of a batch is done."""
        if self.pace is not None:
            self.pace.finish()

    def _training_step(self, module: ASSoftmaxMixin, step: Any, samples: int, batch: Any, *rest: Any) -> Any:
        assert self.pace is not None
        if samples == 0:
            return step(batch, *rest)
        if any(layer.training for layer in self._batch_norms):
            raise MisconfigurationException(
                "skip_backward=True does not work with BatchNorm in training mode, whose statistics would be those of "
                "the live samples alone: freeze these layers (layer.eval() in on_train_epoch_start), use another "
                f"normalisation, {WAY_OUT}."
            )
        searched = None
        self.samples = samples
        if self.pace.start():
            searched = self._search(module, step, samples, batch, *rest)
            if searched is not None and len(searched.kept) == samples:
                searched = None
            if searched is not None:
                batch = narrow_batch(batch, searched.kept, samples, getattr(module, "narrow_batch", None))
                self.samples = len(searched.kept)
            self.pace.found(self.samples / samples)
        loss = NarrowedLoss(samples, self.slack, searched=searched, looks=self.pace.measures_whole)
        with _losses_by(module, loss):
            output = step(batch, *rest)
        if output is None:
            self.pace.skip()
        elif loss.seen is not None:
            self.pace.looked(float(loss.seen.float().mean()))
        return output

    def _search(self, module: ASSoftmaxMixin, step: Any, samples: int, batch: Any, *rest: Any) -> Search | None:
        """What is live in the batch; None if ``training_step`` ends without a loss."""
        loss = NarrowedLoss(samples, self.slack, searches=True)
        if isinstance(batch, (list, MutableMapping)):
            batch = copy.copy(batch)  # training_step may take things out of it
        with torch.no_grad(), _evaluating(module), _random_states_of(module), _unlogged(module):
            try:
                with _losses_by(module, loss):
                    step(batch, *rest)
            except LossReached:
                pass
        # under autocast, weights are cast once and kept: without a gradient, because there was none in the search
        torch.clear_autocast_cache()
        return loss.found


@contextmanager
def _losses_by(module: ASSoftmaxMixin, loss: NarrowedLoss) -> Iterator[None]:
    module.masking_counter.narrowed_loss = loss
    try:
        yield
    finally:
        module.masking_counter.narrowed_loss = None


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, and then every layer in its own mode again."""
    trained = [layer for layer in module.modules() if layer.training]
    for layer in trained:
        layer.training = False
    try:
        yield
    finally:
        for layer in trained:
            layer.training = True


@contextmanager
def _random_states_of(module: pl.LightningModule) -> Iterator[None]:
    """Those of PyTorch (of the module's device alone), NumPy and Python are what they were."""
    device = module.device
    with isolate_rng(include_cuda=False), torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


@contextmanager
def _unlogged(module: pl.LightningModule) -> Iterator[None]:
    """What a search logs before the loss would be counted twice."""
    vars(module)["log"] = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del vars(module)["log"]


def _device_clock(module: pl.LightningModule) -> float:
    if module.device.type == "cuda":
        torch.cuda.synchronize(module.device)
    return time.perf_counter()


def _mean_over_ranks(trainer: pl.Trainer, numbers: list[float]) -> list[float]:
    if trainer.world_size == 1:
        return numbers
    device = trainer.strategy.root_device
    return trainer.strategy.reduce(torch.tensor(numbers, device=device), reduce_op="mean").tolist()


def _checked_module(pl_module: pl.LightningModule, slack: float) -> ASSoftmaxMixin:
    name = type(pl_module).__name__
    if not isinstance(pl_module, ASSoftmaxMixin):
        raise MisconfigurationException(
            f"skip_backward=True needs a module whose loss is ASSoftmaxMixin's, but {name} is not one: mix it in, "
            f"{WAY_OUT}."
        )
    if not pl_module.automatic_optimization:
        raise MisconfigurationException(
            f"skip_backward=True needs automatic optimization, but {name}.automatic_optimization is False: its "
            f"training_step, with one optimizer or several, would step in the middle of a search. Set it to True, "
            f"{WAY_OUT}."
        )
    if hasattr(pl_module.training_step, "_torchdynamo_orig_callable"):
        raise MisconfigurationException(
            f"skip_backward=True does not work with torch.compile of the whole module, whose training_step cannot be "
            f"left at the loss: compile the network inside {name} (self.net.compile()), {WAY_OUT}."
        )
    delta = pl_module.as_softmax_margin
    if delta + slack >= 1.0:
        raise MisconfigurationException(
            f"skip_backward=True finds nothing to skip: the loss's margin {delta} and slack={slack} make 1 or more, "
            f"where no sample is masked. Lower one of the two, {WAY_OUT}."
        )
    return pl_module


def _check_strategy(trainer: pl.Trainer) -> None:
    strategy = trainer.strategy
    if isinstance(strategy, (SingleDeviceStrategy, DDPStrategy)) and not isinstance(strategy, DeepSpeedStrategy):
        return
    raise MisconfigurationException(
        f"skip_backward=True works on one device and with strategy='ddp', not with {type(strategy).__name__}, whose "
        f"forward passes the processes make together: use one of these, {WAY_OUT}."
    )
