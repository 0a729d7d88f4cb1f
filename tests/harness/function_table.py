"""The public functions of tensors, each with one way to call it, and examples for them.

Losses with a class for each sample come from ``harness.variant_methods``, all others from the
public names: a new one is in the table.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from harness.variant_methods import METHODS
from torch import Tensor

from as_lightning import functional

ROWS, CLASSES = 6, 70
HEAD = torch.randn(CLASSES, 8, generator=torch.Generator().manual_seed(5))
DIRECTION = torch.linspace(-1.0, 1.0, CLASSES)  # in which the gradient of a transform is taken
# of the leaves, the target, the class weights and the options of losses
Call = Callable[..., Tensor]


class Function(NamedTuple):
    """A public function with its arguments; ``call`` has one signature for all."""

    public: Callable[..., Any]
    call: Call
    kind: str  # "classes", "labels", "head" or "transform"
    many: bool = False  # as if its logits were many


def of_classes(loss, **arguments):
    return lambda x, target, weight, **options: loss(
        x, target, weight=weight, **arguments, **options
    )


def of_labels(loss):
    return lambda x, target, weight, **options: loss(x, target, **options)


def of_head(loss):
    return lambda x, head, target, weight, **options: loss(
        x, head, target, weight=weight, **options
    )


def of_transform(transform, **arguments):
    def call(x, target, weight, reduction="mean"):
        p = transform(x, **arguments)
        along = p.to(torch.promote_types(p.dtype, torch.float32)) * DIRECTION[: p.size(-1)]
        return along.sum() / (1 if reduction == "sum" else x.size(0))

    return call


def all_functions():
    found = {}
    for name, method in METHODS.items():
        arguments = method.all_loss_arguments
        found[f"{name}, loss"] = Function(
            method.loss, of_classes(method.loss, **arguments), "classes"
        )
        if method.transform is not None:
            found[name] = Function(
                method.transform, of_transform(method.transform, **method.arguments), "transform"
            )
    known = {inspect.unwrap(function.public) for function in found.values()}
    for name in functional.__all__:
        public = getattr(functional, name)
        if public in known or not callable(public) or inspect.isclass(public):
            continue
        parameters = inspect.signature(public).parameters
        if "head_weight" in parameters or "linear_weight" in parameters:
            found[name] = Function(public, of_head(public), "head")
            found[f"{name}, fused"] = Function(public, of_head(public), "head", many=True)
        elif "reduction" in parameters and "weight" in parameters:
            found[name] = Function(public, of_classes(public), "classes")
            found[f"{name}, many logits"] = Function(
                public, of_classes(public), "classes", many=True
            )
        elif "reduction" in parameters:
            found[name] = Function(public, of_labels(public), "labels")
    return found


FUNCTIONS = all_functions()
# an entry for each public function
FIRST = {function.public: name for name, function in reversed(FUNCTIONS.items())}
BY_STEPS = ("entmax", "sparsemax")  # their graph holds all the steps of a search
OUT = ("target of -1", "target of the number of classes")
KINDS = {
    "classes": (
        "plain",
        "ignored",
        "all ignored",
        "weighted",
        "ignored, not finite",
        "empty",
        "NaN in a row",
        "infinity in a row",
        *OUT,
    ),
    "labels": (
        "plain",
        "ignored",
        "all ignored",
        "ignored, not finite",
        "empty",
        "NaN in a row",
        *OUT,
    ),
    "transform": ("plain", "empty", "NaN in a row"),
}
# it would be in each weight's gradient
KINDS["head"] = tuple(kind for kind in KINDS["classes"] if "in a row" not in kind)


class Case(NamedTuple):
    leaves: list[Tensor]
    target: Tensor
    weight: Tensor

    def call(self, function, **options):
        return function(*self.leaves, self.target, self.weight, **options)


def case_of(function, kind, dtype, rows=ROWS, classes=CLASSES, features=8):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, features if function.kind == "head" else classes, generator=generator)
    if function.kind == "labels":
        target = (torch.rand(rows, classes, generator=generator) < 0.3).long()
    else:
        target = torch.randint(1, classes, (rows,), generator=generator)
    weight = torch.ones(classes)
    if kind == "weighted":
        weight = torch.rand(classes, generator=generator) + 0.1
        weight[0] = torch.inf  # the inverse frequency of a class without samples
    if kind in ("ignored", "weighted", "ignored, not finite"):
        target[:3] = -100
        if function.kind == "labels":
            target[4, ::7] = -100
    if kind == "all ignored":  # the mean over no row is NaN, its gradient 0
        target[:] = -100
    if kind == "ignored, not finite":
        x[0], x[1], x[2] = torch.nan, torch.inf, -torch.inf
        if function.kind == "labels":
            x[4, ::7] = torch.nan
    if kind == "empty":
        x, target = x[:0], target[:0]
    if kind in OUT:
        target.view(-1)[1] = -1 if kind == OUT[0] else classes
    if kind.endswith("in a row"):
        x[3, 1] = torch.nan if kind.startswith("NaN") else torch.inf
    leaves = (
        [x.to(dtype), HEAD[:classes, :features].to(dtype)]
        if function.kind == "head"
        else [x.to(dtype)]
    )
    return Case(leaves, target, weight)


def value_and_gradients(call, case, **options):
    leaves = [leaf.detach().clone().requires_grad_() for leaf in case.leaves]
    value = case._replace(leaves=leaves).call(call, **options)
    return value.detach(), list(torch.autograd.grad(value, leaves))
