"""The table of the public functions: every loss and transform, by every way to call it, dtype and kind of rows.

A cell holds if value and gradients are those of the eager call in float64 on the rows that count. Losses with a class
for each sample come from ``harness.variant_methods``, all others from the public names: a new one is in the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from harness.torch_limits import ONE_SIDE_OF_A_CONDITION
from harness.variant_methods import METHODS
from torch import Tensor

from as_lightning import functional
from as_lightning.functional import cross_entropy
from as_lightning.functional.kernels import head_loss

ROWS, CLASSES = 6, 70
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
FUSED = 2e-3  # float32 of perturb_max in one kernel of inductor: up to 7.2e-4 off; eager holds TOLERANCE
HEAD = torch.randn(CLASSES, 8, generator=torch.Generator().manual_seed(5))
DIRECTION = torch.linspace(-1.0, 1.0, CLASSES)  # in which the gradient of a transform is taken
Call = Callable[..., Tensor]  # of the leaves, the target, the class weights and the reduction


class Function(NamedTuple):
    """A public function with its arguments; ``call`` has one signature for all."""

    public: Callable[..., Any]
    call: Call
    kind: str  # "classes", "labels", "head" or "transform"
    many: bool = False  # as if its logits were many


def of_classes(loss: Callable[..., Tensor], **arguments: Any) -> Call:
    return lambda x, target, weight, reduction="mean": loss(x, target, weight=weight, reduction=reduction, **arguments)


def of_labels(loss: Callable[..., Tensor], **arguments: Any) -> Call:
    return lambda x, target, weight, reduction="mean": loss(x, target, reduction=reduction, **arguments)


def of_head(loss: Callable[..., Tensor]) -> Call:
    return lambda x, head, target, weight, reduction="mean": loss(x, head, target, weight=weight, reduction=reduction)


def of_transform(transform: Callable[..., Tensor], **arguments: Any) -> Call:
    def call(x: Tensor, target: Tensor, weight: Tensor, reduction: str = "mean") -> Tensor:
        p = transform(x, **arguments)
        along = p.to(torch.promote_types(p.dtype, torch.float32)) * DIRECTION
        return along.sum() / (1 if reduction == "sum" else x.size(0))

    return call


def all_functions() -> dict[str, Function]:
    found = {}
    for name, method in METHODS.items():
        arguments = method.all_loss_arguments
        found[f"{name}, loss"] = Function(method.loss, of_classes(method.loss, **arguments), "classes")
        if method.transform is not None:
            found[name] = Function(method.transform, of_transform(method.transform, **method.arguments), "transform")
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
            found[f"{name}, many logits"] = Function(public, of_classes(public), "classes", many=True)
        elif "reduction" in parameters:
            found[name] = Function(public, of_labels(public), "labels")
    return found


FUNCTIONS = all_functions()
FIRST = {function.public: name for name, function in reversed(FUNCTIONS.items())}  # an entry for each public function
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
    "labels": ("plain", "ignored", "all ignored", "ignored, not finite", "empty", "NaN in a row", *OUT),
    "transform": ("plain", "empty", "NaN in a row"),
}
KINDS["head"] = tuple(
    kind for kind in KINDS["classes"] if "in a row" not in kind
)  # it would be in each weight's gradient


class Case(NamedTuple):
    leaves: list[Tensor]
    target: Tensor
    weight: Tensor

    def call(self, function: Callable[..., Any], **options: Any) -> Any:
        return function(*self.leaves, self.target, self.weight, **options)


def case_of(function: Function, kind: str, dtype: torch.dtype, rows: int = ROWS) -> Case:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 8 if function.kind == "head" else CLASSES, generator=generator)
    if function.kind == "labels":
        target = (torch.rand(rows, CLASSES, generator=generator) < 0.3).long()
    else:
        target = torch.randint(1, CLASSES, (rows,), generator=generator)
    weight = torch.ones(CLASSES)
    if kind == "weighted":  # the inverse frequency of a class without samples
        weight = torch.rand(CLASSES, generator=generator) + 0.1
        weight[0] = (
            9.0 if function.public is functional.label_smoothing_loss else torch.inf
        )  # it smooths with all weights
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
        target.view(-1)[1] = -1 if kind == OUT[0] else CLASSES
    if kind.endswith("in a row"):
        x[3, 1] = torch.nan if kind.startswith("NaN") else torch.inf
    leaves = [x.to(dtype), HEAD.to(dtype)] if function.kind == "head" else [x.to(dtype)]
    return Case(leaves, target, weight)


def value_and_gradients(call: Call, case: Case, **options: Any) -> tuple[Tensor, list[Tensor]]:
    leaves = [leaf.detach().clone().requires_grad_() for leaf in case.leaves]
    value = case._replace(leaves=leaves).call(call, **options)
    return value.detach(), list(torch.autograd.grad(value, leaves))


def expected_of(function: Function, case: Case, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """In float64, of the rows that count and nothing else."""
    x, *rest = (leaf.double() for leaf in case.leaves)
    target = case.target
    known = (target != -100).reshape(len(x), -1).any(1) if x.numel() else torch.zeros(len(x), dtype=torch.bool)
    if function.kind == "labels":
        x = x.masked_fill(target == -100, 0.0)
    counted = Case([x[known].nan_to_num(0.0, 0.0, 0.0), *rest], target[known], case.weight.double())
    value, (of_x, *of_rest) = value_and_gradients(function.call, counted, **options)
    return value, [torch.zeros_like(x).index_copy(0, known.nonzero().squeeze(1), of_x), *of_rest]


def eager(function: Function, case: Case) -> Callable[[Case], tuple[Tensor, list[Tensor]]]:
    return lambda case: value_and_gradients(function.call, case)


def compiled(function: Function, case: Case, **how: Any) -> Callable[[Case], tuple[Tensor, list[Tensor]]]:
    """After a layer, as in a ``training_step``; of another batch no other graph is made."""
    torch.compiler.reset()
    whole = function.kind != "head"  # a head breaks the graph, but for a number of rows that is few for certain
    graph = torch.compile(lambda x, *others: function.call(x * 1.0, *others), fullgraph=whole, **how)
    value_and_gradients(graph, case)

    def called(case: Case) -> tuple[Tensor, list[Tensor]]:
        with torch._dynamo.config.patch(error_on_recompile=whole):
            return value_and_gradients(graph, case)

    return called


def exported(function: Function, case: Case) -> Callable[[Case], tuple[Tensor, list[Tensor]]]:
    class Loss(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return function.call(*inputs)

    rows, inputs = {0: torch.export.Dim("rows")}, (*case.leaves, case.target, case.weight)
    shapes = [rows if x is case.leaves[0] or x is case.target else {} for x in inputs]
    graph = torch.export.export(Loss(), inputs, dynamic_shapes={"inputs": tuple(shapes)}).module()
    return lambda case: value_and_gradients(graph, case)


def by_samples(function: Function, case: Case) -> Callable[[Case], tuple[Tensor, list[Tensor]]]:
    def of_samples(case: Case) -> tuple[Tensor, list[Tensor]]:
        def loss(*inputs: Tensor) -> Tensor:
            return function.call(*inputs, case.weight, reduction="sum")

        count = len(case.leaves)
        gradient = torch.func.grad_and_value(loss, argnums=tuple(range(count)))
        of_x, values = torch.func.vmap(gradient, in_dims=(0, *[None] * (count - 1), 0))(*case.leaves, case.target)
        return values.sum(), [of_x[0], *(of_leaf.sum(0) for of_leaf in of_x[1:])]

    return of_samples


def linearised(function: Function, case: Case) -> Callable[[Case], tuple[Tensor, list[Tensor]]]:
    def along_each_leaf(case: Case) -> tuple[Tensor, list[Tensor]]:
        value, along = torch.func.linearize(
            lambda *leaves: case._replace(leaves=leaves).call(function.call), *case.leaves
        )
        return value, [along(*directions(case.leaves))]

    return along_each_leaf


def directions(leaves: list[Tensor]) -> list[Tensor]:
    return [torch.linspace(-1.0, 1.0, leaf.numel()).reshape(leaf.shape).to(leaf.dtype) for leaf in leaves]


Way = Callable[[Function, Case], Callable[[Case], tuple[Tensor, list[Tensor]]]]
WAYS: dict[str, Way] = {
    "eager": eager,
    "vmap": by_samples,
    "compiled": lambda *of: compiled(*of, backend="aot_eager", dynamic=True),
    "compiled by inductor": lambda *of: compiled(*of, dynamic=False),
    "exported": exported,
    "linearize": linearised,
}
IN_SECONDS = (
    "eager",
    "vmap",
)  # in all dtypes; of the others the quick half has one entry for each function, in float32


QUICK = {name for name, function in FUNCTIONS.items() if FIRST[function.public] == name or function.many}


def table() -> Iterator[Any]:
    for way in WAYS:
        for name in FUNCTIONS:
            quick = way in IN_SECONDS or (name in QUICK and way in ("compiled", "exported"))
            quick |= way == "linearize" and name in QUICK and not name.startswith(BY_STEPS)
            dtypes = DTYPES if way in IN_SECONDS else DTYPES[:1]
            yield pytest.param(way, name, dtypes, marks=[] if quick else pytest.mark.slow, id=f"{way}-{name}")
            if way not in IN_SECONDS:
                yield pytest.param(way, name, DTYPES[1:], marks=pytest.mark.slow, id=f"{way}-{name}-half types")


@pytest.fixture
def as_many(monkeypatch: pytest.MonkeyPatch) -> Callable[[Function], None]:
    def set_limits(function: Function) -> None:
        if function.many:
            monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
            monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)

    return set_limits


def kinds_of(way: str, function: Function) -> list[str]:
    left_out = (
        set() if way == "eager" else {"empty"}
    )  # torch.func.vmap takes no batch of 0, and the graph is another one
    left_out |= (
        {"all ignored", "NaN in a row", "infinity in a row", *OUT} if way == "linearize" else set()
    )  # it knows only derivatives
    left_out |= (
        {*OUT} if way == "vmap" and function.kind == "labels" else set()
    )  # PyTorch's kernels look at indices alone
    return [kind for kind in KINDS[function.kind] if kind not in left_out]


def check_cell(way: str, called: Callable[[Case], Any], function: Function, kind: str, dtype: torch.dtype) -> None:
    case = case_of(function, kind, dtype)
    if kind in OUT:
        with pytest.raises((IndexError, ValueError, RuntimeError), match=r"target must hold|out of (bounds|range)"):
            called(case)
        return
    value, exact = expected_of(function, case, reduction="sum" if way == "vmap" else "mean")
    found, gradients = called(case)
    if kind.endswith("in a row"):
        assert not gradients[0][3].isfinite().all(), "the gradient of the row is finite"
        value, others = value * torch.nan, [0, 1, 2, 4, 5]
        gradients, exact = [gradients[0][others]], [exact[0][others]]
    elif way == "linearize":
        exact = [torch.stack([(g * d).sum() for g, d in zip(exact, directions(case.leaves), strict=True)]).sum()]
    ours, theirs = ([x.to(dtype).double() for x in (*xs, x)] for x, xs in ((found, gradients), (value, exact)))
    fused = way == "compiled by inductor" and "perturb_max" in function.public.__name__
    off = max(TOLERANCE[dtype], FUSED) if fused else TOLERANCE[dtype]
    torch.testing.assert_close(ours, theirs, rtol=off, atol=off, equal_nan=True)


@pytest.mark.bug_report(
    "pytorch/pytorch#180642",
    "`autograd.Function` in place: a wrong gradient under `torch.compile`.",
)
@pytest.mark.bug_report("pytorch/pytorch#107824", "A call of an `autograd.Function` breaks under `torch.compile`.")
@pytest.mark.bug_report(
    "pytorch/pytorch#135546",
    "A target out of range passes in silence under `torch.compile`.",
)
@pytest.mark.bug_report("pytorch/pytorch#11551", "An ignored row of -inf or NaN poisons the gradient.")
@pytest.mark.bug_report("fcakyon/balanced-loss#12", "The weight 1/0 of an absent class makes the loss NaN.")
@pytest.mark.parametrize(("way", "name", "dtypes"), list(table()))
def test_every_cell_of_the_table_holds(
    way: str,
    name: str,
    dtypes: tuple[torch.dtype, ...],
    as_many: Callable[[Function], None],
    record_property: Callable[[str, object], None],
) -> None:
    if way == "exported" and ONE_SIDE_OF_A_CONDITION.holds:
        pytest.skip(str(ONE_SIDE_OF_A_CONDITION))
    function, wrong = FUNCTIONS[name], []
    as_many(function)
    cells = [(kind, dtype) for dtype in dtypes for kind in kinds_of(way, function)]
    for dtype in dtypes:
        called = WAYS[way](function, case_of(function, "ignored", dtype, ROWS if way == "compiled by inductor" else 9))
        for kind in kinds_of(way, function):
            try:
                check_cell(way, called, function, kind, dtype)
            except Exception as error:
                wrong.append(f"{kind}, {dtype}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    record_property("cells of the table of functions hold", len(cells))


def test_every_public_function_of_tensors_is_in_the_table() -> None:
    others = {
        "accumulation_steps",
        "as_softmax_mask",
        "class_counts_of",
        "fit_temperature",
        "live_samples",
        "reliability",
    }  # no gradient
    functions = {name for name in functional.__all__ if not inspect.isclass(getattr(functional, name))}
    assert {function.public.__name__ for function in FUNCTIONS.values()} == functions - others
