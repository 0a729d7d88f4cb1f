"""The masked loss for a LightningModule, a new module or an existing one."""

from __future__ import annotations

import inspect
import itertools
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning.pytorch as pl
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn

from as_lightning.fitted_temperature import FittedTemperature, weights_of
from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.calibration import scaled_probabilities, weights_digest
from as_lightning.functional.calling_convention import HeadOperands
from as_lightning.functional.class_parallel import DTensor
from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import cross_entropy_of_head, why_not_linear
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.masking_counter import MaskingCounter
from as_lightning.replaced_loss import masked_loss, replace_loss
from as_lightning.schedules import DeltaWarmup, WarmupOfTraining

HOOKS = ("on_fit_start", "on_train_batch_start", "on_train_batch_end", "on_save_checkpoint", "on_load_checkpoint")
TEMPERATURE_KEY, LENGTH_KEY = "as_softmax_temperature", "as_softmax_training_batches"  # in checkpoints

if TYPE_CHECKING:
    _Base = pl.LightningModule
else:
    _Base = object


class ASSoftmaxMixin(_Base):
    r"""Gives a ``LightningModule`` the AS-Softmax loss and reports the masking to the callbacks.

    Name it *before* the module's class. In a new module, call `as_softmax_loss` in ``training_step``. Or mix it into an
    existing module whose ``training_step`` calls an attribute as ``loss(logits, target)``, and name that attribute
    (dots reach into submodules), as in the example. Its ``weight``, ``ignore_index`` and ``reduction`` stay in force,
    also if a ``functools.partial`` sets them. An ``nn.BCEWithLogitsLoss`` becomes the multi-label loss, of logits
    ``(N, C)`` with two labels or more. Of a Hugging Face classifier that is named, the ``loss`` that it computes from
    ``labels`` is replaced.

    The loss is the masked one in validation and test too, so ``val_loss`` is not comparable with that of a softmax run.
    With ``as_softmax_validation = "softmax"`` losses outside training are plain softmax cross-entropy (``delta=1``).

    Args:
        *args: positional arguments of the next class in line.
        delta: the margin, in [0, 1]; 0.1 if it is None. If the next class has its own argument ``delta``, that class
            gets the value, and the margin is the class attribute ``as_softmax_delta``.
        delta_warmup: a schedule of the margin for the start of training.
        **kwargs: keyword arguments of the next class in line.

    Attributes:
        as_softmax_replaces: the attribute to replace; None in a module that calls `as_softmax_loss` itself.
        as_softmax_validation: the loss outside training: ``"as_softmax"``, at the margin ``delta`` also during a
            warm-up, or ``"softmax"``.
        as_softmax_progress: the share of training that is done, in [0, 1]: set it before each batch in a loop without a
            Trainer (Fabric, or your own), where a ``delta_warmup`` needs it.
        as_softmax_temperature: what `predict_proba` divides the logits by; None where none is fitted for the present
            weights. `TemperatureScaling` fits it, and checkpoints restore it.
        as_softmax_multilabel: whether `predict_proba` gives a probability for each of several labels. A replaced
            ``nn.BCEWithLogitsLoss`` and `TemperatureScaling` set it.
        masking_counter: counts the masking, in training only. If one step computes two losses, both are counted.

    Raises:
        ValueError: if the margin is out of range, or the loss to replace has settings that AS-Softmax cannot carry on.
        TypeError: if an argument is of a wrong type or ``as_softmax_replaces`` names no loss of classes. When a
            class is made that names the mixin after its module, hides its hooks without a call of ``super()``, or has a
            next class with an argument ``delta`` and no ``as_softmax_delta``.
        AttributeError: if ``as_softmax_replaces`` names nothing that the module has after its ``__init__``.
        MisconfigurationException: in training, after the first batch that computes a loss and counts nothing.

    Source: paper, section III; Lightning's ``save_hyperparameters`` collects ``delta`` with the module's own arguments.

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
        CountedLoss(delta=0.2, reduction='mean', ignore_index=-100)
    """

    as_softmax_replaces: ClassVar[str | None] = None
    as_softmax_validation: Literal["as_softmax", "softmax"] = "as_softmax"
    as_softmax_progress: float | None = None
    _as_softmax_class_delta: ClassVar[float | None] = None  # the margin where a class says it
    _as_softmax_warned = False
    masking_counter: MaskingCounter

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        margin = vars(cls).get("as_softmax_delta")
        if margin is not None and not isinstance(margin, property):
            cls._as_softmax_class_delta = check_delta(margin)
            del cls.as_softmax_delta
        place = cls.__mro__.index(ASSoftmaxMixin)
        before, after = cls.__mro__[:place], cls.__mro__[place + 1 :]
        if pl.LightningModule in before:
            mixin_first = sorted(cls.__bases__, key=lambda base: not issubclass(base, ASSoftmaxMixin))
            bases = ", ".join(base.__name__ for base in mixin_first)
            raise TypeError(
                f"class {cls.__name__} names ASSoftmaxMixin after its LightningModule, whose methods hide those of the "
                f"mixin: training would be that of plain softmax. Name the mixin first: class {cls.__name__}({bases})"
            )
        for base, hook in itertools.product(before, HOOKS):
            code = getattr(inspect.unwrap(vars(base).get(hook, None)), "__code__", None)
            if code is not None and hook not in code.co_names:
                raise TypeError(
                    f"{base.__name__}.{hook} hides that of ASSoftmaxMixin, which must run: call super().{hook}(...)"
                )
        made = [base for base in after if "__init__" in vars(base)]
        own = next((base for base in made if "delta" in inspect.signature(base.__init__).parameters), None)  # type: ignore[misc]
        if own is not None and cls._as_softmax_class_delta is None:
            raise TypeError(
                f"{own.__name__}.__init__ has an argument delta of its own. Set the margin of AS-Softmax in the class, "
                f"as in `as_softmax_delta = {DEFAULT_DELTA}`: then delta= goes to {own.__name__}"
            )

    def __init__(
        self, *args: Any, delta: float | None = None, delta_warmup: DeltaWarmup | None = None, **kwargs: Any
    ) -> None:
        check_choice("as_softmax_validation", self.as_softmax_validation, ("as_softmax", "softmax"))
        margin = kwargs.pop("as_softmax_delta", None)
        if margin is not None:
            message = "as_softmax_delta= is deprecated: delta= is the margin, or as_softmax_delta of the class"
            warnings.warn(message, FutureWarning, stacklevel=2)
        if self._as_softmax_class_delta is None:
            # Lightning's save_hyperparameters, which the next class calls, reads `delta` and `kwargs` in this frame
            delta = margin = check_delta(next((x for x in (margin, delta) if x is not None), DEFAULT_DELTA))
            super().__init__(*args, **kwargs)  # LightningCLI reads here that the next class's arguments are taken
        else:
            margin = self._as_softmax_class_delta if margin is None else check_delta(margin)
            self._init_of_next(*args, **kwargs, **({} if delta is None else {"delta": delta}))
        self.masking_counter = MaskingCounter()
        if delta_warmup is not None and not isinstance(delta_warmup, DeltaWarmup):
            raise TypeError(f"delta_warmup must be a DeltaWarmup, such as DeltaWarmup(ratio=0.1), got {delta_warmup!r}")
        self._as_softmax_warmup = None if delta_warmup is None else WarmupOfTraining(delta_warmup)
        self.as_softmax_delta = margin  # LightningCLI saves the arguments as given: None for the default
        self._as_softmax_fitted = FittedTemperature()
        if self.as_softmax_replaces is not None:
            several = replace_loss(self, self.as_softmax_replaces, partial(masked_loss, self))
            self._as_softmax_fitted.multilabel = several or None

    def _init_of_next(self, *args: Any, **kwargs: Any) -> None:
        """The next class's ``__init__``, whose ``delta`` is its own: save_hyperparameters does not look beyond this."""
        super().__init__(*args, **kwargs)

    @property
    def as_softmax_delta(self) -> float:
        """The margin as it was set, also a replaced loss's ``delta``; setting it sets the hyperparameter too."""
        if not hasattr(self, "_as_softmax_delta"):
            raise RuntimeError(
                f"{type(self).__name__} was not initialised by ASSoftmaxMixin: name the mixin before the module's "
                "class, as in `class Model(ASSoftmaxMixin, LightningModule)`, and call `super().__init__(delta=...)` "
                "first in its __init__."
            )
        return self._as_softmax_delta

    @as_softmax_delta.setter
    def as_softmax_delta(self, value: float) -> None:
        self._as_softmax_delta = check_delta(value)
        # not that of a module's own, or of its configuration, as save_hyperparameters(config) has it
        of_arguments = getattr(self, "_hparams_name", None) in (None, "kwargs")
        if self._as_softmax_class_delta is None and of_arguments and "delta" in self.hparams:
            self.hparams["delta"] = self._as_softmax_delta

    @property
    def as_softmax_temperature(self) -> float | None:
        return self._as_softmax_fitted.read(self)

    @as_softmax_temperature.setter
    def as_softmax_temperature(self, value: float | None) -> None:
        self._as_softmax_fitted.set(value, weights_of(self))

    @property
    def as_softmax_multilabel(self) -> bool:  # a class may say it in its place
        return bool(self._as_softmax_fitted.multilabel)

    @as_softmax_multilabel.setter
    def as_softmax_multilabel(self, value: bool) -> None:
        self._as_softmax_fitted.multilabel = value

    @property
    def current_delta(self) -> float:
        """The margin that the next loss uses: ``as_softmax_delta``, in training as ``delta_warmup`` has it, and 1 in an
        evaluation with ``as_softmax_validation = "softmax"``.
        """
        delta = self.as_softmax_delta
        if not self._in_training:
            return 1.0 if self.as_softmax_validation == "softmax" and self._in_evaluation else delta
        if self._as_softmax_warmup is None:
            return delta
        return self._as_softmax_warmup.margin(self._trainer, self.as_softmax_progress, delta)

    @property
    def _in_training(self) -> bool:
        # a trainer knows better than train(): parts in eval mode are trained too, as in fine-tuning
        return self.training if self._trainer is None else self._trainer.training

    @property
    def _in_evaluation(self) -> bool:
        trainer = self._trainer
        if trainer is None or trainer.state.stage is None:  # called by hand, before a fit or after it
            return not self.training
        return trainer.evaluating or trainer.sanity_checking or trainer.predicting

    def on_fit_start(self) -> None:
        """Forget the counts before this training."""
        super().on_fit_start()
        self.masking_counter.start(self.trainer)
        if self._as_softmax_warmup is not None:
            self._as_softmax_warmup.start(self.trainer)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Drop the temperature, which was fitted for the weights before this batch, and fix the batch's margin."""
        self._as_softmax_fitted.value = None
        if self._as_softmax_warmup is not None:
            self._as_softmax_warmup.begin_batch(self.trainer, self.as_softmax_delta)
        return super().on_train_batch_start(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Refuse a module whose loss is not the masked one: it would train on without a word."""
        super().on_train_batch_end(outputs, batch, batch_idx)
        self.masking_counter.refuse_silence(self, outputs)

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
        settings: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}
        return self._counted(*as_cross_entropy(logits, target, self.current_delta, return_counts=True, **settings))

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
        """The same loss of ``head(hidden)`` for a wide ``nn.Linear`` head, without ever holding the logits.

        See `as_linear_cross_entropy`; ``weight`` holds class weights. It reads the head's ``weight`` and ``bias``, with
        their parametrizations, and does not call ``head.forward``. They may be DTensors, ``Shard(0)``, as
        ``ColwiseParallel`` makes them.

        Raises:
            TypeError: if ``head`` is not exactly an ``nn.Linear``, or has hooks other than those of a parallel style.
        """
        _check_linear_head(head)
        operands, delta = HeadOperands(hidden, head.weight, head.bias, target, weight), self.current_delta
        return self._counted(*cross_entropy_of_head(operands, delta, ignore_index, reduction, self._in_training))

    def multilabel_as_softmax_loss(
        self, logits: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> Tensor:
        """`multilabel_as_cross_entropy` at `current_delta`, with counting."""
        settings: dict[str, Any] = {"ignore_index": ignore_index, "reduction": reduction, "return_counts": True}
        return self._counted(*multilabel_as_cross_entropy(logits, target, self.current_delta, **settings))

    def _counted(self, loss: Tensor, counts: MaskingCounts | None) -> Tensor:
        if counts is not None and self._in_training:
            self.masking_counter.update(counts)
        return loss

    def predict_proba(self, logits: Tensor) -> Tensor:
        """The probabilities of logits, classes last: ``softmax(logits / as_softmax_temperature)``, or ``sigmoid`` for
        several labels. Without a fitted temperature (see `TemperatureScaling`) it warns once and uses 1.
        """
        temperature = self.as_softmax_temperature
        if temperature is None and not self._as_softmax_warned:
            self._as_softmax_warned = True
            rank_zero_warn(
                f"no temperature is fitted for the weights of {type(self).__name__}, so predict_proba gives those of "
                "temperature 1. Train with the callback TemperatureScaling and validation data"
            )
        return scaled_probabilities(logits, temperature, self.as_softmax_multilabel)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the temperature of the weights in the checkpoint, the length of training that a warm-up has begun with,
        and what `load_from_checkpoint` needs where the module's own hyperparameters are without it.
        """
        super().on_save_checkpoint(checkpoint)
        fitted = self._as_softmax_fitted  # a callback such as EMAWeightAveraging may save other weights
        known = fitted.value is not None and fitted.fits(weights_digest(checkpoint["state_dict"]))
        saved = {"temperature": fitted.value, "weights": fitted.weights} if known else {"temperature": None}
        checkpoint[TEMPERATURE_KEY] = {**saved, "multilabel": self.as_softmax_multilabel}
        warmup = self._as_softmax_warmup
        if warmup is not None and warmup.training_batches is not None:
            checkpoint[LENGTH_KEY] = warmup.training_batches
        key, name_key = self.CHECKPOINT_HYPER_PARAMS_KEY, self.CHECKPOINT_HYPER_PARAMS_NAME
        if key not in checkpoint or type(self).__init__ is not ASSoftmaxMixin.__init__:
            return
        saved = checkpoint[key]
        if checkpoint.get(name_key) not in (None, "kwargs"):  # save_hyperparameters(config): by the mixin's signature
            saved = {checkpoint[name_key]: saved}  # Lightning cannot know that there is an argument of that name
            checkpoint[name_key] = "kwargs"
            checkpoint.pop(self.CHECKPOINT_HYPER_PARAMS_TYPE, None)
        given: dict[str, Any] = {} if warmup is None else {"delta_warmup": warmup.warmup}
        if self._as_softmax_class_delta is None:
            given["delta"] = self.as_softmax_delta
        checkpoint[key] = given | dict(saved)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take over the length of a warm-up, and the temperature that was fitted for the checkpoint's weights."""
        super().on_load_checkpoint(checkpoint)
        if self._as_softmax_warmup is not None:
            self._as_softmax_warmup.training_batches = checkpoint.get(LENGTH_KEY)
        saved = checkpoint.get(TEMPERATURE_KEY, {"temperature": None, "multilabel": None})
        if saved["multilabel"] is not None:
            self._as_softmax_fitted.multilabel = bool(saved["multilabel"])
        weights = saved["weights"] if "weights" in saved else weights_digest(checkpoint.get("state_dict", {})) or None
        self._as_softmax_fitted.set(saved["temperature"], weights)


def _check_linear_head(head: nn.Linear) -> None:
    """Raise ``TypeError`` unless the logits of ``head`` are ``hidden @ weight.T + bias`` and nothing else."""
    known: tuple[str, ...] = ("lightning.pytorch.profilers.",)  # watch every module
    if isinstance(getattr(head, "weight", None), DTensor):
        known += ("torch.distributed.tensor.",)  # place input and output, as parallelize_module has them do
    kinds = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
    homes = [getattr(getattr(hook, "func", hook), "__module__", "") for kind in kinds for hook in kind.values()]
    problem = why_not_linear(head)
    if problem is None and not all(home.startswith(known) for home in homes):
        problem = "it has hooks, which would not be called"
    if problem is not None:
        raise TypeError(
            f"as_softmax_head_loss reads the weight and bias of an nn.Linear and does not call it, but {problem}: use "
            "self.as_softmax_loss(head(hidden), target)"
        )
