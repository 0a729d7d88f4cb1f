"""The masked loss in the place of a module's own loss attribute, with the settings of the loss it replaces."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from as_lightning.functional.calling_convention import class_dimension
from as_lightning.functional.tracing import recorded, traced
from as_lightning.masking_counter import MaskedLoss

# the losses of PyTorch whose place the masked loss can take: they score classes, by logits or by log-probabilities
MODULES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss, nn.BCEWithLogitsLoss)
FUNCTIONS = (F.cross_entropy, F.nll_loss, F.multi_margin_loss, F.binary_cross_entropy_with_logits)
STATISTICS = 1 << 20  # numbers that a frozen parameter of a loss's own has at most
HUGGINGFACE_CLASSIFIER = re.compile(r"For(?!AudioFrame)\w*Classification$")  # sequences, tokens, images, audio


class CountedLoss(nn.Module):
    """The owner's `as_softmax_loss`, or its multi-label loss, called as the loss in whose place it stands.

    ``persistent`` class weights are in state dicts. ``replaced`` is a loss of one's own: at the first call it is
    compared with the cross-entropy of the settings, and if it is another loss, or cannot be compared, a warning says
    what is lost.
    """

    _owner: Any
    _replaced: Any = None  # until it has been compared
    weight: Tensor | None

    def __init__(
        self,
        owner: Any,
        *,
        multilabel: bool,
        persistent: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        replaced: Any = None,
    ) -> None:
        super().__init__()
        # as a submodule the owner would contain itself, and what is replaced would be in state dicts
        vars(self).update(_owner=owner, _replaced=replaced)
        self.multilabel, self.ignore_index, self.reduction = multilabel, ignore_index, reduction
        self.register_buffer("weight", weight, persistent=persistent)

    @property
    def delta(self) -> float:
        """The owner's `as_softmax_delta`, to read and to set."""
        return self._owner.as_softmax_delta

    @delta.setter
    def delta(self, value: float) -> None:
        self._owner.as_softmax_delta = value

    def forward(self, input: Tensor, target: Tensor, *others: Any, **named: Any) -> Tensor:
        if others or named:
            given = ", ".join([*[type(other).__name__ for other in others], *(f"{name}=..." for name in named)])
            raise TypeError(
                f"the masked loss is called as loss(logits, target), and got also {given}: set it in the loss that is "
                "replaced, as in functools.partial(F.cross_entropy, reduction='sum'), or call "
                "self.as_softmax_loss(logits, target, ...)"
            )
        if self.multilabel:
            if input.dim() != 2 or input.size(1) == 1:  # PyTorch's loss takes any shape: it has no label dimension
                raise ValueError(
                    "the loss that takes the place of nn.BCEWithLogitsLoss expects logits of shape (N, C) with C labels"
                    f" per sample, two or more, got {tuple(input.shape)}: of one label no margin can be met, so leave "
                    "that loss as it is, or give the model two classes. If there are more dimensions, call "
                    "self.multilabel_as_softmax_loss(logits, target) in training_step, with the labels in dimension 1"
                )
            self._owner.as_softmax_multilabel = True  # a Hugging Face classifier may know it by its first labels alone
            return self._owner.multilabel_as_softmax_loss(input, target, reduction=self.reduction)
        # outside training it may be another one, as one without label smoothing
        if self._replaced is not None and torch.is_grad_enabled() and not (traced() or recorded(input)):
            self._compare_with_replaced(input.detach(), target)
        settings = {"weight": self.weight, "ignore_index": self.ignore_index, "reduction": self.reduction}
        return self._owner.as_softmax_loss(input, target, **settings)

    def _compare_with_replaced(self, logits: Tensor, target: Tensor) -> None:
        if target.is_floating_point() or target.dim() >= logits.dim():
            return
        why, same = "is not", None
        try:
            same = is_cross_entropy(self._replaced, logits, target, settings_of(self._replaced))
        except Exception as error:  # whatever a copy of it raises, or the copying
            why, same = f"could not be compared ({type(error).__name__}: {error}) with", False
        if same is None:
            return
        replaced = vars(self).pop("_replaced")
        if not same:
            _warn_of_another_loss(replaced, "self.as_softmax_loss(logits, target, weight=..., ignore_index=...)", why)

    def __getstate__(self) -> dict[str, Any]:
        function = _function_of(self._replaced)
        local = "<" in getattr(function, "__qualname__", type(function).__qualname__)  # which cannot be pickled
        return {name: value for name, value in vars(self).items() if not (name == "_replaced" and local)}

    def extra_repr(self) -> str:
        kind = "multilabel, " if self.multilabel else ""
        weight = "" if self.weight is None else f", weight of {self.weight.numel()} classes"
        return f"{kind}delta={self.delta}, reduction={self.reduction!r}, ignore_index={self.ignore_index}{weight}"


