"""The masked loss in the place of a module's own loss attribute, with the settings of the loss it
replaces.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

from as_lightning.masking_counter import MaskedLoss

# PyTorch's cross-entropy, of logits or of log-probabilities, and that of several labels
MODULES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.BCEWithLogitsLoss)
FUNCTIONS = (F.cross_entropy, F.nll_loss, F.binary_cross_entropy_with_logits)
# methods of a loss that its stand-in does not call
NOT_CALLED = ("__call__", "_apply", "state_dict", "_save_to_state_dict", "_load_from_state_dict")
HUGGINGFACE_CLASSIFIER = re.compile(
    r"For(?!AudioFrame)\w*Classification$"
)  # sequences, tokens, images, audio


class InPlaceOf(nn.Module):
    """A stand-in for another loss, ``outside``, to which it passes reads and writes of attributes.

    For ``isinstance`` it is of the class of ``replaced``, or an ``nn.Module`` where that is none.
    """

    outside: Any

    def __init__(self, replaced: Any) -> None:
        super().__init__()
        vars(self)["_replaced_class"] = (
            type(replaced) if isinstance(replaced, nn.Module) else nn.Module
        )

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return vars(self).get("_replaced_class", nn.Module)

    def __reduce__(self) -> Any:  # by default pickle refuses a __class__ that is not the type
        return object.__new__, (type(self),), self.__getstate__()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or name == "outside":
                raise
            return getattr(self.outside, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.outside, name, value)

    def get_extra_state(self) -> Any:
        return self.outside.get_extra_state()

    def set_extra_state(self, state: Any) -> None:
        self.outside.set_extra_state(state)

    def _get_name(self) -> str:
        return type(self).__name__


class CountedLoss(InPlaceOf):
    """The owner's `as_softmax_loss`, or its multi-label loss, with the settings of the loss that it
    replaces.

    The replaced loss holds the settings, and each call reads them. Its weights keep their names in
    state dicts; those of a ``functools.partial`` are in none.
    """

    def __init__(self, owner: Any, replaced: Any) -> None:
        super().__init__(replaced)
        refuse_what_would_be_lost(replaced)
        outside, settings = replaced, settings_of(replaced)
        multilabel = of_several_labels(replaced)
        if not isinstance(replaced, nn.Module):
            outside = (
                nn.BCEWithLogitsLoss(**settings) if multilabel else nn.CrossEntropyLoss(**settings)
            )
            outside._non_persistent_buffers_set |= {*outside._buffers}
        # it shares the weights and hooks: with `outside` as a submodule, names in state dicts would
        # change
        vars(self).update({name: vars(outside)[name] for name in vars(nn.Module())})
        vars(self).update(_owner=owner, outside=outside, multilabel=multilabel)

    def train(self, mode: bool = True) -> CountedLoss:
        vars(self).get("outside", nn.Identity()).train(
            mode
        )  # a module that 0.3 has pickled lacks it
        return super().train(mode)

    @property
    def delta(self) -> float:
        """The owner's `as_softmax_delta`, to read and to set."""
        return self._owner.as_softmax_delta

    @delta.setter
    def delta(self, value: float) -> None:
        self._owner.as_softmax_delta = value

    def forward(self, input: Tensor, target: Tensor, *others: Any, **named: Any) -> Tensor:
        if others:
            extra = ", ".join(type(other).__name__ for other in others)
            raise TypeError(
                f"the masked loss is called as loss(logits, target), and got also {extra}: give it "
                "by name, set it in "
                "the loss that is replaced, or call self.as_softmax_loss(logits, target, ...)"
            )
        settings = _supported_settings(shown_by(self) | named, self.multilabel)
        if self.multilabel:
            if (
                input.dim() != 2 or input.size(1) == 1
            ):  # PyTorch's loss takes any shape: it has no label dimension
                raise ValueError(
                    "the loss that takes the place of nn.BCEWithLogitsLoss expects logits of shape "
                    "(N, C) with C labels"
                    f" per sample, two or more, got {tuple(input.shape)}: of one label no margin "
                    "can be met, so leave "
                    "that loss as it is, or give the model two classes. If there are more "
                    "dimensions, call "
                    "self.multilabel_as_softmax_loss(logits, target) in training_step, with the "
                    "labels in dimension 1"
                )
            self._owner.as_softmax_multilabel = (
                True  # a Hugging Face classifier may know it by its first labels alone
            )
            return self._owner.multilabel_as_softmax_loss(input, target, **settings)
        return self._owner.as_softmax_loss(input, target, **settings)

    def extra_repr(self) -> str:
        settings = _supported_settings(shown_by(self), self.multilabel)
        settings |= (
            {"weight": f"of {settings['weight'].numel()} classes"} if "weight" in settings else {}
        )
        return ", ".join(
            f"{name}={value}" for name, value in {"delta": self.delta, **settings}.items()
        )


