"""Accumulation windows whose length changes while training runs, exactly."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.data import extract_batch_size
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from as_lightning.callbacks import window as windows
from as_lightning.callbacks.accumulation_policy import AccumulationWindow, MaskingPolicy, Policy, StepSchedule
from as_lightning.callbacks.item_weights import Items, ItemWeights, multiply_gradients
from as_lightning.callbacks.learning_rate import LRScale, ScaledRates, follow_batches
from as_lightning.callbacks.window import COUNTS, find_counter, holds_the_sum, masking_counter, sum_over_ranks

GRADIENTS, SUMS = "as_lightning_open_gradients", "as_lightning_open_sums"  # keys of a checkpoint


@dataclass
class OpenWindow:
    """The place of the open window, or of the window that was closed last."""

    first_batch: int = 0  # 0-based, in the epoch
    length: int = 1  # trainer.accumulate_grad_batches while it is open
    accumulated: int = 0  # batches whose gradients have been added
    is_open: bool = False  # whether its optimizer step is still to come


class AdaptiveGradientAccumulation(Callback):
    r"""Let a policy say how many batches each optimizer step gathers, at any step of training, exactly.

    Each window takes as many batches as the policy wants and `aligned_window`
    allows. The weights equal, bit for bit, those of a loop that accumulates these windows by hand. A window costs one
    small all-reduce and one host read, a batch none. Logs ``accumulation/steps`` and, with ``lr_scale``,
    ``accumulation/lr``. Moves itself to the front of ``trainer.callbacks``.

    Args:
        policy: `MaskingPolicy` (the default, the paper's AS-Speed),
            `StepSchedule`, an object with ``next_length(window)``, ``state_dict`` and
            ``load_state_dict``, or a function of the closed `AccumulationWindow`, equal on all ranks.
        max_steps, scale, monotone, warmup_windows, update_every: those of the ``MaskingPolicy`` without a policy.
        lr_pace: what schedulers with ``interval="step"`` follow: ``"data"``, the batches, so that a schedule of
            ``trainer.estimated_stepping_batches`` ends with training; or ``"steps"``, as Lightning does it.
        lr_scale: a step of $k$ batches takes the scheduler's rate (``"none"``), $\sqrt k$ times it
            (``"sqrt"``) or $k$ times it (``"linear"``).
        normalize: the gradient is the mean over a window's ``"batches"``, or over all its ``"items"``.
        items: the number of items in a batch, ``items(batch)``; without it the module's ``items_in_batch(batch)``, and
            without that the samples of its masking counter.
        loss_is: what ``training_step`` returns: the ``"mean"`` over the batch's items, or their ``"sum"``.

    Attributes:
        history: the `AccumulationWindow` of each window since ``fit`` began or was resumed.
        policy: the policy.

    Raises:
        ValueError: if an argument lies outside its range, or the number of items in a batch is negative or not finite.
        MisconfigurationException: for what the page on accumulation lists, mostly when ``fit`` starts.

    Source: paper, section on AS-Speed, for the default policy.

    Examples:
        >>> speed = AdaptiveGradientAccumulation(max_steps=4)
        >>> trainer = Trainer(callbacks=[speed], logger=False, enable_checkpointing=False)
        >>> speed.history
        []
    """

    def __init__(
        self,
        policy: Policy | Callable[[AccumulationWindow], int] | None = None,
        *,
        max_steps: int | None = None,
        scale: float | None = None,
        monotone: bool | None = None,
        warmup_windows: int | None = None,
        update_every: int | None = None,
        lr_pace: Literal["data", "steps"] = "data",
        lr_scale: LRScale = "none",
        normalize: Literal["batches", "items"] = "batches",
        items: Callable[[Any], Any] | None = None,
        loss_is: Literal["mean", "sum"] = "mean",
    ) -> None:
        for name, value, choices in (
            ("lr_pace", lr_pace, ("data", "steps")),
            ("normalize", normalize, ("batches", "items")),
            ("loss_is", loss_is, ("mean", "sum")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be {choices[0]!r} or {choices[1]!r}, got {value!r}")
        if loss_is == "sum" and normalize == "batches":
            raise ValueError("loss_is='sum' says how items weigh: set normalize='items' too, or leave it out")
        given: dict[str, Any] = {"max_steps": max_steps, "scale": scale, "monotone": monotone}
        given |= {"warmup_windows": warmup_windows, "update_every": update_every}
        given = {name: value for name, value in given.items() if value is not None}
        if policy is not None and given:
            raise ValueError(f"{', '.join(given)}: arguments of MaskingPolicy, which cannot stand beside {policy!r}")
        if not (policy is None or isinstance(policy, Policy) or callable(policy)):
            raise TypeError(
                "policy must be a MaskingPolicy, a StepSchedule, an object with next_length, state_dict and "
                f"load_state_dict, or a function of the closed window, got {policy!r} (for AS-Speed write max_steps=4)"
            )
        self.policy = MaskingPolicy(**given) if policy is None else policy
        self._policy_start = copy.deepcopy(self._policy_state())
        self.lr_pace, self.normalize = lr_pace, normalize
        self._weights = ItemWeights(items, loss_is)
        self._rates = ScaledRates(lr_scale, self._batches_of_step)
        # how the gradients in a checkpoint are weighed, and the mean of how many ranks they are
        self._meaning: dict[str, Any] = {"normalize": normalize, "loss_is": loss_is, "items": None}
        self._ranks = 1
        self._counts_items = self._counts_samples = False
        self._fitting = True
        self._forget()

    def _forget(self) -> None:
        """The state before training."""
        self.history: list[AccumulationWindow] = []
        self._load_policy(copy.deepcopy(self._policy_start))
        self._next_length: int | None = None  # what the policy has said last
        self._window = OpenWindow()
        self._weights.unit = None
        self._drop_sums()
        self._resumed: dict[str, Any] | None = None  # a checkpoint's state, until training goes on from it
        self._saved: dict[str, Any] = {}  # of the open window, from a checkpoint
        self._unwritten: tuple[int, int] | None = None  # the latest step and its batches, unless they are logged

    def _drop_sums(self) -> None:
        """Forget what the batches of the open window have added up to on this rank."""
        self._samples, self._items = 0, 0.0  # type: int, Items
        self._totals: Tensor | None = None  # of the window and all ranks, once they are summed
        self._batch_samples: int = 0
        self._batch_items: Items | None = None

    def _batches_of_step(self) -> int:
        return self._window.accumulated + 1

    def _policy_state(self) -> dict[str, Any]:
        return self.policy.state_dict() if isinstance(self.policy, Policy) else {}  # a function has none

    def _load_policy(self, state: dict[str, Any]) -> None:
        if isinstance(self.policy, Policy):
            self.policy.load_state_dict(state)

    # The start and the end of fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        refuse_trainer(trainer, pl_module, self)
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._forget()
        windows.move_to_front(trainer, self)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        windows.find_losses(pl_module)
        source = self._weights.source(pl_module)
        refuse_module(pl_module, self, source)  # not in setup: the module's own setup comes after it
        self._ranks = windows.ranks_with_own_batches(trainer)
        self._counts_items = self.normalize == "items" or source in ("items", "items_in_batch")
        self._meaning["items"] = source if self.normalize == "items" else None
        needs_samples = not isinstance(self.policy, StepSchedule) or self.policy.by == "samples"
        self._counts_samples = needs_samples and find_counter(pl_module) is None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        saved, resumed = self._saved, self._resumed
        self._resumed, self._saved = None, {}
        windows.start_counting(trainer, pl_module, saved.get(COUNTS))
        self._drop_sums()
        if resumed is None:
            self._window = OpenWindow()
        self._rates.attach(trainer.optimizers[0])
        # A resumed epoch loop looks at it to tell whether the checkpoint's batch had stepped. Not earlier than here:
        # trainer.estimated_stepping_batches divides by it, and configure_optimizers asks for that.
        trainer.accumulate_grad_batches = self._window.length
        if resumed is not None and self._window.is_open and self._window.accumulated:
            self._resume_inside(trainer, pl_module, saved, resumed)

    def _resume_inside(
        self, trainer: Trainer, pl_module: LightningModule, saved: dict[str, Any], resumed: dict[str, Any]
    ) -> None:
        """Go on with what the open window of a checkpoint had gathered."""
        if GRADIENTS not in saved:
            rank_zero_warn(
                f"The checkpoint lies inside an accumulation window, after {self._window.accumulated} of its "
                f"{self._window.length} batches, and holds no gradients of these ({type(trainer.strategy).__name__}, "
                "saved while a batch ran, after an exception in one of several processes, or under SLURM's requeueing)"
                ": the window's step takes the mean over its other batches."
            )
            self._window.accumulated = 0
        elif resumed["meaning"] != self._meaning:
            raise MisconfigurationException(
                f"The checkpoint lies inside an accumulation window that was weighed by {resumed['meaning']}, and its "
                f"gradients do not add to those of {self._meaning}: resume with the settings of the checkpoint, or "
                "from a checkpoint between two windows."
            )
        if SUMS in saved and holds_the_sum(trainer):
            self._samples, self._items = int(saved[SUMS][1]), saved[SUMS][2] if GRADIENTS in saved else 0.0
        # the mean over the ranks that have saved it counts once for each of them
        ranks = resumed["ranks"] / self._ranks if self.normalize == "items" else 1.0
        for name, parameter in pl_module.named_parameters():
            if name in saved.get(GRADIENTS, ()):
                parameter.grad = saved[GRADIENTS][name].to(parameter.device) * ranks

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.log_every_n_steps:  # type: ignore[attr-defined]
            self._write(trainer)
        self._leave(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._leave(trainer)

    def _leave(self, trainer: Trainer) -> None:
        trainer.accumulate_grad_batches = 1
        for optimizer in trainer.optimizers:  # there is none if the exception came early
            self._rates.detach(optimizer)
        self._weights.end_backward()

    # One window

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._refuse_other_assignments(trainer)
        window = self._window
        if not (window.is_open and window.first_batch < batch_idx < window.first_batch + window.length):
            self._open_window(trainer, pl_module, batch_idx)
        if (counter := find_counter(pl_module)) is not None:
            counter.begin_batch()
        if self._counts_samples:
            self._batch_samples = extract_batch_size(batch)
        if self._counts_items:
            self._batch_items = self._weights.count(pl_module, batch, batch_idx)

    def _open_window(self, trainer: Trainer, pl_module: LightningModule, batch_idx: int) -> None:
        counter = find_counter(pl_module)
        if counter is not None and (self._window.is_open or batch_idx == 0):  # what a window that never stepped counted
            counter.drop_window()
        self._drop_sums()
        remaining = trainer.num_training_batches - batch_idx
        if remaining == math.inf and trainer.is_last_batch:  # a stream shows its end only with its last batch
            remaining = 1
        if self._next_length is None:
            empty = AccumulationWindow(trainer.current_epoch, 0, 0, 0, 0, step=trainer.global_step)
            self._next_length = self._length_after(empty)
        length = windows.aligned_window(batch_idx, self._next_length, remaining)
        self._window = OpenWindow(first_batch=batch_idx, length=length, is_open=True)
        trainer.accumulate_grad_batches = length

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._samples += self._batch_samples
        if not self._counts_items:
            return
        items = self._batch_items
        if items is None:
            items = self._weights.counted_since(masking_counter(pl_module, self))
        if self.normalize == "items":
            if self._weights.unit is None:  # once in a training
                first = items if isinstance(items, Tensor) else torch.tensor(items, dtype=torch.float64)
                self._weights.see(sum_over_ranks(trainer, first).item(), self._ranks)
            items = self._weights.weigh(pl_module, loss, items)
        self._items = self._items + items

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._weights.end_backward()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Before the gradients are clipped, and after a gradient scaler has taken its scale out of them."""
        if self.normalize == "items":
            items = self._sum_up(trainer, pl_module)[-1] if self._asks_ranks_or_device() else self._items
            multiply_gradients(optimizer, self._weights.factor(items, self._ranks, self._window.length))
        else:
            # The end may have come unforeseen (or a checkpoint lost gradients): each loss was divided by the length.
            multiply_gradients(optimizer, self._window.length / self._batches_of_step())

    def _asks_ranks_or_device(self) -> bool:
        """Whether this host does not know the window's samples and items by itself."""
        counting = self._counts_items or self._counts_samples
        return counting and (self._ranks > 1 or isinstance(self._items, Tensor))

    def _own_sums(self) -> Tensor:
        """What this rank has summed in the open window: no masked samples, samples, items."""
        items = self._items
        if not isinstance(items, Tensor):
            return torch.tensor([0, self._samples, items], dtype=torch.float64)
        return torch.stack([torch.full_like(items, 0), torch.full_like(items, self._samples), items])

    def _sum_up(self, trainer: Trainer, pl_module: LightningModule) -> Tensor:
        """Masked samples, samples and items of the window over all ranks, on the device: one all-reduce."""
        if self._totals is not None:
            return self._totals
        own, sums = self._own_sums(), []  # type: Tensor, list[Tensor]

        def reduce(counts: Tensor) -> Tensor:
            sums.append(sum_over_ranks(trainer, torch.cat([counts.to(own), own])))
            return sums[0][:4].round().long()

        counter = find_counter(pl_module)
        counts = counter.close_window((trainer.current_epoch, trainer.fit_loop.batch_idx), reduce) if counter else None
        if not sums:  # no counter, or the monitor has closed its window before, on a batch of None
            sums.append(sum_over_ranks(trainer, own))
        self._totals = sums[0] if counts is None else torch.cat([counts[:2].to(sums[0]), sums[0][-1:]])
        return self._totals

    def _read(self, trainer: Trainer, pl_module: LightningModule) -> tuple[int, int, float]:
        """The same numbers on the host: the window's one host read."""
        masked, samples, items = 0, self._samples, self._items
        if self._asks_ranks_or_device():
            masked, samples, items = self._sum_up(trainer, pl_module).tolist()
        elif find_counter(pl_module) is not None:
            masked, samples, *_ = windows.close_window(trainer, pl_module, self).tolist()
        return int(masked), int(samples), float(items) if self._counts_items else samples

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        if (counter := find_counter(pl_module)) is not None:
            counter.end_batch()
        ends = windows.window_ends(trainer, batch_idx)
        if not self._window.is_open:  # a batch of None, for which Lightning calls no on_train_batch_start
            if self.lr_pace == "data":
                follow_batches(trainer, pl_module, batch_idx, 1, stepped=ends)
            return
        self._window.accumulated += 1
        if not ends:
            return
        if counter is not None:
            counter.refuse_silence(pl_module, outputs)
        masked_samples, samples, items = self._read(trainer, pl_module)
        first_batch, length = self._window.first_batch, batch_idx + 1 - self._window.first_batch
        if self.normalize == "items":
            self._weights.see(items, length * self._ranks)
        self._window.is_open = False
        counts = masked_samples, samples, items, trainer.global_step
        self.history.append(AccumulationWindow(trainer.current_epoch, first_batch, length, *counts))
        self._next_length = self._length_after(self.history[-1])
        if self.lr_pace == "data":
            follow_batches(trainer, pl_module, batch_idx, length, stepped=True)
        step, every = trainer.global_step - 1, trainer.log_every_n_steps  # type: ignore[attr-defined]
        self._unwritten = step, length
        if every and (step == 0 or (step + 1) % every == 0 or trainer.should_stop):
            self._write(trainer)

    def _length_after(self, window: AccumulationWindow) -> int:
        """What the policy says after ``window``."""
        length = self.policy.next_length(window) if isinstance(self.policy, Policy) else self.policy(window)
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise MisconfigurationException(
                f"A policy must return the number of batches of the next window, an integer of at least 1, got "
                f"{length!r} from {self.policy!r} after {window}."
            )
        return length

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._window.is_open:
            return
        # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
        self._window.is_open = False
        batches = self._window.accumulated
        if batches and not trainer.should_stop:
            rank_zero_warn(
                f"Epoch {trainer.current_epoch} ended inside an accumulation window: the gradients of its last "
                f"{batches} batches are dropped. Either on_train_batch_start returned -1, or the loader yielded fewer "
                "batches than its length or limit_train_batches said."
            )
        if batches and self.lr_pace == "data":
            follow_batches(trainer, pl_module, self._window.first_batch + batches - 1, batches, stepped=False)

    def _refuse_other_assignments(self, trainer: Trainer) -> None:
        if trainer.accumulate_grad_batches != self._window.length:
            raise MisconfigurationException(
                f"{type(self).__name__} had set the trainer's accumulate_grad_batches to {self._window.length}, but "
                f"something else has since set it to {trainer.accumulate_grad_batches}, which would corrupt the "
                "gradients: remove the callback or the hook that assigns it."
            )

    def _write(self, trainer: Trainer) -> None:
        """Log the latest step, if it is not logged yet."""
        if self._unwritten is None:
            return
        (step, length), self._unwritten = self._unwritten, None
        rates = [float(rate) for rate in self._rates.used]
        names = ["accumulation/lr"] if len(rates) == 1 else [f"accumulation/lr/pg{i + 1}" for i in range(len(rates))]
        windows.publish(trainer, {"accumulation/steps": float(length), **dict(zip(names, rates, strict=True))}, step)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": {"name": type(self.policy).__name__, "state": self._policy_state()},
            "next_length": self._next_length,
            "window": asdict(self._window),
            "unit": self._weights.unit,
            "meaning": dict(self._meaning),
            "ranks": self._ranks,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        self.history = []
        self._resumed, self._window = state_dict, OpenWindow(**state_dict["window"])
        self._weights.unit = state_dict["unit"]
        if state_dict["policy"]["name"] != type(self.policy).__name__:
            return  # another policy goes on: it starts anew, and is asked when the open window has closed
        self._load_policy(state_dict["policy"]["state"])
        self._next_length = state_dict["next_length"]
        if isinstance(self.policy, MaskingPolicy):  # it may be resumed with a smaller max_steps
            self._next_length = self.policy.steps

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save what an open window has gathered so far, so that a run resumed inside it goes on exactly."""
        self._rates.restore_in(checkpoint)
        # not accumulate_grad_batches: callbacks that save on an exception come after on_exception, where it is 1 again
        length = self._window.length if self._window.is_open else 1
        windows.save_open_counts(trainer, pl_module, checkpoint, length)
        if not windows.can_save_open_window(trainer, length):
            return
        if self._counts_items or self._counts_samples:
            checkpoint[SUMS] = sum_over_ranks(trainer, self._own_sums()).tolist()
        if isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):  # each rank holds whole gradients
            checkpoint[GRADIENTS] = mean_gradients(trainer, pl_module)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._fitting:
            self._saved = {key: checkpoint[key] for key in (COUNTS, SUMS, GRADIENTS) if key in checkpoint}


def mean_gradients(trainer: Trainer, pl_module: LightningModule) -> dict[str, Tensor]:
    """The mean of the ranks' gradients (inside a window DDP has not taken it): each rank resumes from it."""
    parameters = list(pl_module.named_parameters())
    present = torch.tensor([parameter.grad is not None for _, parameter in parameters], device=pl_module.device)
    on_any_rank = sum_over_ranks(trainer, present.long()).tolist()  # a rank may not have used a parameter yet
    gradients = {}
    for (name, parameter), ranks in zip(parameters, on_any_rank, strict=True):
        if ranks:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            gradients[name] = trainer.strategy.reduce(gradient.detach(), reduce_op="mean").cpu()
    return gradients


def refuse(table: dict[str, bool]) -> None:
    """Raise the first message that applies."""
    for message in (message for message, applies in table.items() if applies):
        raise MisconfigurationException(message)


def refuse_trainer(trainer: Trainer, pl_module: LightningModule, callback: AdaptiveGradientAccumulation) -> None:
    """Raise unless ``callback`` alone decides ``accumulate_grad_batches``, starting from 1."""
    name, strategy, given = type(callback).__name__, type(trainer.strategy).__name__, trainer.accumulate_grad_batches
    fixed = trainer.strategy.handles_gradient_accumulation
    exact = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy))
    inexact = callback.normalize == "items" and not exact
    rivals: tuple[type[Callback], ...] = (AdaptiveGradientAccumulation, GradientAccumulationScheduler)
    if any(isinstance(module, _BatchNorm) for module in pl_module.modules()):  # it accumulates to renew the statistics
        rivals += (StochasticWeightAveraging,)
    table = {
        f"{name} cannot change the accumulation of {strategy}, which (as DeepSpeed does) fixes it at the start and "
        "accumulates by itself. Use strategy='ddp' or 'fsdp', or remove the callback.": fixed,
        f"{name}(normalize='items') is not known to be exact with {strategy}, which reduces gradients in its own way. "
        "Use strategy='ddp' or ModelParallelStrategy, or normalize='batches'.": inexact,
        f"{name} sets the trainer's accumulate_grad_batches and starts from 1, got Trainer(accumulate_grad_batches="
        f"{given}). Remove that argument (a fixed number is StepSchedule({{0: {given}}})), or the callback.": given
        != 1,
    }
    for other in trainer.callbacks:  # type: ignore[attr-defined]
        both = f"{name} and {type(other).__name__} both set the trainer's accumulate_grad_batches"
        table[f"{both}: remove one of the two callbacks."] = isinstance(other, rivals) and other is not callback
    refuse(table)


def refuse_module(pl_module: LightningModule, callback: AdaptiveGradientAccumulation, items_from: str | None) -> None:
    """Raise unless Lightning takes the steps and passes the batch index, and the module counts what is asked of it."""
    name, module = type(callback).__name__, type(pl_module).__name__
    iterates = is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True)
    no_items = callback.normalize == "items" and items_from is None
    table = {
        f"{name} needs automatic optimization, but {module}.automatic_optimization is False: a manual training_step "
        "decides itself when to step. Set it to True, or remove the callback and call "
        "as_lightning.functional.accumulation_steps in training_step.": not pl_module.automatic_optimization,
        f"{name} needs to know which batch comes, but {module}.training_step takes a dataloader_iter: take (batch, "
        "batch_idx), or remove the callback.": iterates,
        f"normalize='items' needs the number of items in each batch, and {module} has neither a masking counter nor "
        "items_in_batch(batch). Say it with items=lambda batch: ...": no_items,
    }
    refuse(table)
    if isinstance(callback.policy, MaskingPolicy):
        masking_counter(pl_module, callback)