class LossOfLabels(nn.Module):
    """A forward hook: the ``loss`` of a Hugging Face classifier's output is another one of its logits and ``labels``.

    ``make`` makes it from the loss that the model computes; that of several labels where its ``problem_type`` says so.
    It raises ``TypeError`` where the model's own loss is another one, as with class weights: they would be lost.
    """

    def __init__(self, make: Callable[[Any], nn.Module]) -> None:
        super().__init__()
        self.loss, self.multilabel_loss = make(nn.CrossEntropyLoss()), make(nn.BCEWithLogitsLoss())
        self.checked = False

    def forward(self, model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        plain_model: Any = getattr(model, "_orig_mod", model)  # of torch.compile
        labels = named.get("labels")
        if labels is None and arguments:
            labels = inspect.signature(plain_model.forward).bind_partial(*arguments).arguments.get("labels")
        if labels is None:
            return
        kind = type(plain_model).__name__
        if not hasattr(output, "logits"):
            raise TypeError(
                f"{kind} must return an output with logits, got {type(output).__name__}: use return_dict=True"
            )
        logits, labels = output.logits, labels.to(output.logits.device)
        several = plain_model.config.problem_type == "multi_label_classification"
        if not several:
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if not self.checked:
            own, float_logits = output.loss.detach().float(), logits.detach().float()
            function = F.binary_cross_entropy_with_logits if several else F.cross_entropy
            plain = function(float_logits, labels.float() if several else labels)
            tolerance = 1e-3 if output.loss.dtype == torch.float32 else 2e-2
            if not torch.allclose(own, plain, rtol=tolerance, atol=tolerance, equal_nan=True):
                raise TypeError(
                    f"the loss of {kind}, {own:.4g}, is not the mean cross-entropy of its logits and labels, "
                    f"{plain:.4g}: what it adds (class weights, a mask) would be lost. Leave the labels out, and call "
                    "self.as_softmax_loss(logits, target) in training_step"
                )
            self.checked = not own.isnan()  # as it is where all labels are ignored
        output["loss"] = (self.multilabel_loss if several else self.loss)(logits, labels)


def replace_loss(module: Any, name: str, make: Callable[[Any], nn.Module]) -> bool:
    """Put ``make(loss)`` in the place of the loss that ``module`` has as ``name``; dots reach into submodules.

    Returns whether it is known to be the loss of several labels.

    Of a Hugging Face classifier it is the loss that the model computes from ``labels``. It raises ``AttributeError`` if
    there is no such attribute or it cannot be set, and ``TypeError`` if it is no loss of classes.
    """
    parent_name, _, attribute = name.rpartition(".")
    try:
        parent = attrgetter(parent_name)(module) if parent_name else module
        replaced = getattr(parent, attribute)
    except AttributeError:
        raise AttributeError(
            f"{type(module).__name__} has no attribute {name!r} after its __init__ (its modules are: "
            f"{', '.join(dict(module.named_children()))}): name the attribute that training_step calls as loss(logits, "
            "target), or a Hugging Face model. A loss that is a local call (F.cross_entropy(...)) cannot be replaced "
            "from outside: call self.as_softmax_loss there."
        ) from None
    if _is_huggingface_classifier(replaced):
        if any(isinstance(hook, LossOfLabels) for hook in replaced._forward_hooks.values()):
            raise ValueError(f"the loss of this {type(replaced).__name__} is replaced already: make a new model")
        module.loss_of_labels = LossOfLabels(make)  # as a part of the module it moves with it
        replaced.register_forward_hook(module.loss_of_labels, with_kwargs=True)
        return bool(replaced.config.problem_type == "multi_label_classification")
    _refuse_what_is_no_loss_of_classes(name, replaced)
    loss = make(replaced)
    parent.__dict__.pop(attribute, None)  # a plain function there would hide the module that takes its place
    setattr(parent, attribute, loss)
    if getattr(parent, attribute) is not loss:  # an attribute of the class hides a submodule of that name
        parent.__dict__[attribute] = loss
    if getattr(parent, attribute) is not loss:
        raise AttributeError(
            f"{name!r} is a property of {type(parent).__name__}, which cannot be replaced: name the attribute that "
            "holds the loss, or call self.as_softmax_loss in training_step."
        )
    return getattr(loss, "multilabel", False)


def refuse_another_loss(module: Any, name: str) -> None:
    """Raise if the loss that ``module`` has as ``name`` is the masked one no more; a user's function may call that."""
    try:
        part = attrgetter(name)(module)
    except AttributeError:
        part = None
    function = part.func if isinstance(part, partial) else part
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
            f"{type(module).__name__}.{name} has been set to {part!r} since training began: the rest would be that "
            f"loss's. Change the masked loss in its place, as in self.{name}.weight = ..., and for plain softmax set "
            "self.as_softmax_delta = 1.0"
        )