class LossOfLabels(nn.Module):
    """A forward hook that replaces the ``loss`` in a Hugging Face classifier's output, given its
    logits and ``labels``.

    ``make`` makes the new loss from PyTorch's cross-entropy, or from that of several labels, by
    ``problem_type``. The hook raises ``TypeError`` if the model computes another loss, as one with
    class weights: they would be lost.
    """

    def __init__(self, make: Callable[[Any], nn.Module]) -> None:
        super().__init__()
        self.loss, self.multilabel_loss = make(nn.CrossEntropyLoss()), make(nn.BCEWithLogitsLoss())
        self.checked = False

    def forward(
        self, model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        plain_model: Any = getattr(model, "_orig_mod", model)  # of torch.compile
        labels = named.get("labels")
        if labels is None and arguments:
            labels = (
                inspect.signature(plain_model.forward)
                .bind_partial(*arguments)
                .arguments.get("labels")
            )
        if labels is None:
            return
        model_name = type(plain_model).__name__
        if not hasattr(output, "logits"):
            raise TypeError(
                f"{model_name} must return an output with logits, got {type(output).__name__}: use "
                "return_dict=True"
            )
        logits, labels = output.logits, labels.to(output.logits.device)
        multilabel = plain_model.config.problem_type == "multi_label_classification"
        if not multilabel:
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if not self.checked:
            model_loss, float_logits = output.loss.detach().float(), logits.detach().float()
            function = F.binary_cross_entropy_with_logits if multilabel else F.cross_entropy
            plain_loss = function(float_logits, labels.float() if multilabel else labels)
            tolerance = 1e-3 if output.loss.dtype == torch.float32 else 2e-2
            if not torch.allclose(
                model_loss, plain_loss, rtol=tolerance, atol=tolerance, equal_nan=True
            ):
                raise TypeError(
                    f"the loss of {model_name}, {model_loss:.4g}, is not the mean cross-entropy of "
                    "its logits and "
                    f"labels, {plain_loss:.4g}: what it adds (class weights, a mask) would be "
                    "lost. Leave the labels "
                    "out, and call self.as_softmax_loss(logits, target) in training_step"
                )
            self.checked = not model_loss.isnan()  # NaN where all labels are ignored
        output["loss"] = (self.multilabel_loss if multilabel else self.loss)(logits, labels)


def replace_loss(module: Any, name: str, make: Callable[[Any], nn.Module]) -> bool:
    """Replace the loss that is the attribute ``name`` of ``module`` by ``make(loss)``; dots reach
    into submodules.

    Returns whether it is known to be the loss of several labels.

    If the attribute is a Hugging Face classifier, the loss that it computes from ``labels`` is
    replaced. It raises ``AttributeError`` if there is no such attribute or it cannot be set,
    ``TypeError`` if it is no loss, and ``ValueError`` if it is replaced already.
    """
    parent_name, _, attribute = name.rpartition(".")
    try:
        parent = attrgetter(parent_name)(module) if parent_name else module
        replaced = getattr(parent, attribute)
    except AttributeError:
        raise AttributeError(
            f"{type(module).__name__} has no attribute {name!r} after its __init__ (its modules "
            "are: "
            f"{', '.join(dict(module.named_children()))}): name the attribute that training_step "
            "calls as loss(logits, "
            "target), or a Hugging Face model. A loss that is a local call (F.cross_entropy(...)) "
            "cannot be replaced "
            "from outside: call self.as_softmax_loss there."
        ) from None
    if _is_huggingface_classifier(replaced):
        if any(isinstance(hook, LossOfLabels) for hook in replaced._forward_hooks.values()):
            raise ValueError(
                f"the loss of this {type(replaced).__name__} is replaced already: make a new model"
            )
        module.loss_of_labels = LossOfLabels(make)  # as a submodule it moves with the module
        replaced.register_forward_hook(module.loss_of_labels, with_kwargs=True)
        return bool(replaced.config.problem_type == "multi_label_classification")
    _refuse_non_loss(name, replaced)
    loss = make(replaced)
    parent.__dict__.pop(
        attribute, None
    )  # a plain function there would hide the module that takes its place
    setattr(parent, attribute, loss)
    if (
        getattr(parent, attribute) is not loss
    ):  # an attribute of the class hides a submodule of that name
        parent.__dict__[attribute] = loss
    if getattr(parent, attribute) is not loss:
        raise AttributeError(
            f"{name!r} is a property of {type(parent).__name__}, which cannot be replaced: name "
            "the attribute that "
            "holds the loss, or call self.as_softmax_loss in training_step."
        )
    return getattr(loss, "multilabel", False)


def refuse_another_loss(module: Any, name: str) -> None:
    """Raise unless ``name`` of ``module`` is still the masked loss, or a user's function, which may
    call that.
    """
    try:
        loss = attrgetter(name)(module)
    except AttributeError:
        loss = None
    function = _function_of(loss)
    if isinstance(function, nn.Module):
        masked = any(
            isinstance(inner, CountedLoss)
            or any(isinstance(hook, LossOfLabels) for hook in inner._forward_hooks.values())
            for inner in function.modules()
        )
    else:
        masked = function is not None and function not in FUNCTIONS
    if not masked:
        raise MisconfigurationException(
            f"{type(module).__name__}.{name} has been set to {loss!r} since training began: the "
            "rest would be that "
            f"loss's. Change the masked loss in its place, as in self.{name}.weight = ..., and for "
            "plain softmax set "
            "self.as_softmax_delta = 1.0"
        )


def _is_huggingface_classifier(part: Any) -> bool:
    """Whether ``part`` is a classification model of ``transformers``; others are refused, as they
    may shift labels.
    """
    # every configuration of transformers has a problem_type
    if not isinstance(part, nn.Module) or not hasattr(
        getattr(part, "config", None), "problem_type"
    ):
        return False
    model = type(getattr(part, "_orig_mod", part))  # of torch.compile
    config: Any = part.config
    regression = (
        config.problem_type or ("regression" if config.num_labels == 1 else "")
    ) == "regression"
    if regression or not any(
        HUGGINGFACE_CLASSIFIER.search(base.__name__) for base in model.__mro__
    ):
        raise TypeError(
            f"{model.__name__} is no classification model of transformers "
            "(...For...Classification, with two labels or "
            "more): its loss is not that of logits and labels, row by row. Let the module have "
            "ASSoftmaxMixin, and "
            "call self.as_softmax_loss(logits, target) in training_step"
        )
    return True


def _refuse_non_loss(name: str, replaced: Any) -> None:
    function = _function_of(replaced)
    if isinstance(function, MaskedLoss):
        raise TypeError(
            f"{name!r} names {type(function).__name__}, which has a margin of its own and is "
            "counted as it is: have "
            "the module make an nn.CrossEntropyLoss, which can be replaced, or leave "
            "ASSoftmaxMixin out"
        )
    is_lightning_method = inspect.ismethod(function) and hasattr(
        pl.LightningModule, function.__name__
    )
    is_layer = type(function).__module__.startswith("torch.nn.") and not isinstance(function, _Loss)
    if is_lightning_method or is_layer or not callable(function):
        description = f"torch.nn's {type(function).__name__}" if is_layer else repr(replaced)
        description = (
            f"the method {function.__name__} that every module has"
            if is_lightning_method
            else description
        )
        raise TypeError(
            f"{name!r} names {description}, which is no loss: name the attribute that "
            "training_step calls as "
            "loss(logits, target), or call self.as_softmax_loss there"
        )


def refuse_what_would_be_lost(loss: Any, *, hooks: bool = False) -> None:
    """Raise ``TypeError`` if a loss overrides what its stand-in does not call, or, under ``hooks``,
    has hooks.
    """
    function = _function_of(loss)
    if not isinstance(function, nn.Module):
        return
    lost = [
        name for name in NOT_CALLED if getattr(type(function), name) is not getattr(nn.Module, name)
    ]
    lost += [
        name for name, value in vars(function).items() if hooks and name.endswith("hooks") and value
    ]
    if lost:
        raise TypeError(
            f"the masked loss cannot take the place of this {type(function).__name__}, whose "
            f"{lost[0]} would be lost: "
            "call self.as_softmax_loss(logits, target) in training_step"
        )


def settings_of(loss: Any) -> dict[str, Any]:
    """The settings that the replacement of a loss keeps: ``weight``, ``ignore_index`` and
    ``reduction``.

    They are the attributes of a module, or arguments in a ``functools.partial``. It raises
    ``TypeError`` if the loss is not PyTorch's cross-entropy, and ``ValueError`` if it has other
    settings than these three.

    >>> settings_of(partial(nn.CrossEntropyLoss(ignore_index=0), reduction="sum"))
    {'ignore_index': 0, 'reduction': 'sum'}
    """
    function = _function_of(loss)
    if function not in FUNCTIONS and getattr(type(function), "forward", None) not in [
        kind.forward for kind in MODULES
    ]:
        raise TypeError(
            "the masked loss cannot take the place of "
            f"{getattr(function, '__name__', type(function).__name__)}, which "
            "may do more than cross-entropy: let it be "
            f"{', '.join(kind.__name__ for kind in (*MODULES, *FUNCTIONS))}, "
            "or a functools.partial of one, name the one inside it, as 'criterion.inner', or call "
            "self.as_softmax_loss(logits, target) in training_step"
        )
    if isinstance(loss, partial) and loss.args:
        raise ValueError(
            f"the loss to replace is a partial with {len(loss.args)} positional arguments, whose "
            "meaning cannot be "
            "told: give them by name"
        )
    return _supported_settings(shown_by(loss), of_several_labels(loss))


def _supported_settings(settings: Mapping[str, Any], multilabel: bool) -> dict[str, Any]:
    supported = ("reduction",) if multilabel else ("weight", "ignore_index", "reduction")
    effective = {
        name: value for name, value in settings.items() if not _changes_nothing(name, value)
    }
    if unsupported := [name for name in effective if name not in supported]:
        raise ValueError(
            "the loss to replace is given "
            f"{', '.join(f'{name}={effective[name]!r}' for name in unsupported)}, which "
            f"the losses in its place cannot carry on: they know {', '.join(supported)}. Drop it, "
            "or call "
            "self.as_softmax_loss in training_step"
        )
    return effective


def shown_by(loss: Any) -> dict[str, Any]:
    """The settings of any loss that its attributes or a ``functools.partial`` show."""
    function, names = (
        _function_of(loss),
        ("weight", "pos_weight", "ignore_index", "reduction", "label_smoothing"),
    )
    shown = {name: getattr(function, name) for name in names if hasattr(function, name)}
    return shown | (loss.keywords if isinstance(loss, partial) else {})


def of_several_labels(loss: Any) -> bool:
    """Whether this is PyTorch's loss of several labels."""
    function = _function_of(loss)
    return (
        isinstance(function, nn.BCEWithLogitsLoss) or function is F.binary_cross_entropy_with_logits
    )


def _function_of(loss: Any) -> Any:
    return loss.func if isinstance(loss, partial) else loss


def _changes_nothing(name: str, value: Any) -> bool:
    """Whether a setting is None, the number 0 or no class; False and a tensor of several numbers
    are none of these.
    """
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.item()
    if name == "ignore_index":
        return bool(value == -100)
    return value is None or (
        isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
    )
