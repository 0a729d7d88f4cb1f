"""The masked loss for a LightningModule, a new module or an existing one."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning.pytorch as pl
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn

from as_lightning.fitted_temperature import FittedTemperature, own_weights, weights_of
from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.calibration import scaled_probabilities, weights_digest
from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import as_linear_cross_entropy, why_not_linear
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.masking_counter import MaskingCounter, uncounted
from as_lightning.mixed_class import check_class, complete_hyperparameters
from as_lightning.replaced_loss import CountedLoss, refuse_another_loss, replace_loss
from as_lightning.schedules import DeltaWarmup, WarmupOfTraining


def trainer_at_work(module: pl.LightningModule) -> pl.Trainer | None:
    """The trainer that runs a module; None where the module is called by hand, also before a fit or
    after it.
    """
    return (
        None if module._trainer is None or module._trainer.state.stage is None else module._trainer
    )


HOOKS = (
    "on_fit_start",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_save_checkpoint",
    "on_load_checkpoint",
)
TEMPERATURE_KEY, LENGTH_KEY = (
    "as_softmax_temperature",
    "as_softmax_training_batches",
)  # in checkpoints

if TYPE_CHECKING:
    _Base = pl.LightningModule
else:
    _Base = object


class ASSoftmaxMixin(_Base):
    r"""Gives a ``LightningModule`` the AS-Softmax loss and reports the masking to the callbacks.

    Name it *before* the module's class. In a new module, call `as_softmax_loss` in
    ``training_step``. Or mix it into an existing module whose ``training_step`` calls an attribute
    as ``loss(logits, target)``, and name that attribute (dots reach into submodules), as in the
    example. Its ``weight``, ``ignore_index`` and ``reduction`` stay in force, also if a
    ``functools.partial`` sets them. An ``nn.BCEWithLogitsLoss`` becomes the multi-label loss, of
    logits ``(N, C)`` with two labels or more. Any other loss is refused: what it does would be
    lost. If the attribute is a Hugging Face classifier, the ``loss`` that it computes from
    ``labels`` is replaced.

    The loss is the masked one in validation and test too, so ``val_loss`` is not comparable with
    that of a softmax run. With ``as_softmax_validation = "softmax"`` losses outside training are
    plain softmax cross-entropy (``delta=1``).

    Args:
        *args: positional arguments of the next class in line.
        delta: the margin, in [0, 1]; 0.1, the paper's, if it is None (tuning mostly chose 0.4 to
            1). If the next class has its own argument ``delta``, it gets the value, and the margin
            is the class's ``as_softmax_delta``.
        delta_warmup: a schedule of the margin for the start of training.
        **kwargs: keyword arguments of the next class in line.

    Attributes:
        as_softmax_replaces: the attribute to replace; None in a module that calls `as_softmax_loss`
            itself.
        as_softmax_validation: the loss outside training, ``"as_softmax"`` (at the final margin) or
            ``"softmax"``.
        as_softmax_progress: the share of training that is done, in [0, 1]: set it before each batch
            in a loop without a Trainer (Fabric, or your own), where a ``delta_warmup`` needs it.
        as_softmax_temperature: what `predict_proba` divides the logits by; None where none is
            fitted for the present weights. `TemperatureScaling` fits it, and checkpoints restore
            it.
        as_softmax_multilabel: whether `predict_proba` is of several labels. A replaced loss or a
            callback sets it.
        masking_counter: counts the masking, in training only. If one step computes two losses, both
            are counted.

    Raises:
        ValueError: if the margin is out of range, or the loss to replace has settings that
            AS-Softmax cannot carry on.
        TypeError: if an argument is of a wrong type or ``as_softmax_replaces`` names no
            cross-entropy of PyTorch's; when a class is defined that hides the mixin's methods, or
            has methods that the mixin hides, or has no ``as_softmax_delta`` and a next class with a
            ``delta``.
        AttributeError: if ``as_softmax_replaces`` names nothing that the module has after its
            ``__init__``.
        MisconfigurationException: in training, after the first batch that computes a loss and
            counts nothing, and where the attribute of ``as_softmax_replaces`` is set to another
            loss later.

    Source: paper, section III; Lightning's ``save_hyperparameters`` collects ``delta`` with the
        module's own arguments.

    Examples:
        >>> import lightning.pytorch as pl, torch
        >>> class Theirs(pl.LightningModule):
        ...     def __init__(self, features):
        ...         super().__init__()
        ...         self.save_hyperparameters()
        ...         self.net = torch.nn.Linear(features, 3)
        ...         self.criterion = torch.nn.CrossEntropyLoss()
        >>> class WithAS(ASSoftmaxMixin, Theirs):
        ...     as_softmax_replaces = "criterion"
        >>> WithAS(4, delta=0.2).criterion
        CountedLoss(delta=0.2, reduction=mean)
    """

    as_softmax_replaces: ClassVar[str | None] = None
    as_softmax_validation: Literal["as_softmax", "softmax"] = "as_softmax"
    as_softmax_progress: float | None = None
    _as_softmax_class_delta: ClassVar[float | None] = None  # the margin that a class sets
    _as_softmax_warned = _as_softmax_counted = False
    masking_counter: MaskingCounter

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        margin = vars(cls).get("as_softmax_delta")
        if margin is not None and not isinstance(margin, property):
            cls._as_softmax_class_delta = check_delta(margin)
            del cls.as_softmax_delta
        check_class(cls, ASSoftmaxMixin, HOOKS, margin=cls._as_softmax_class_delta)

    def __init__(
        self,
        *args: Any,
        delta: float | None = None,
        delta_warmup: DeltaWarmup | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("as_softmax_validation", self.as_softmax_validation, ("as_softmax", "softmax"))
        margin = kwargs.pop("as_softmax_delta", None)
        if margin is not None:
            message = "as_softmax_delta= is deprecated: delta= is the margin, or as_softmax_delta of the class"
            warnings.warn(message, FutureWarning, stacklevel=2)
        if self._as_softmax_class_delta is None:
            # Lightning's save_hyperparameters, which the next class calls, reads `delta` and
            # `kwargs` in this frame
            delta = margin = check_delta(
                next((x for x in (margin, delta) if x is not None), DEFAULT_DELTA)
            )
            super().__init__(
                *args, **kwargs
            )  # LightningCLI reads here that the arguments go to the next class
        else:
            margin = self._as_softmax_class_delta if margin is None else check_delta(margin)
            self._init_next_class(*args, **kwargs, **({} if delta is None else {"delta": delta}))
        self.masking_counter = MaskingCounter()
        self._as_softmax_warmup = WarmupOfTraining(delta_warmup)
        self.as_softmax_delta = (
            margin  # LightningCLI saves the arguments as given: None for the default
        )
        self._as_softmax_fitted = FittedTemperature()
        if self.as_softmax_replaces is not None:
            multilabel = replace_loss(self, self.as_softmax_replaces, partial(CountedLoss, self))
            self._as_softmax_fitted.multilabel = multilabel or None

    def _init_next_class(self, *args: Any, **kwargs: Any) -> None:
        """Call the next class's ``__init__``, whose ``delta`` is its own: save_hyperparameters
        stops at this frame.
        """
        super().__init__(*args, **kwargs)

    @property
    def as_softmax_delta(self) -> float:
        """The margin as it was set, also as a replaced loss's ``delta``; setting it sets the
        hyperparameter too.
        """
        if not hasattr(self, "_as_softmax_delta"):
            raise RuntimeError(
                f"{type(self).__name__} was not initialised by ASSoftmaxMixin: call "
                "`super().__init__(delta=...)` "
                "first in its __init__"
            )
        return self._as_softmax_delta

    @as_softmax_delta.setter
    def as_softmax_delta(self, value: float) -> None:
        self._as_softmax_delta = check_delta(value)
        # not a `delta` of the module's own, or of its configuration after
        # save_hyperparameters(config)
        saved_by_name = getattr(self, "_hparams_name", None) in (None, "kwargs")
        if self._as_softmax_class_delta is None and saved_by_name and "delta" in self.hparams:
            self.hparams["delta"] = self._as_softmax_delta

    @property
    def as_softmax_temperature(self) -> float | None:
        return self._as_softmax_fitted.read(self)

    @as_softmax_temperature.setter
    def as_softmax_temperature(self, value: float | None) -> None:
        self._as_softmax_fitted.set(value, weights_of(self))

    @property
    def as_softmax_multilabel(self) -> bool:  # a class may set it instead
        return bool(self._as_softmax_fitted.multilabel)

    @as_softmax_multilabel.setter
    def as_softmax_multilabel(self, value: bool) -> None:
        self._as_softmax_fitted.multilabel = value

    @property
    def current_delta(self) -> float:
        """The margin of the next loss, by ``delta_warmup`` in training and
        ``as_softmax_validation`` outside.
        """
        delta = self.as_softmax_delta
        if self._in_training:
            return self._as_softmax_warmup.margin(
                self, trainer_at_work(self), self.as_softmax_progress, delta
            )
        return 1.0 if self.as_softmax_validation == "softmax" else delta

    @property
    def _in_training(self) -> bool:
        # not by the mode where there is a trainer: parts in eval mode are trained too, as in
        # fine-tuning
        trainer = trainer_at_work(self)
        return self.training if trainer is None else trainer.training

    def on_fit_start(self) -> None:
        """Forget the counts before this training."""
        super().on_fit_start()
        self._as_softmax_counted = False
        self._as_softmax_warmup.start(self.trainer)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Drop the temperature, which was fitted for the weights before this batch, and fix the
        batch's margin.
        """
        self.masking_counter.begin_batch()
        self._as_softmax_fitted.value = None
        self._as_softmax_warmup.begin_batch(self.trainer, self.as_softmax_delta)
        return super().on_train_batch_start(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Raise if the module's loss is not the masked one, which training itself would
        not show.
        """
        super().on_train_batch_end(outputs, batch, batch_idx)
        replaced, counter = self.as_softmax_replaces, self.masking_counter
        counts = counter.counts is not None
        if replaced is not None and self._as_softmax_counted and not counts:
            refuse_another_loss(self, replaced)
        self._as_softmax_counted = self._as_softmax_counted or counts
        if outputs and not (self._as_softmax_counted or counter.may_be_silent):
            raise uncounted(self, self)

    def as_softmax_loss(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Tensor:
        """`as_cross_entropy` at `current_delta`, counted in training."""
        settings: dict[str, Any] = {
            "weight": weight,
            "ignore_index": ignore_index,
            "reduction": reduction,
        }
        return self._counted(
            *as_cross_entropy(logits, target, self.current_delta, return_counts=True, **settings)
        )

    def as_softmax_head_loss(
        self,
        hidden: Tensor,
        head: nn.Linear,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Tensor:
        """The same loss of ``head(hidden)`` for a wide ``nn.Linear`` head, without ever holding the
        logits.

        See `as_linear_cross_entropy`. It reads the head's ``weight`` and ``bias`` with their
        parametrizations, and does not call ``head.forward``. They may be DTensors, ``Shard(0)``, as
        ``ColwiseParallel`` makes them.

        Raises:
            TypeError: if ``head`` is not exactly an ``nn.Linear``, or has hooks other than those of
                a parallel style.
        """
        if (problem := why_not_linear(head, hooks=False)) is not None:
            raise TypeError(
                "as_softmax_head_loss reads the weight and bias of an nn.Linear and does not call "
                f"it, but {problem}: "
                "use self.as_softmax_loss(head(hidden), target)"
            )
        settings: Any = {
            "bias": head.bias,
            "weight": weight,
            "ignore_index": ignore_index,
            "reduction": reduction,
        }
        operands = hidden, head.weight, target, self.current_delta
        return self._counted(*as_linear_cross_entropy(*operands, return_counts=True, **settings))

    def multilabel_as_softmax_loss(
        self, logits: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> Tensor:
        """`multilabel_as_cross_entropy` at `current_delta`, with counting."""
        settings: dict[str, Any] = {
            "ignore_index": ignore_index,
            "reduction": reduction,
            "return_counts": True,
        }
        return self._counted(
            *multilabel_as_cross_entropy(logits, target, self.current_delta, **settings)
        )

    def _counted(self, loss: Tensor, counts: MaskingCounts) -> Tensor:
        if self._in_training:
            self.masking_counter.update(counts)
        return loss

    def predict_proba(self, logits: Tensor) -> Tensor:
        """The probabilities of logits, classes last: ``softmax(logits / as_softmax_temperature)``,
        or ``sigmoid`` for several labels. Without a fitted temperature (see `TemperatureScaling`)
        it warns once and uses 1.
        """
        temperature = self.as_softmax_temperature
        if temperature is None and not self._as_softmax_warned:
            self._as_softmax_warned = True
            rank_zero_warn(
                f"no temperature is fitted for the weights of {type(self).__name__}, so "
                "predict_proba gives those of "
                "temperature 1. Train with the callback TemperatureScaling and validation data"
            )
        return scaled_probabilities(logits, temperature, self.as_softmax_multilabel)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the temperature of the checkpoint's weights, training's length for a warm-up, and
        the arguments.
        """
        super().on_save_checkpoint(checkpoint)
        fitted = (
            self._as_softmax_fitted
        )  # a callback such as EMAWeightAveraging may save other weights
        temperature = fitted.saved_with(checkpoint["state_dict"])
        saved = {"temperature": temperature} | (
            {} if temperature is None else {"weights": fitted.weights}
        )
        checkpoint[TEMPERATURE_KEY] = {**saved, "multilabel": self.as_softmax_multilabel}
        if self._as_softmax_warmup.training_batches is not None:
            checkpoint[LENGTH_KEY] = self._as_softmax_warmup.training_batches
        if (
            self.CHECKPOINT_HYPER_PARAMS_KEY in checkpoint
            and type(self).__init__ is ASSoftmaxMixin.__init__
        ):
            warmup, margin = self._as_softmax_warmup.warmup, self._as_softmax_delta
            mixin_arguments: dict[str, Any] = {} if warmup is None else {"delta_warmup": warmup}
            mixin_arguments |= {"delta": margin} if self._as_softmax_class_delta is None else {}
            complete_hyperparameters(self, checkpoint, mixin_arguments)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore training's length for a warm-up, and the temperature that was fitted for the
        checkpoint's weights.
        """
        super().on_load_checkpoint(checkpoint)
        self._as_softmax_warmup.training_batches = checkpoint.get(LENGTH_KEY)
        saved = checkpoint.get(TEMPERATURE_KEY, {"temperature": None, "multilabel": None})
        if saved["multilabel"] is not None:
            self._as_softmax_fitted.multilabel = bool(saved["multilabel"])
        if "weights" not in saved and saved["temperature"] is not None:  # as before 0.4
            weights, state = own_weights(self), checkpoint.get("state_dict", {})
            tensors = {name: x for name, x in state.items() if name in weights}
            tensors |= {
                n: nn.Parameter(x, False)
                for n, x in tensors.items()
                if type(weights[n]) is nn.Parameter
            }
            saved = saved | {"weights": weights_digest(tensors) or None}
        self._as_softmax_fitted.set(saved["temperature"], saved.get("weights"))