def _is_huggingface_classifier(part: Any) -> bool:
    """Whether ``part`` is a classification model of ``transformers``; others may shift labels: refused."""
    # every configuration of transformers has a problem_type
    if not isinstance(part, nn.Module) or not hasattr(getattr(part, "config", None), "problem_type"):
        return False
    model = type(getattr(part, "_orig_mod", part))  # of torch.compile
    config: Any = part.config
    regression = (config.problem_type or ("regression" if config.num_labels == 1 else "")) == "regression"
    if regression or not any(HUGGINGFACE_CLASSIFIER.search(base.__name__) for base in model.__mro__):
        raise TypeError(
            f"{model.__name__} is no classification model of transformers (...For...Classification, with two labels or "
            "more): its loss is not that of logits and labels, row by row. Let the module have ASSoftmaxMixin, and "
            "call self.as_softmax_loss(logits, target) in training_step"
        )
    return True


def _refuse_what_is_no_loss_of_classes(name: str, replaced: Any) -> None:
    function = inspect.unwrap(replaced.func if isinstance(replaced, partial) else replaced)
    if isinstance(function, MaskedLoss):
        raise TypeError(
            f"{name!r} names {type(function).__name__}, which has a margin of its own and is counted as it is: have "
            "the module make an nn.CrossEntropyLoss, which can be replaced, or leave ASSoftmaxMixin out"
        )
    kind = type(function) if isinstance(function, nn.Module) else function
    known = issubclass(kind, MODULES) if isinstance(kind, type) else kind in FUNCTIONS
    of_any_module = inspect.ismethod(function) and hasattr(pl.LightningModule, function.__name__)
    home = f"{getattr(kind, '__module__', '')}."
    library = next((name for name in ("torch.nn", "as_lightning") if home.startswith(f"{name}.")), None)
    if callable(function) and (known or not (library or of_any_module)):
        return
    if of_any_module:
        what = f"the method {function.__name__} that every module has"
    else:
        what = f"{library}'s {kind.__name__}" if callable(function) else f"{replaced!r}, which cannot be called"
    raise TypeError(
        f"{name!r} names {what}: expected a loss of class scores ("
        f"{', '.join(loss.__name__ for loss in (*MODULES, *FUNCTIONS))}, or one of your own). Name the attribute that "
        "training_step calls as loss(logits, target), or call self.as_softmax_loss there"
    )


def masked_loss(owner: Any, replaced: Any) -> CountedLoss:
    """The masked loss with the settings of ``replaced``: a module, a function, or a ``functools.partial`` of either.

    Of a loss of one's own these are the ones that `settings_of` finds.
    """
    if isinstance(replaced, partial) and replaced.args:
        raise ValueError(
            f"the loss to replace is a partial with {len(replaced.args)} positional arguments, whose meaning "
            "cannot be told: give them by name"
        )
    function, settings = _function_of(replaced), replaced.keywords if isinstance(replaced, partial) else {}
    if isinstance(function, nn.Module):
        names = ("weight", "pos_weight", "ignore_index", "reduction", "label_smoothing")
        settings = {name: getattr(function, name) for name in names if hasattr(function, name)} | settings
    if isinstance(function, nn.BCEWithLogitsLoss) or function is F.binary_cross_entropy_with_logits:
        if settings.get("weight") is not None or settings.get("pos_weight") is not None:
            raise ValueError("the multi-label losses in its place have no weights: drop weight and pos_weight")
        if isinstance(function, nn.Module) and type(function).forward is not nn.BCEWithLogitsLoss.forward:
            _warn_of_another_loss(function, "self.multilabel_as_softmax_loss(logits, target)")
        return CountedLoss(owner, multilabel=True, **_carried(settings, ("reduction",)))
    carried = _carried(settings, ("weight", "ignore_index", "reduction"))
    if type(function) not in MODULES and function not in FUNCTIONS:
        carried = settings_of(replaced) | {"replaced": replaced}
    return CountedLoss(owner, multilabel=False, persistent=isinstance(replaced, nn.Module), **carried)


def _warn_of_another_loss(loss: Any, instead: str, why: str = "is not") -> None:
    function = _function_of(loss)
    name = getattr(function, "__name__", type(function).__name__)
    rank_zero_warn(
        f"the loss that is replaced, {name}, {why} the cross-entropy of its logits and targets with the weight, "
        "ignore_index and reduction that it shows as attributes: what else it does (other ignored rows, weights, "
        "label smoothing, a factor) is lost. Let it be one of PyTorch's, as nn.CrossEntropyLoss, which keeps these "
        f"three, or call {instead} in training_step"
    )


