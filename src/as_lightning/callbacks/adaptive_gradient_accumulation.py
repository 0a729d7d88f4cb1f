"""Accumulation windows whose length changes while training runs, exactly."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Literal, TypeGuard

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
from as_lightning.callbacks.accumulation_policy import (
    AccumulationWindow,
    FunctionPolicy,
    MaskingPolicy,
    Policy,
    StepSchedule,
)
from as_lightning.callbacks.item_weights import Items, ItemWeights, multiply_gradients, on_device
from as_lightning.callbacks.learning_rate_scale import RATE_FACTORS, ScaledRates
from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.counts import MaskingCounts
from as_lightning.masking_counter import MaskingCounter

GRADIENTS = "as_lightning_open_gradients"  # key of a checkpoint: what an open window has gathered, and how it weighs


@dataclass
class OpenWindow:
    """The place of the open window, or of the window that was closed last."""

    first_batch: int = 0  # 0-based, in the epoch
    length: int = 1  # trainer.accumulate_grad_batches while it is open
    accumulated: int = 0  # batches whose gradients have been added
    is_open: bool = False  # whether its optimizer step is still to come


class AdaptiveGradientAccumulation(Callback):
    r"""Let a policy say how many batches each optimizer step gathers, at any step of training, exactly.

    Each window takes as many batches as the policy wants and `aligned_window` allows. The weights equal, bit for bit,
    those of a loop that accumulates these windows by hand. Logs ``accumulation/steps`` and, where ``lr_scale`` acts,
    ``accumulation/lr``. Moves itself to the front of ``trainer.callbacks``. Without a policy, ``max_steps``, ``scale``,
    ``monotone``, ``warmup_windows`` and ``update_every`` are those of the `MaskingPolicy`.

    Args:
        policy: `MaskingPolicy` (the default, AS-Speed), `StepSchedule`, an object with
            ``next_length(window)``, ``state_dict`` and ``load_state_dict``, or a function of the closed
            `AccumulationWindow`, equal on all ranks.
        lr_interval: what schedulers with ``interval="step"`` follow: ``"batch"``, the batches, so that a schedule of
            ``trainer.estimated_stepping_batches`` ends with training; or ``"step"``, as Lightning does it.
        lr_scale: a step of $k$ batches takes the scheduler's rate (``"none"``), $\sqrt k$ times it (``"sqrt"``, for
            Adam: Malladi et al., 2022) or $k$ times it (``"linear"``, for SGD: Goyal et al., 2017). ``"auto"`` is
            ``"sqrt"`` for a `MaskingPolicy` and ``"none"`` for all others, and in a resumed run what it was before.
        normalize: the gradient is the mean over a window's ``"batches"``, or over all its ``"items"``.
        items: the number of items in a batch, ``items(batch)``; without it the module's ``items_in_batch(batch)``, and
            without that the samples of its masking counter.
        loss_is: what ``training_step`` returns: the ``"mean"`` over the batch's items, or their ``"sum"``.

    Attributes:
        history: the `AccumulationWindow` of each window since ``fit`` began or was resumed.

    Raises:
        ValueError: if an argument lies outside its range, or the number of items in a batch is negative or not finite.
        TypeError: if a policy is none, or a number no number.
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
        lr_interval: Literal["batch", "step"] = "batch",
        lr_scale: Literal["auto", "none", "sqrt", "linear"] = "auto",
        normalize: Literal["batches", "items"] = "batches",
        items: Callable[[Any], Any] | None = None,
        loss_is: Literal["mean", "sum"] = "mean",
    ) -> None:
        check_choice("lr_interval", lr_interval, ("batch", "step"))
        check_choice("lr_scale", lr_scale, ("auto", "none", *RATE_FACTORS))
        check_choice("normalize", normalize, ("batches", "items"))
        check_choice("loss_is", loss_is, ("mean", "sum"))
        if loss_is == "sum" and normalize == "batches":
            raise ValueError("loss_is='sum' says how items weigh: set normalize='items' too, or leave it out")
        limits = {"max_steps": max_steps, "scale": scale, "monotone": monotone}
        limits |= {"warmup_windows": warmup_windows, "update_every": update_every}
        given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
        if policy is not None and given:
            raise ValueError(f"{', '.join(given)}: arguments of MaskingPolicy, which cannot stand beside {policy!r}")
        if isinstance(policy, type) or not (policy is None or isinstance(policy, Policy) or callable(policy)):
            expected = "policy must be a MaskingPolicy, a StepSchedule, an object with their methods, or a function"
            raise TypeError(f"{expected}, got {policy!r} (for AS-Speed write max_steps=4)")
        own = policy is None or isinstance(policy, (MaskingPolicy, StepSchedule))
        if own and items is not None and normalize == "batches":
            raise ValueError("items= changes nothing without normalize='items': set that too, or leave items= out")
        # a copy, since each callback has windows of its own
        self.policy = MaskingPolicy(**given) if policy is None else copy.deepcopy(policy) if own else policy
        # asked once: isinstance with a protocol takes 40 microseconds
        self._policy = self.policy if isinstance(self.policy, Policy) else FunctionPolicy(self.policy)
        self._policy_start = copy.deepcopy(self._policy.state_dict())
        self.lr_interval, self.lr_scale, self.normalize = lr_interval, lr_scale, normalize
        self._weights = ItemWeights(items, loss_is)
        self._rates = ScaledRates(self._batches_in_step)
        self._meaning: dict[str, Any] = {"normalize": normalize, "loss_is": loss_is}  # of the gradients
        self._ranks, self._is_first_rank = 1, True
        self._given = 1  # trainer.accumulate_grad_batches before fit
        self._batch_sizes = MaskingCounter()  # of a module without a masking counter
        self._counts = self._counts_items = self._counts_sizes = self._needs_masking = False
        self._fitting, self._window = True, OpenWindow()
        self._training = False  # a search of the learning rate may load a checkpoint while it is
        self._steps_before = 0  # optimizer steps before the window
        self._saved: dict[str, Any] = {}  # of the open window, from a checkpoint, until training goes on
        self._forget()

    def _forget(self) -> None:
        """The state before training."""
        self.history: list[AccumulationWindow] = []
        self._policy.load_state_dict(copy.deepcopy(self._policy_start))
        by_default = "sqrt" if isinstance(self.policy, MaskingPolicy) else "none"
        self._rates.scale = by_default if self.lr_scale == "auto" else self.lr_scale
        self._next_length: int | None = None  # what the policy has said last
        self._weights.unit = None
        self._drop_sums()
        self._unwritten: tuple[int, int] | None = None  # the latest step and its batches, unless they are logged

    def _drop_sums(self) -> None:
        self._items: Items = 0.0  # of the open window, on this rank
        self._totals: Tensor | None = None  # of all ranks, once they are summed
        self._batch_items: Items | None = None
        self._computed = False  # whether the batch's loss has been: an optimizer may compute it several times in a step

    def _batches_in_step(self) -> int:
        return self._window.accumulated + 1 if self._window.is_open else 0

    def _counter(self, pl_module: LightningModule) -> MaskingCounter:
        return windows.find_counter(pl_module) or self._batch_sizes

    # The start and the end of fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        self._given = trainer.accumulate_grad_batches
        self._window, self._saved = OpenWindow(), {}  # unless a checkpoint has others
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._forget()
        windows.move_to_front(trainer, self)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        windows.find_losses(pl_module)
        source = self._weights.source(pl_module)
        refuse(trainer, pl_module, self, source)  # not in setup: the module's own setup comes after it
        _, self._ranks, self._is_first_rank = windows.ranks_with_own_batches(trainer)
        self._counts_items = self.normalize == "items" or source in ("items", "items_in_batch")
        self._meaning["items"] = source if self.normalize == "items" else None
        counts_masking = windows.find_counter(pl_module) is not None
        needs_samples = not isinstance(self.policy, StepSchedule) or self.policy.by == "samples"
        self._needs_masking = needs_samples or (self.normalize == "items" and source == "masking_counter")
        self._counts_sizes = needs_samples and not counts_masking
        self._counts = counts_masking or self._counts_sizes or self._counts_items

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        windows.start_counting(trainer, self._counter(pl_module), self._saved.get(windows.COUNTS))
        self._training = True
        self._drop_sums()
        self._steps_before = trainer.global_step
        self._rates.follow(trainer.optimizers[0])
        # A resumed epoch loop looks at it to tell whether the checkpoint's batch had stepped. Not earlier than here:
        # trainer.estimated_stepping_batches divides by it, and configure_optimizers asks for that.
        trainer.accumulate_grad_batches = self._window.length
        if self._window.is_open and self._window.accumulated:
            self._resume_inside(pl_module)
        self._saved = {}

    def _resume_inside(self, pl_module: LightningModule) -> None:
        """Go on with what the open window of a checkpoint had gathered."""
        window = self._window
        if GRADIENTS not in self._saved:
            rank_zero_warn(
                f"The checkpoint lies inside a window, after {window.accumulated} of its {window.length} batches, and "
                "holds no gradients of these: the window's step takes the mean over its other batches."
            )
            window.accumulated = 0
            return
        saved = self._saved[GRADIENTS]
        if saved["meaning"] != self._meaning:
            raise MisconfigurationException(
                f"The checkpoint lies inside a window of {saved['meaning']}, whose gradients do not add to those of "
                f"{self._meaning}: resume with its settings, or from a checkpoint between two windows."
            )
        if self._is_first_rank:
            self._items = saved["items"]
        # the mean over the ranks that have saved it counts once for each of them
        ranks = saved["ranks"] / self._ranks if self.normalize == "items" else 1.0
        for name, parameter in pl_module.named_parameters():
            if name in saved["gradients"]:
                parameter.grad = saved["gradients"][name].to(parameter.device) * ranks

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.log_every_n_steps:  # type: ignore[attr-defined]
            self._write(trainer)
        self._leave(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._leave(trainer)

    def _leave(self, trainer: Trainer) -> None:
        trainer.accumulate_grad_batches, self._training = self._given, False
        self._rates.leave()
        self._weights.end_backward()

    # One window

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._refuse_other_assignments(trainer)
        window, counter = self._window, self._counter(pl_module)
        if not (window.is_open and window.first_batch < batch_idx < window.first_batch + window.length):
            if window.is_open or batch_idx == 0:  # what a window that never stepped counted
                counter.drop_window()
            self._open_window(trainer, batch_idx)
        counter.begin_batch()
        self._computed = False
        if self._counts_sizes:
            self._batch_samples = torch.tensor([0, self._size(batch), 0, 0])
        if self._counts_items:
            self._batch_items = self._weights.count(pl_module, batch, batch_idx)

    def _size(self, batch: Any) -> int:
        """The samples of a batch; 0 where a batch of one's own does not show them, and no schedule needs them."""
        try:
            if isinstance(batch, Iterator):  # to look into it would use it up
                raise MisconfigurationException("an iterator has no size")
            return extract_batch_size(batch)
        except MisconfigurationException:
            if isinstance(self.policy, StepSchedule):
                raise MisconfigurationException(
                    f"by='samples' needs the size of each batch, which Lightning cannot tell of a "
                    f"{type(batch).__name__}: take a schedule by='step', or batches that hold their tensors in a "
                    "tuple, a list or a dict."
                ) from None
            return 0

    def _open_window(self, trainer: Trainer, batch_idx: int) -> None:
        self._drop_sums()
        remaining = trainer.num_training_batches - batch_idx
        if remaining == math.inf and trainer.is_last_batch:  # a stream shows its end only with its last batch
            remaining = 1
        if self._next_length is None:
            empty = AccumulationWindow(trainer.current_epoch, 0, 0, 0, 0, step=trainer.global_step)
            self._next_length = self._length_after(empty)
        length = windows.aligned_window(batch_idx, self._next_length, remaining)
        self._window = OpenWindow(first_batch=batch_idx, length=length, is_open=True)
        self._steps_before = trainer.global_step
        trainer.accumulate_grad_batches = length
        self._rates.follow(trainer.optimizers[0])  # it may be another one by now

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        again, self._computed = self._computed, True
        if again and self._window.accumulated:
            raise MisconfigurationException(
                f"{type(trainer.optimizers[0]).__name__} computes the loss several times in a step, and Lightning adds "
                f"each gradient to those of the window's other batches, {self._window.accumulated} here. "
                f"Use an optimizer that computes it once, or remove {type(self).__name__}."
            )
        counter = self._counter(pl_module)
        if self._counts_sizes:
            self._batch_sizes.update(MaskingCounts(*self._batch_samples))
        counter.end_batch()
        if not self._counts_items:
            return
        if self._batch_items is None:
            self._batch_items = self._weights.counted_since(counter)
        items = self._batch_items
        if self.normalize == "items":
            if self._weights.unit is None:  # once in a training
                joint = items if self._knows(items) else windows.sum_over_ranks(trainer, on_device(items)).item()
                self._weights.see(joint, self._ranks)
            items = self._weights.weigh(pl_module, loss, items)
        if not again:
            self._items = self._items + items

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._weights.end_backward()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Before the gradients are clipped, and after a gradient scaler has taken its scale out of them."""
        if self.normalize == "items":
            items = self._items if self._knows(self._items) else self._sum_up(trainer, pl_module)[-1]
            multiply_gradients(optimizer, self._weights.factor(items, self._ranks, self._window.length))
        else:
            # The end may have come unforeseen (or a checkpoint lost gradients): each loss was divided by the length.
            multiply_gradients(optimizer, self._window.length / (self._window.accumulated + 1))

    def _knows(self, items: Items) -> TypeGuard[float]:
        """Whether the number is that of all ranks and need not be read from a device."""
        return self._ranks == 1 and not isinstance(items, Tensor)

    def _sum_up(self, trainer: Trainer, pl_module: LightningModule) -> Tensor:
        """The four counts of the window and, unless this host knows them, its items, over all ranks: one all-reduce."""
        if not self._counts_items or self._knows(self._items):
            return windows.close_window(trainer, self._counter(pl_module))
        if self._totals is None:
            own, sums = on_device(self._items), []  # type: Tensor, list[Tensor]

            def reduce(counts: Tensor) -> Tensor:
                sums.append(windows.sum_over_ranks(trainer, torch.cat([counts.to(own), own])))
                return sums[0][:4].round().long()

            counts = windows.close_window(trainer, self._counter(pl_module), reduce)
            # the monitor has closed the window before, where the last batch was one of None
            items = sums[0][4:] if sums else windows.sum_over_ranks(trainer, own)
            self._totals = torch.cat([counts.to(items), items])
        return self._totals

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        counter, window = self._counter(pl_module), self._window
        counter.end_batch()
        ends = windows.window_ends(trainer)
        if not window.is_open:  # a batch of None, for which Lightning calls no on_train_batch_start
            if batch_idx == 0:
                counter.drop_window()
            self._follow_batches(trainer, pl_module, batch_idx, 1, stepped=ends)
            return
        window.accumulated += 1
        if not ends:
            return
        if counter is not self._batch_sizes and self._needs_masking:  # the module's
            counter.refuse_silence(pl_module, outputs)
        totals = self._sum_up(trainer, pl_module).tolist() if self._counts else [0] * 4  # the window's one host read
        masked, samples = int(totals[0]), int(totals[1])
        items = samples if not self._counts_items else self._items if self._knows(self._items) else totals[4]
        length, steps = batch_idx + 1 - window.first_batch, trainer.global_step
        if self.normalize == "items":
            self._weights.see(items, length * self._ranks)
        window.is_open = False
        self.history.append(
            AccumulationWindow(trainer.current_epoch, window.first_batch, length, masked, samples, items, steps)
        )
        self._next_length = self._length_after(self.history[-1])
        self._follow_batches(trainer, pl_module, batch_idx, length, stepped=True)
        if steps == self._steps_before:  # the loader gave None
            if length > 1:
                rank_zero_warn(
                    f"The loader gave None for batch {batch_idx}, the last of an accumulation window. Lightning takes "
                    f"no step then: the gradients of the window's other batches, {length - 1}, are dropped. Have the "
                    "loader leave such batches out."
                )
            return
        self._unwritten = steps - 1, length
        if windows.is_written(trainer, steps - 1):
            self._write(trainer)

    def _length_after(self, window: AccumulationWindow) -> int:
        """What the policy says after ``window``."""
        length = self._policy.next_length(window)
        if isinstance(length, bool) or not isinstance(length, Integral) or length < 1:
            expected = "A policy must return the number of batches of the next window, an integer of at least 1"
            raise MisconfigurationException(f"{expected}, got {length!r} from {self.policy!r} after {window}.")
        return int(length)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._window.is_open:
            return
        # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
        self._window.is_open = False
        batches = self._window.accumulated
        if batches and not trainer.should_stop:
            rank_zero_warn(
                f"Epoch {trainer.current_epoch} ended inside an accumulation window: the gradients of its last "
                f"{batches} batches are dropped. Have its loader yield as many batches as its length says."
            )
        self._follow_batches(trainer, pl_module, self._window.first_batch + batches - 1, batches, stepped=False)

    def _follow_batches(
        self, trainer: Trainer, pl_module: LightningModule, last_batch: int, batches: int, *, stepped: bool
    ) -> None:
        """Advance the schedulers by steps, at a window's end, as windows of one batch each would have."""
        if self.lr_interval == "step" or batches == 0:
            return
        end, counted = last_batch + 1, batches
        if trainer.max_steps != -1:  # the rest of the schedule is min(steps left, batches left)
            batches_left = math.inf
            if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
                batches_left = (trainer.max_epochs - trainer.current_epoch) * trainer.num_training_batches - end
            steps_left = trainer.max_steps - trainer.global_step
            counted = int(min(steps_left + stepped, batches_left + batches) - min(steps_left, batches_left))
        for config in trainer.lr_scheduler_configs:
            if config.interval == "step" and not config.reduce_on_plateau:  # that one counts checks of its metric
                taken = int(stepped and end % config.frequency == 0)  # by Lightning, on the last batch
                for _ in range(end // config.frequency - (end - counted) // config.frequency - taken):
                    pl_module.lr_scheduler_step(config.scheduler, None)

    def _refuse_other_assignments(self, trainer: Trainer) -> None:
        if trainer.accumulate_grad_batches != self._window.length:
            raise MisconfigurationException(
                f"{type(self).__name__} had set accumulate_grad_batches to {self._window.length}, but something else "
                f"has since set it to {trainer.accumulate_grad_batches}, which corrupts gradients: remove what does so."
            )

    def _write(self, trainer: Trainer) -> None:
        """Log the latest step, if it is not logged yet."""
        if self._unwritten is None:
            return
        (step, length), self._unwritten = self._unwritten, None
        metrics = {"accumulation/steps": float(length)}
        for group, rate in enumerate(self._rates.used, 1):
            of_group = f"/pg{group}" if len(self._rates.used) > 1 else ""
            metrics[f"accumulation/lr{of_group}"] = float(rate)
        windows.publish(trainer, metrics, step)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": {"name": type(self.policy).__name__, "state": self._policy.state_dict()},
            "next_length": self._next_length,
            "window": asdict(self._window),
            "unit": self._weights.unit,
            "lr_scale": self._rates.scale,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        self.history, self._window = self.history if self._training else [], OpenWindow(**state_dict["window"])
        self._weights.unit = state_dict["unit"]
        if self.lr_scale == "auto":
            self._rates.scale = state_dict.get("lr_scale", "none")  # version 0.2 scaled no rate unless told to
        if state_dict["policy"]["name"] != type(self.policy).__name__:
            return  # another policy goes on: it starts anew, and is asked when the open window has closed
        self._policy.load_state_dict(state_dict["policy"]["state"])
        self._next_length = state_dict["next_length"]
        if isinstance(self.policy, MaskingPolicy):  # it may be resumed with a smaller max_steps
            self._next_length = self.policy.steps

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save what an open window has gathered so far, so that a run resumed inside it goes on exactly."""
        self._rates.restore_in(checkpoint)
        # not accumulate_grad_batches: callbacks that save on an exception come after on_exception, where it is 1 again
        length = self._window.length if self._window.is_open else 1
        if not windows.can_save_open_window(trainer, length):
            return
        windows.save_open_counts(trainer, self._counter(pl_module), checkpoint)
        if isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):  # each rank holds whole gradients
            items = windows.sum_over_ranks(trainer, on_device(self._items)).item() if self._counts_items else 0.0
            gradients = mean_gradients(trainer, pl_module)
            of_ranks = {"items": items, "gradients": gradients, "ranks": self._ranks}
            checkpoint[GRADIENTS] = {"meaning": dict(self._meaning)} | of_ranks

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._fitting:
            self._saved = {key: checkpoint[key] for key in (windows.COUNTS, GRADIENTS) if key in checkpoint}


def mean_gradients(trainer: Trainer, pl_module: LightningModule) -> dict[str, Tensor]:
    """The mean of the ranks' gradients (inside a window DDP has not taken it): each rank resumes from it."""
    parameters = list(pl_module.named_parameters())
    present = torch.tensor([parameter.grad is not None for _, parameter in parameters], device=pl_module.device)
    on_any_rank = windows.sum_over_ranks(trainer, present.long()).tolist()  # a rank may not have used a parameter yet
    gradients = {}
    for (name, parameter), ranks in zip(parameters, on_any_rank, strict=True):
        if ranks:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            gradients[name] = trainer.strategy.reduce(gradient.detach(), reduce_op="mean").cpu()
    return gradients


def refuse(
    trainer: Trainer, pl_module: LightningModule, callback: AdaptiveGradientAccumulation, items_from: str | None
) -> None:
    """Raise unless Lightning takes the steps, ``callback`` alone says when, and the module counts what is needed."""
    name, module, strategy = (type(part).__name__ for part in (callback, pl_module, trainer.strategy))
    given, by_items = trainer.accumulate_grad_batches, callback.normalize == "items"
    rivals: tuple[type[Callback], ...] = (AdaptiveGradientAccumulation, GradientAccumulationScheduler)
    if any(isinstance(part, _BatchNorm) for part in pl_module.modules()):  # it accumulates to renew the statistics
        rivals += (StochasticWeightAveraging,)
    others: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    rival = next((other for other in others if isinstance(other, rivals) and other is not callback), None)
    known_to_be_exact = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy))
    takes_iterator = is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True)
    cases = {
        f"{name} cannot change the accumulation of {strategy}, which (as DeepSpeed does) accumulates by itself. Use "
        "strategy='ddp' or 'fsdp', or remove the callback.": trainer.strategy.handles_gradient_accumulation,
        f"{name}(normalize='items') is not known to be exact with {strategy}. Use strategy='ddp' or "
        "ModelParallelStrategy, or normalize='batches'.": by_items and not known_to_be_exact,
        f"{name} starts from 1 batch a step, got Trainer(accumulate_grad_batches={given}). Remove that argument (it is "
        f"StepSchedule({{0: {given}}})), or the callback.": given != 1,
        f"{name} and {type(rival).__name__} both set accumulate_grad_batches: remove one of them.": rival is not None,
        f"{name} needs automatic optimization, but {module}.automatic_optimization is False. Set it to True, or remove "
        "the callback and call as_lightning.functional.accumulation_steps.": not pl_module.automatic_optimization,
        f"{name} needs to know which batch comes, but {module}.training_step takes a dataloader_iter: take (batch, "
        "batch_idx), or remove the callback.": takes_iterator,
        f"normalize='items' needs the number of items in each batch, and {module} has neither a masking counter nor "
        "items_in_batch(batch). Say it with items=lambda batch: ...": by_items and items_from is None,
    }
    for message in (message for message, applies in cases.items() if applies):
        raise MisconfigurationException(message)
    if isinstance(callback.policy, MaskingPolicy):
        windows.masking_counter(pl_module, callback)
