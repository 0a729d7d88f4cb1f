"""Accumulation windows whose length changes while training runs, exactly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from numbers import Integral
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
from as_lightning.callbacks.accumulation_policy import AccumulationWindow, MaskingPolicy, Policy
from as_lightning.callbacks.item_weights import Items, ItemWeights, multiply_gradients
from as_lightning.callbacks.learning_rate_scale import RATE_FACTORS, ScaledRates
from as_lightning.callbacks.window import COUNTS
from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.counts import MaskingCounts
from as_lightning.masking_counter import WindowSums

# key of a checkpoint: an open window's gradients, and their weights
GRADIENTS = "as_lightning_open_gradients"


@dataclass
class OpenWindow:
    """The place of the open window, or of the window that was closed last."""

    first_batch: int = 0  # 0-based, in the epoch
    length: int = 1  # trainer.accumulate_grad_batches while it is open
    accumulated: int = 0  # batches whose gradients have been added
    is_open: bool = False  # whether its optimizer step is still to come


class AdaptiveGradientAccumulation(windows.WindowCallback):
    r"""Let a policy say how many batches each optimizer step gathers, at any step of training,
    exactly.

    Each window takes as many batches as the policy wants and `aligned_window` allows. The weights
    equal, bit for bit, those of a loop that accumulates these windows by hand. Logs
    ``accumulation/steps``, ``accumulation/loss`` (the mean of the losses, weighed as their
    gradients are) and, where ``lr_scale`` acts, ``accumulation/lr``, at the first step, the last
    one and every ``log_every_n_steps``.

    Args:
        policy: a function of the closed `AccumulationWindow` that returns the length of the next
            one, the same on all ranks, such as `AccumulationSchedule` or `TokenBudget`. Without it
            AS-Speed, of which ``max_steps``, ``scale`` and ``monotone`` are arguments
            (`accumulation_steps`).
        lr_interval: what schedulers with ``interval="step"`` follow: ``"batch"``, the batches, so
            that a schedule of ``trainer.estimated_stepping_batches`` ends with training; or
            ``"step"``, as Lightning does it.
        lr_scale: a step of $k$ batches takes the scheduler's rate (``"none"``), $\sqrt k$ times it
            (``"sqrt"``, for Adam: Malladi et al., 2022) or $k$ times it (``"linear"``, for SGD:
            Goyal et al., 2017). ``"auto"`` is ``"sqrt"`` for AS-Speed and ``"none"`` for all
            others, and in a resumed run what it was before.
        items: the gradient is the mean over all items of a window, of which a batch has
            ``items(batch)``. By ``"module"`` they are the module's ``items_in_batch(batch)``, or
            else the samples of its masking counter. Without it the gradient is the mean over the
            batches.
        loss_is: what ``training_step`` returns: the ``"mean"`` over the batch's items, or their
            ``"sum"``.
        normalize: deprecated; ``items`` says it.

    Attributes:
        history: the `AccumulationWindow` of each window since training began or was resumed, each
            of some 400 bytes.

    Raises:
        ValueError: if an argument lies outside its range, or the number of items in a batch is
            negative or not finite.
        TypeError: if a policy is none, or a number no number.
        MisconfigurationException: for what the page on accumulation lists, mostly when ``fit``
            starts.

    Source: paper, section on AS-Speed, for the default policy.

    Examples:
        >>> speed = AdaptiveGradientAccumulation(max_steps=4)
        >>> trainer = Trainer(callbacks=[speed], logger=False, enable_checkpointing=False)
        >>> speed.history
        []
    """

    sets_length = True

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        max_steps: int | None = None,
        scale: float | None = None,
        monotone: bool | None = None,
        lr_interval: Literal["batch", "step"] = "batch",
        lr_scale: Literal["auto", "none", "sqrt", "linear"] = "auto",
        items: Callable[[Any], Any] | Literal["module"] | None = None,
        loss_is: Literal["mean", "sum"] = "mean",
        normalize: Literal["batches", "items"] | None = None,
    ) -> None:
        check_choice("lr_interval", lr_interval, ("batch", "step"))
        check_choice("lr_scale", lr_scale, ("auto", "none", *RATE_FACTORS))
        check_choice("loss_is", loss_is, ("mean", "sum"))
        if normalize is not None:
            check_choice("normalize", normalize, ("batches", "items"))
            if normalize == "batches" and items is not None:
                raise ValueError(
                    "items= weighs the items of a window: leave it out, or normalize='batches'"
                )
            items = (items or "module") if normalize == "items" else None
            replacement = f"items={'...' if callable(items) else items!r} says it"
            warnings.warn(
                f"normalize={normalize!r} is deprecated: {replacement}", FutureWarning, stacklevel=2
            )
        if not (items is None or callable(items)):
            check_choice("items", items, ("module",))
        if loss_is == "sum" and items is None:
            raise ValueError(
                "loss_is='sum' says how items weigh: say what they are with items= too, or leave "
                "it out"
            )
        options = {"max_steps": max_steps, "scale": scale, "monotone": monotone}
        speed_options: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        if policy is not None and speed_options:
            raise ValueError(
                f"{', '.join(speed_options)}: arguments of AS-Speed, which cannot stand beside "
                f"{policy!r}"
            )
        if isinstance(policy, type) or not (policy is None or callable(policy)):
            expected = (
                "policy must be a function of the closed window, as an AccumulationSchedule is"
            )
            raise TypeError(f"{expected}, got {policy!r} (for AS-Speed write max_steps=4)")
        self.policy: Policy = MaskingPolicy(**speed_options) if policy is None else policy
        self._by = getattr(self.policy, "by", "samples")  # the count of a window that it reads
        if self._by == "items" and items is None:
            raise ValueError(
                f"{type(self.policy).__name__} goes by items: say what they are with items="
            )
        self.lr_interval, self.lr_scale = lr_interval, lr_scale
        self._weights, self._rates = ItemWeights(items, loss_is), ScaledRates(self._batches_in_step)
        self._ranks = 1
        self._training = False  # while it is, a learning-rate search may load a checkpoint
        super().__init__()

    def _reset(self) -> None:
        by_default = "sqrt" if isinstance(self.policy, MaskingPolicy) else "none"
        self._rates.scale = by_default if self.lr_scale == "auto" else self.lr_scale
        self._weights.unit = None
        self._seen: tuple[int, float] = (0, 0)  # samples and items since training began
        self.history: list[AccumulationWindow] = []
        self._window, self._next_length = OpenWindow(), None  # type: OpenWindow, int | None  # the policy's last answer
        self._batch_items: Any = None  # None if they are counted later
        self._loss_computed = (
            False  # that of the batch, which an optimizer may compute several times in a step
        )

    def _batches_in_step(self) -> int:
        return self._window.accumulated + 1 if self._window.is_open else 0

    @property
    def _meaning(self) -> dict[str, Any]:
        """How the gradients of an open window are weighed, to compare it with a checkpoint's."""
        by = "batches" if self._weights.source is None else "items"
        return {"normalize": by, "loss_is": self._weights.loss_is, "items": self._weights.source}

    # The start and the end of fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._fitting:
            self._window, self._warned = OpenWindow(), False  # a checkpoint may set another window

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        self._weights.start(pl_module)
        self.needs_counts = self._by == "samples" or self._weights.source == "masking_counter"
        refuse(trainer, pl_module, self, self._weights.source)
        self._ranks = windows.ranks_with_own_batches(trainer)[1]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._training = True
        self._rates.follow(trainer.optimizers[0])
        # A resumed epoch loop reads it to see whether the checkpoint's batch had stepped. It must
        # not be set earlier: trainer.estimated_stepping_batches, which configure_optimizers may
        # read, divides by it.
        trainer.accumulate_grad_batches = self._window.length
        if self._window.is_open and self._window.accumulated:
            self._resume_window(trainer, pl_module)

    def _resume_window(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the gradients and the sums of a checkpoint's open window."""
        window, counter = self._window, self.counter(pl_module)
        saved = self._saved.pop(GRADIENTS, None)
        if saved is None:
            rank_zero_warn(
                f"The checkpoint lies inside a window, after {window.accumulated} of its "
                f"{window.length} batches, and "
                "holds no gradients of these: the window's step takes the mean over its other "
                "batches."
            )
            window.accumulated, counter.items, counter.loss = 0, 0.0, torch.zeros(())
            return
        counter.weigh(
            0.0, torch.zeros(())
        )  # one rank goes on with the sums of all, others need a loss too
        if saved["meaning"] != self._meaning:
            raise MisconfigurationException(
                f"The checkpoint lies inside a window of {saved['meaning']}, whose gradients do "
                "not add to those of "
                f"{self._meaning}: resume with its settings, or from a checkpoint between two "
                "windows."
            )
        # the saved mean stands for the gradients of all ranks that have saved it
        factor = 1.0 if self._weights.source is None else saved["ranks"] / self._ranks
        factor *= (scale := gradient_scale(trainer)) / saved.get(
            "scale", scale
        )  # 0.3 and before saved none
        for name, parameter in pl_module.named_parameters():
            if name in saved["gradients"]:
                parameter.grad = saved["gradients"][name].to(parameter.device) * factor

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        self._leave(trainer)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._leave(trainer)

    def _leave(self, trainer: Trainer) -> None:
        if self._training:  # otherwise it may be the user's value, which was refused
            trainer.accumulate_grad_batches, self._training = 1, False
        self._rates.leave()
        self._weights.leave()

    # One window

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        window = self._window
        if not (
            window.is_open and window.first_batch < batch_idx < window.first_batch + window.length
        ):
            self._open_window(trainer, batch_idx)
            if self._ranks > 1:  # each needs a loss to sum, also where training_step returns None
                self.counter(pl_module).weigh(0.0, torch.zeros((), device=pl_module.device))
        self._loss_computed = False
        if self._by == "samples" and windows.find_counter(pl_module) is None:
            self._batch_samples = torch.tensor([0, self._batch_size(batch), 0, 0])
        self._batch_items = self._weights.count(pl_module, batch, batch_idx)

    def _batch_size(self, batch: Any) -> int:
        """The number of samples in a batch; 0 where Lightning cannot tell it, and no schedule needs
        it.
        """
        try:
            if isinstance(batch, Iterator):  # to look for its size would use it up
                raise MisconfigurationException("an iterator has no size")
            return extract_batch_size(batch)
        except MisconfigurationException:
            if hasattr(self.policy, "by"):
                raise MisconfigurationException(
                    f"by='samples' needs the size of each batch, which Lightning cannot tell of a "
                    f"{type(batch).__name__}: take a schedule by='step', or batches that hold "
                    "their tensors in a "
                    "tuple, a list or a dict."
                ) from None
            return 0

    def _open_window(self, trainer: Trainer, batch_idx: int) -> None:
        remaining = trainer.num_training_batches - batch_idx
        if (
            remaining == math.inf and trainer.is_last_batch
        ):  # a stream shows its end only with its last batch
            remaining = 1
        if self._next_length is None:
            empty = AccumulationWindow(
                trainer.current_epoch, 0, 0, 0, 0, 0, trainer.global_step, 1, *self._seen
            )
            self._next_length = self._wanted_length(empty)
        if self._next_length > trainer.num_training_batches and not self._warned:
            self._warned = True
            rank_zero_warn(
                f"The policy wants windows of {self._next_length} batches, and an epoch has "
                f"{trainer.num_training_batches}: a window ends with its epoch, so none is longer "
                "than that."
            )
        length = windows.aligned_window(batch_idx, self._next_length, remaining)
        self._window = OpenWindow(first_batch=batch_idx, length=length, is_open=True)
        trainer.accumulate_grad_batches = length
        self._rates.follow(trainer.optimizers[0])  # it may have been replaced

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        recomputed, self._loss_computed = self._loss_computed, True
        if recomputed and self._window.accumulated:
            raise MisconfigurationException(
                f"{type(trainer.optimizers[0]).__name__} computes the loss several times in a "
                "step, and Lightning adds "
                f"each gradient to those of the window's other batches, {self._window.accumulated} "
                "here. "
                f"Use an optimizer that computes it once, or remove {type(self).__name__}."
            )
        counter, weights = self.counter(pl_module), self._weights
        if self._by == "samples" and counter is self._sizes:
            self._sizes.update(MaskingCounts(*self._batch_samples))
        if weights.source == "masking_counter":
            self._batch_items = weights.counted(counter)
        super().on_before_backward(trainer, pl_module, loss)
        items = self._batch_items
        if weights.source is not None and weights.unit is None:  # once in a training
            local = torch.as_tensor(items, dtype=torch.float64) if self._ranks > 1 else items
            weights.see(
                float(windows.sum_over_ranks(trainer, local) if self._ranks > 1 else local),
                self._ranks,
            )
        items, weighed = weights.weigh(pl_module, loss, items)
        if not recomputed:
            scaler = scaler_of(trainer)
            counter.weigh(
                items,
                weighed if scaler is None else weighed / scaler.scale(torch.ones_like(weighed)),
            )

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._weights.end_backward()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Make the gradients means over the items, before they are clipped and after a scaler has
        unscaled them.
        """
        if self._weights.source is None:  # one item a batch, which all ranks know
            items: Items = self._ranks * (self._window.accumulated + 1.0)
        else:
            items = self.counter(pl_module).items
            if (
                self._closed is not None or self._ranks > 1 or isinstance(items, Tensor)
            ):  # closed: LBFGS comes again
                items = self.close_window(trainer, pl_module).items
        multiply_gradients(optimizer, self._weights.factor(items, self._ranks, self._window.length))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        outside_window = not self._window.is_open  # a batch of None: no on_train_batch_start
        self._window.accumulated += not outside_window
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if outside_window:
            self._advance_schedulers(
                trainer, pl_module, batch_idx, 1, stepped=windows.window_ends(trainer)
            )

    def on_window_end(
        self, trainer: Trainer, pl_module: LightningModule, sums: WindowSums, stepped: bool
    ) -> None:
        window, weights = self._window, self._weights
        if not window.is_open:
            return
        window.is_open = False
        batches = self._ranks * window.accumulated
        counts, items, loss = (
            sums if weights.source is not None else sums._replace(items=float(batches))
        )
        device_sums = (
            torch.cat([counts.to(items), items.reshape(1)]) if isinstance(items, Tensor) else counts
        )
        has_counts = (
            self.needs_counts
            or weights.source is not None
            or windows.find_counter(pl_module) is not None
        )
        values: list[Any] = (
            device_sums.tolist() if has_counts else [0, 0]
        )  # the window's one host read
        masked, samples, items = (
            int(values[0]),
            int(values[1]),
            values[4] if isinstance(items, Tensor) else items,
        )
        length = (
            trainer.fit_loop.batch_idx + 1 - window.first_batch
        )  # not `accumulated`: a resume may lose gradients
        factor = weights.factor(items, 1, window.length)
        if weights.source is None:
            items = samples
        else:
            weights.see(items, batches)
        self._seen = self._seen[0] + samples, self._seen[1] + items
        place, steps = (trainer.current_epoch, window.first_batch, length), trainer.global_step
        wanted = self._next_length or 1
        self.history.append(
            AccumulationWindow(*place, masked, samples, items, steps, wanted, *self._seen)
        )
        self._next_length = self._wanted_length(self.history[-1])
        self._advance_schedulers(
            trainer, pl_module, window.first_batch + length - 1, length, stepped=True
        )
        if not stepped:  # the loader gave None
            if length > 1:
                rank_zero_warn(
                    f"The loader gave None for batch {trainer.fit_loop.batch_idx}, the last of an "
                    "accumulation window. "
                    "Lightning takes no step then: the gradients of the window's other batches, "
                    f"{length - 1}, are "
                    "dropped. Have the loader leave such batches out."
                )
            return
        self.log_step(trainer, steps - 1, length, 0.0 if loss is None else loss * factor)

    def _wanted_length(self, window: AccumulationWindow) -> int:
        """The length that the policy wants after ``window``."""
        length = self.policy(window)
        if isinstance(length, bool) or not isinstance(length, Integral) or length < 1:
            expected = "A policy must return the number of batches of the next window, an integer of at least 1"
            raise MisconfigurationException(
                f"{expected}, got {length!r} from {self.policy!r} after {window}."
            )
        return int(length)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._window.is_open:
            return
        # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
        self._window.is_open = False
        batches = self._window.accumulated
        if batches and not trainer.should_stop:
            rank_zero_warn(
                f"Epoch {trainer.current_epoch} ended inside an accumulation window: the gradients "
                "of its last "
                f"{batches} batches are dropped. Have its loader yield as many batches as its "
                "length says."
            )
        self._advance_schedulers(
            trainer, pl_module, self._window.first_batch + batches - 1, batches, stepped=False
        )

    def _advance_schedulers(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        last_batch: int,
        batches: int,
        *,
        stepped: bool,
    ) -> None:
        """Advance the schedulers with ``interval="step"`` at a window's end, as windows of one
        batch would have.
        """
        if self.lr_interval == "step" or batches == 0:
            return
        end, advance = last_batch + 1, batches
        if trainer.max_steps != -1:  # the schedule has min(steps left, batches left) to go
            batches_left = math.inf
            if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
                batches_left = (
                    trainer.max_epochs - trainer.current_epoch
                ) * trainer.num_training_batches - end
            steps_left = trainer.max_steps - trainer.global_step
            advance = int(
                min(steps_left + stepped, batches_left + batches) - min(steps_left, batches_left)
            )
        for config in trainer.lr_scheduler_configs:
            if (
                config.interval == "step" and not config.reduce_on_plateau
            ):  # which counts checks of its metric
                lightning_steps = int(
                    stepped and end % config.frequency == 0
                )  # on the window's last batch
                for _ in range(
                    end // config.frequency - (end - advance) // config.frequency - lightning_steps
                ):
                    pl_module.lr_scheduler_step(config.scheduler, None)

    def _refuse_other_assignments(self, trainer: Trainer) -> None:
        if trainer.accumulate_grad_batches != self._window.length:
            raise MisconfigurationException(
                f"{type(self).__name__} had set accumulate_grad_batches to {self._window.length}, "
                "but something else "
                f"has since set it to {trainer.accumulate_grad_batches}, which corrupts gradients: "
                "remove what does so."
            )

    def write_step(self, trainer: Trainer, step: int, *what: Any) -> None:
        length, loss = what
        metrics = {"accumulation/steps": float(length), "accumulation/loss": float(loss)}
        for group, rate in enumerate(self._rates.used, 1):
            suffix = f"/pg{group}" if len(self._rates.used) > 1 else ""
            metrics[f"accumulation/lr{suffix}"] = float(rate)
        windows.publish(trainer, metrics, step)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": type(self.policy).__name__,
            "next_length": self._next_length,
            "seen": self._seen,
            "window": asdict(self._window),
            "unit": self._weights.unit,
            "lr_scale": self._rates.scale,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        self.history, self._window = (
            self.history if self._training else [],
            OpenWindow(**state_dict["window"]),
        )
        self._weights.unit = state_dict["unit"]
        if self.lr_scale == "auto":
            self._rates.scale = state_dict.get(
                "lr_scale", "none"
            )  # version 0.2 scaled no rate by default
        policy, seen = state_dict["policy"], state_dict.get("seen", ())
        if isinstance(policy, dict):  # version 0.3: policies had a state of their own
            policy, state = (
                policy["name"].replace("StepSchedule", "AccumulationSchedule"),
                policy["state"],
            )
            seen = (state.get("samples", 0), 0.0)
        self._seen = (*seen,)
        if policy != type(self.policy).__name__:
            return  # the new policy is asked when the open window has closed
        self._next_length = state_dict["next_length"]
        if isinstance(self.policy, MaskingPolicy):  # it may be resumed with a smaller max_steps
            self._next_length = min(self._next_length or 1, self.policy.max_steps)

    def _open_length(self, trainer: Trainer) -> int:
        # not accumulate_grad_batches: callbacks that save on an exception come after on_exception,
        # where it is 1 again
        return self._window.length if self._window.is_open else 1

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the gradients of an open window, so that a run resumed inside it goes on exactly."""
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        self._rates.restore_in(checkpoint)
        unsharded = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
        if COUNTS in checkpoint and unsharded:
            saved = {
                "meaning": self._meaning,
                "gradients": mean_gradients(trainer, pl_module),
                "ranks": self._ranks,
            }
            checkpoint[GRADIENTS] = {**saved, "scale": gradient_scale(trainer)}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        if self._fitting and GRADIENTS in checkpoint:
            saved = self._saved[GRADIENTS] = checkpoint[GRADIENTS]
            if "items" in saved:  # version 0.3 had them here, and did not sum the losses
                items = torch.tensor([saved["items"], math.nan], dtype=torch.float64)
                self._saved[COUNTS] = torch.cat([self._saved[COUNTS][:4].double(), items])


def scaler_of(trainer: Trainer) -> Any:
    """The gradient scaler of 16-bit mixed precision; None without one."""
    return getattr(trainer.precision_plugin, "scaler", None)


def gradient_scale(trainer: Trainer) -> float:
    """The factor by which a gradient scaler has scaled the gradients of an open window."""
    return 1.0 if (scaler := scaler_of(trainer)) is None else scaler.get_scale()


def mean_gradients(trainer: Trainer, pl_module: LightningModule) -> dict[str, Tensor]:
    """The mean of the ranks' gradients, from which each rank resumes. (Inside a window DDP has not
    taken it.)
    """
    parameters = list(pl_module.named_parameters())
    present = torch.tensor(
        [parameter.grad is not None for _, parameter in parameters], device=pl_module.device
    )
    on_any_rank = windows.sum_over_ranks(
        trainer, present.long()
    ).tolist()  # a rank may not have used a parameter yet
    gradients = {}
    for (name, parameter), ranks in zip(parameters, on_any_rank, strict=True):
        if ranks:
            gradient = (
                torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            )
            gradients[name] = trainer.strategy.reduce(gradient.detach(), reduce_op="mean").cpu()
    return gradients


def refuse(
    trainer: Trainer,
    pl_module: LightningModule,
    callback: AdaptiveGradientAccumulation,
    items_from: str | None,
) -> None:
    """Raise unless Lightning takes the steps, ``callback`` alone sets when, and the needed counts
    are there.
    """
    name, module, strategy = (
        type(part).__name__ for part in (callback, pl_module, trainer.strategy)
    )
    given = trainer.accumulate_grad_batches
    rivals: tuple[type[Callback], ...] = (
        AdaptiveGradientAccumulation,
        GradientAccumulationScheduler,
    )
    if any(
        isinstance(part, _BatchNorm) for part in pl_module.modules()
    ):  # SWA accumulates to renew the statistics
        rivals += (StochasticWeightAveraging,)
    others: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    rival = next(
        (other for other in others if isinstance(other, rivals) and other is not callback), None
    )
    known_to_be_exact = isinstance(
        trainer.strategy, (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy)
    )
    takes_iterator = is_param_in_hook_signature(
        pl_module.training_step, "dataloader_iter", explicit=True
    )
    cases = {
        f"{name} cannot change the accumulation of {strategy}, which (as DeepSpeed does) "
        "accumulates by itself. Use "
        "strategy='ddp' or 'fsdp', or remove the "
        "callback.": trainer.strategy.handles_gradient_accumulation,
        f"{name}(items=...) is not known to be exact with {strategy}. Use strategy='ddp' or "
        "ModelParallelStrategy, or "
        "leave items= out.": items_from is not None and not known_to_be_exact,
        f"{name} starts from 1 batch a step, got Trainer(accumulate_grad_batches={given}). Remove "
        "that argument (it is "
        f"AccumulationSchedule({{0: {given}}})), or the callback.": given != 1,
        f"{name} and {type(rival).__name__} both set accumulate_grad_batches: remove one of "
        "them.": rival is not None,
        f"{name} needs automatic optimization, but {module}.automatic_optimization is False. Set "
        "it to True, or remove "
        "the callback and call "
        "as_lightning.functional.accumulation_steps.": not pl_module.automatic_optimization,
        f"{name} needs to know which batch comes, but {module}.training_step takes a "
        "dataloader_iter: take (batch, "
        "batch_idx), or remove the callback.": takes_iterator,
        f"items='module' needs the number of items in each batch, and {module} has neither a "
        "masking counter nor "
        "items_in_batch(batch). Say it with items=lambda batch: ...": items_from == "nothing",
    }
    for message in (message for message, applies in cases.items() if applies):
        raise MisconfigurationException(message)
    if isinstance(callback.policy, MaskingPolicy):
        windows.masking_counter(pl_module, callback)