def settings_of(loss: Any) -> dict[str, Any]:
    """What a loss shows of rows and classes: the ``weight`` of each class, ``ignore_index`` and ``reduction``.

    They are the loss's attributes, or what a ``functools.partial`` gives it.

    >>> settings_of(partial(nn.CrossEntropyLoss(ignore_index=0), reduction="sum"))
    {'ignore_index': 0, 'reduction': 'sum'}
    """
    function, named = _function_of(loss), loss.keywords if isinstance(loss, partial) else {}
    found = {name: named.get(name, getattr(function, name, None)) for name in ("weight", "ignore_index", "reduction")}
    of_classes = isinstance(weight := found["weight"], Tensor) and weight.dim() == 1 and not weight.requires_grad
    kept = {"weight": of_classes, "reduction": isinstance(found["reduction"], str)}  # others are a factor, or learned
    return {name: value for name, value in found.items() if value is not None and kept.get(name, True)}


def is_cross_entropy(loss: Any, logits: Tensor, target: Tensor, settings: Mapping[str, Any]) -> bool | None:
    """Whether a loss is ``F.cross_entropy`` with these settings; None where all rows are ignored, which tells nothing.

    A copy is called once, in single precision and without a trainer, with other logits of the same shape; it raises
    what the loss raises.
    """
    dim, indices = class_dimension(logits), target.long()
    rows = indices[indices != settings.get("ignore_index", -100)]
    # F.cross_entropy would not take them; on a GPU that would end the process
    if target.dim() >= logits.dim() or ((rows < 0) | (rows >= logits.size(dim))).any():
        return False
    # of one logit for all classes, as a new head gives, label smoothing is cross-entropy; so each target leads here, by
    # another margin for each class, which weights and ignored rows show. What nll_loss is given stays logarithms of
    # probabilities
    made = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).to(logits.device)
    places = indices.clamp(0, logits.size(dim) - 1).unsqueeze(dim)
    made = made.scatter_add(dim, places, 1.0 + 5.0 * places / logits.size(dim)).log_softmax(dim)
    made = made + logits.float().logsumexp(dim, keepdim=True)
    like = torch.empty(0, device=logits.device, dtype=torch.promote_types(logits.dtype, torch.float32))
    whole = torch.autocast(logits.device.type, enabled=False)
    with isolate_rng(include_cuda=logits.is_cuda), whole, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the copy logs goes nowhere
        own = _apart(loss, like)(made.to(like), target.clone())
        plain = F.cross_entropy(made.to(like), indices, **_apart(settings, like))
    if own.isnan().any() or not plain.nan_to_num().any():
        return None
    return torch.allclose(own.to(plain), plain, rtol=1e-4, atol=1e-4)


def _apart(loss: Any, like: Tensor) -> Any:
    """A copy of a loss, or of settings, of this device and precision; a method's module keeps its weights."""
    if isinstance(loss, partial):
        return partial(_apart(loss.func, like), *loss.args, **_apart(loss.keywords, like))
    if isinstance(loss, Mapping):
        return {name: _apart(value, like) for name, value in loss.items()}
    if isinstance(loss, Tensor):
        return loss.to(like) if loss.is_floating_point() else loss.to(like.device)
    owner = getattr(loss, "__self__", None)
    parts = owner.modules() if isinstance(owner, nn.Module) else ()
    if any(isinstance(cell.cell_contents, nn.Module) for cell in getattr(loss, "__closure__", None) or ()):
        raise TypeError("it encloses a module, which a copy of it would share")
    held = [part for module in parts for part in tree_leaves(vars(module)) if isinstance(part, Tensor)]
    shared = (part for part in held if isinstance(part, nn.Parameter))
    # a loss may keep statistics in frozen ones, but not in those of a large encoder
    weights = {id(part): part for part in shared if part.requires_grad or part.numel() > STATISTICS}
    kept = {id(part): part.detach().clone() for part in held if not part.is_leaf}  # which deepcopy refuses
    made = copy.deepcopy(loss, weights | kept)
    return made.to(like) if isinstance(made, nn.Module) else made


def _function_of(loss: Any) -> Any:
    return loss.func if isinstance(loss, partial) else loss


def _changes_nothing(value: Any) -> bool:
    """Whether a setting is None or the number 0; False and a tensor of several numbers are neither."""
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.item()
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0)


def _carried(settings: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    unknown = [name for name, value in settings.items() if name not in names and not _changes_nothing(value)]
    if unknown:
        raise ValueError(
            f"the loss to replace is given {', '.join(f'{name}={settings[name]!r}' for name in unknown)}, which "
            f"the losses in its place cannot carry on: they know {', '.join(names)}. Drop it, or call "
            "self.as_softmax_loss in training_step"
        )
    return {name: settings[name] for name in names if name in settings}
