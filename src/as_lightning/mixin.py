"""The masked loss for a LightningModule, a new module or an existing one."""

from __future__ import annotations

import inspect
import warnings
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from as_lightning.fitted_temperature import FittedTemperature
from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.calibration import scaled_probabilities
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import as_linear_cross_entropy, check_linear
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.hugging_face import LossOfLabels, is_hugging_face_model
from as_lightning.losses import (
    ASSoftmaxLoss,
    MaskedLoss,
    check_one_class,
    masked_loss_like,
    masked_losses,
)

TEMPERATURE_KEY = "as_softmax_temperature"  # in checkpoints

if TYPE_CHECKING:
    _Base = pl.LightningModule
else:
    _Base = object


class ASSoftmaxMixin(_Base):
    r"""Gives a ``LightningModule`` the AS-Softmax loss.

    Name it *before* the module's class. In a new module, call `as_softmax_loss` in
    ``training_step``. Or mix it into an existing module whose ``training_step`` calls an attribute
    as ``loss(logits, target)``, and name that attribute: it becomes an `ASSoftmaxLoss` (or, of an
    ``nn.BCEWithLogitsLoss``, a `MultiLabelASSoftmaxLoss`) by its `like`. If the attribute is a
    Hugging Face classifier, the ``loss`` that it computes from ``labels`` is replaced.

    The loss is the masked one in validation and test too, so ``val_loss`` is not comparable with
    that of a softmax run.

    Args:
        *args: positional arguments of the next class in line.
        delta: the margin, in [0, 1].
        **kwargs: keyword arguments of the next class in line.

    Attributes:
        as_softmax_replaces: the attribute to replace (dots reach into submodules); None in a
            module that calls `as_softmax_loss` itself.
        as_softmax_validation: ``"softmax"`` for plain softmax cross-entropy in the trainer's
            validations and tests.
        as_softmax_delta: the margin of the next loss, also to set.
        as_softmax_temperature: what `predict_proba` divides the logits by; None where none is
            fitted for the present weights. `TemperatureScaling` fits it, and checkpoints have it.
        as_softmax_multilabel: whether `predict_proba` is of several labels. A replaced loss, a
            callback or `multilabel_as_softmax_loss` sets it, or the class to False or True.

    Raises:
        ValueError, TypeError: if the margin is no number in [0, 1].
        TypeError: if ``as_softmax_replaces`` names no cross-entropy of PyTorch's; where a class is
            defined, if its ``LightningModule`` comes first or has an argument ``delta`` too.
        AttributeError: if ``as_softmax_replaces`` names nothing that the module itself holds.
        MisconfigurationException: after the first batch whose loss is not the masked one.

    Source: paper, section III.

    Examples:
        >>> import lightning.pytorch as pl, torch
        >>> class Theirs(pl.LightningModule):
        ...     def __init__(self, features):
        ...         super().__init__()
        ...         self.save_hyperparameters()  # collects delta too
        ...         self.net = torch.nn.Linear(features, 3)
        ...         self.criterion = torch.nn.CrossEntropyLoss()
        >>> class WithAS(ASSoftmaxMixin, Theirs):
        ...     as_softmax_replaces = "criterion"
        >>> WithAS(4, delta=0.2).criterion
        ASSoftmaxLoss(delta=0.2)
    """

    as_softmax_replaces: ClassVar[str | None] = None
    as_softmax_validation: Literal["as_softmax", "softmax"] = "as_softmax"
    as_softmax: MaskedLoss

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        position = cls.__mro__.index(ASSoftmaxMixin)
        if pl.LightningModule in cls.__mro__[:position]:
            raise TypeError(
                f"class {cls.__name__} names ASSoftmaxMixin after its LightningModule, so training "
                "would be that of plain softmax: name the mixin first"
            )
        for base in cls.__mro__[position + 1 :]:
            own_init: Any = vars(base).get("__init__", object.__init__)
            if "delta" in inspect.signature(own_init).parameters:
                raise TypeError(
                    f"{base.__name__}.__init__ has an argument delta of its own: leave the mixin "
                    "out, and set self.criterion = ASSoftmaxLoss.like(self.criterion, delta=...)"
                )

    def __init__(self, *args: Any, delta: float = DEFAULT_DELTA, **kwargs: Any) -> None:
        # Lightning's save_hyperparameters, which the next class calls, reads `delta` and `kwargs`
        # in this frame; LightningCLI reads in the call that the arguments go to the next class.
        delta = check_delta(delta)
        super().__init__(*args, **kwargs)
        self._as_softmax_arguments = {"delta": delta}
        self._as_softmax_fitted = FittedTemperature()
        self._as_softmax_name = "as_softmax"
        if self.as_softmax_replaces is None:
            self.as_softmax = ASSoftmaxLoss(delta)
        elif is_hugging_face_model(attrgetter(self.as_softmax_replaces)(self)):
            self.as_softmax = LossOfLabels(attrgetter(self.as_softmax_replaces)(self), delta)
        else:
            self._as_softmax_name = self.as_softmax_replaces
            replace_loss(self, self.as_softmax_replaces, delta)

    @property
    def as_softmax_module(self) -> MaskedLoss:
        """The loss that holds the margin."""
        return attrgetter(self._as_softmax_name)(self)

    @property
    def as_softmax_delta(self) -> float:
        return self.as_softmax_module.delta

    @as_softmax_delta.setter
    def as_softmax_delta(self, value: float) -> None:
        self.as_softmax_module.delta = check_delta(value)

    @property
    def as_softmax_temperature(self) -> float | None:
        return self._as_softmax_fitted.read(self)

    @property
    def as_softmax_multilabel(self) -> bool:  # a class may set it instead
        known = self._as_softmax_fitted.multilabel
        return self.as_softmax_module.multilabel if known is None else known

    @as_softmax_multilabel.setter
    def as_softmax_multilabel(self, value: bool) -> None:
        self._as_softmax_fitted.multilabel = value

    def configure_callbacks(self) -> list[pl.Callback]:
        """Add the check that training calls the masked loss, and `as_softmax_validation`."""
        callbacks = super().configure_callbacks()
        if isinstance(callbacks, pl.Callback):
            callbacks = [callbacks]
        ours: list[pl.Callback] = [RefusesSilence()]
        check_choice("as_softmax_validation", self.as_softmax_validation, ("as_softmax", "softmax"))
        if self.as_softmax_validation == "softmax":
            ours.append(EvaluatesSoftmax())
        return [*callbacks, *ours]

    def as_softmax_loss(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        """`as_cross_entropy` at the module's margin, counted in training; ``settings`` are
        ``weight``, ``ignore_index`` and ``reduction``.
        """
        check_one_class(logits, target)
        return self.as_softmax_module.counted(as_cross_entropy, logits, target, **settings)

    def as_softmax_head_loss(
        self, hidden: Tensor, head: nn.Linear, target: Tensor, **settings: Any
    ) -> Tensor:
        """The same loss of ``head(hidden)`` for a wide ``nn.Linear`` head, without ever holding the
        logits.

        See `as_linear_cross_entropy`. Hooks of the head are not called.

        Raises:
            TypeError: if ``head`` is not exactly an ``nn.Linear``, without parametrizations.
        """
        check_linear(head, "use self.as_softmax_loss(head(hidden), target)")
        operands = hidden, head.weight, target
        settings = {"bias": head.bias, **settings}
        return self.as_softmax_module.counted(as_linear_cross_entropy, *operands, **settings)

    def multilabel_as_softmax_loss(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        """`multilabel_as_cross_entropy` at the module's margin, counted in training; ``settings``
        are ``ignore_index`` and ``reduction``.
        """
        loss = self.as_softmax_module
        loss.multilabel = True
        return loss.counted(multilabel_as_cross_entropy, logits, target, **settings)

    def predict_proba(self, logits: Tensor) -> Tensor:
        """The probabilities of logits, classes last: ``softmax(logits / as_softmax_temperature)``,
        or ``sigmoid`` for several labels.

        Without a fitted temperature (see `TemperatureScaling`) it warns and uses 1.
        """
        temperature = self.as_softmax_temperature
        if temperature is None:
            warnings.warn(
                f"no temperature is fitted for the weights of {type(self).__name__}, so "
                "predict_proba gives those of temperature 1. Train with the callback "
                "TemperatureScaling and validation data",
                stacklevel=2,
            )
        return scaled_probabilities(logits, temperature, self.as_softmax_multilabel)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the temperature of the checkpoint's weights, and the margin beside the arguments."""
        super().on_save_checkpoint(checkpoint)
        saved = self._as_softmax_fitted.saved_with(checkpoint["state_dict"])
        saved["multilabel"] = self.as_softmax_multilabel or None
        checkpoint[TEMPERATURE_KEY] = saved
        key, name_key = self.CHECKPOINT_HYPER_PARAMS_KEY, self.CHECKPOINT_HYPER_PARAMS_NAME
        if key not in checkpoint or type(self).__init__ is not ASSoftmaxMixin.__init__:
            return
        saved = dict(checkpoint[key])
        if checkpoint.get(name_key) not in (None, "kwargs"):
            # Lightning would look for the argument of save_hyperparameters(config) in the
            # signature of the mixin, which has none of that name.
            saved = {checkpoint[name_key]: checkpoint[key]}
            checkpoint[name_key] = "kwargs"
            checkpoint.pop(self.CHECKPOINT_HYPER_PARAMS_TYPE, None)
        # Lightning drops what a plain class does not take; the mixin's **kwargs would take it.
        taken = inspect.signature(super().__init__).parameters
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in taken.values()):
            saved = {name: saved[name] for name in saved if name in taken or name[0] == "_"}
        checkpoint[key] = self._as_softmax_arguments | saved

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the temperature that was fitted for the checkpoint's weights."""
        super().on_load_checkpoint(checkpoint)
        if TEMPERATURE_KEY in checkpoint:
            self._as_softmax_fitted.load(checkpoint[TEMPERATURE_KEY])


def replace_loss(module: nn.Module, name: str, delta: float) -> None:
    """Put a masked loss in the place of an attribute; dots in its name reach into submodules."""
    path, _, attribute = name.rpartition(".")
    parent = module.get_submodule(path)
    existing = getattr(parent, attribute)
    if isinstance(existing, MaskedLoss):  # of an earlier module around the same network
        existing.delta = check_delta(delta)
        return
    loss = masked_loss_like(existing, delta)
    setattr(parent, attribute, loss)
    for other, part in module.named_modules(remove_duplicate=False):
        if part is existing:
            raise TypeError(
                f"{name} and {other} are one loss, of which {other} would stay unmasked: give each "
                "a loss of its own"
            )
    if getattr(parent, attribute) is not loss:
        raise AttributeError(
            f"{name} is an attribute of the class {type(parent).__name__}, which hides that of an "
            "instance: set it in __init__, or call self.as_softmax_loss in training_step"
        )


class RefusesSilence(pl.Callback):
    """Raises after the first batch that computes a loss and calls no masked one."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        for loss in masked_losses(pl_module):
            loss.called = False

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *batch: Any) -> None:
        if any(loss.called for loss in masked_losses(pl_module)):
            # a new list: Lightning is going through the old one
            trainer.callbacks = [callback for callback in trainer.callbacks if callback is not self]
        elif outputs:
            raise MisconfigurationException(
                f"{type(pl_module).__name__}.training_step has computed a loss without the masked "
                "one: call self.as_softmax_loss(logits, target) there, or set as_softmax_replaces "
                "to the attribute that it calls as loss(logits, target)"
            )


class EvaluatesSoftmax(pl.Callback):
    """Turns the margin off in validation and test."""

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        for loss in masked_losses(pl_module):
            loss.masks = False

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        for loss in masked_losses(pl_module):
            loss.masks = True

    on_test_start = on_validation_start
    on_test_end = on_validation_end
    on_train_start = on_validation_end  # of a copy that was made in a validation

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.on_validation_end(trainer, pl_module)
