"""The table of the public functions: every loss and transform, by every way to call it, dtype and
kind of rows. A cell holds if value and gradients are those of the eager call in float64 on the rows
that count.
"""

import inspect
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.function_table import (
    BY_STEPS,
    CLASSES,
    FIRST,
    FUNCTIONS,
    KINDS,
    OUT,
    ROWS,
    Case,
    Function,
    case_of,
    value_and_gradients,
)
from harness.torch_limits import ONE_SIDE_OF_A_CONDITION
from torch import Tensor

from as_lightning import (
    ASSoftmaxLoss,
    LinearCrossEntropyLoss,
    MultiLabelASSoftmaxLoss,
    class_weights,
    functional,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
# float32 of perturb_max in one kernel of inductor: up to 7.2e-4 off; eager holds TOLERANCE
FUSED = 2e-3


def expected_of(function, case, **options):
    """In float64, of the rows that count and nothing else."""
    x, *rest = (leaf.double() for leaf in case.leaves)
    target = case.target
    known = (
        (target != -100).reshape(len(x), -1).any(1)
        if x.numel()
        else torch.zeros(len(x), dtype=torch.bool)
    )
    if function.kind == "labels":
        x = x.masked_fill(target == -100, 0.0)
    counted = Case([x[known].nan_to_num(0.0, 0.0, 0.0), *rest], target[known], case.weight.double())
    value, (of_x, *of_rest) = value_and_gradients(function.call, counted, **options)
    return value, [torch.zeros_like(x).index_copy(0, known.nonzero().squeeze(1), of_x), *of_rest]


def eager(function, case):
    return lambda case: value_and_gradients(function.call, case)


def compiled(function, case, **how):
    """After a layer, as in a ``training_step``; of another batch no other graph is made."""
    torch.compiler.reset()
    # a head breaks the graph, but for a number of rows that is few for certain
    whole = function.kind != "head"
    graph = torch.compile(
        lambda x, *others: function.call(x * 1.0, *others), fullgraph=whole, **how
    )
    value_and_gradients(graph, case)

    def called(case):
        with torch._dynamo.config.patch(error_on_recompile=whole):
            return value_and_gradients(graph, case)

    return called


def exported(function, case):
    class Loss(torch.nn.Module):
        def forward(self, *inputs):
            return function.call(*inputs)

    rows, inputs = {0: torch.export.Dim("rows")}, (*case.leaves, case.target, case.weight)
    shapes = [rows if x is case.leaves[0] or x is case.target else {} for x in inputs]
    graph = torch.export.export(Loss(), inputs, dynamic_shapes={"inputs": tuple(shapes)}).module()
    return lambda case: value_and_gradients(graph, case)


def by_samples(function, case):
    def of_samples(case):
        def loss(*inputs):
            return function.call(*inputs, case.weight, reduction="sum")

        count = len(case.leaves)
        gradient = torch.func.grad_and_value(loss, argnums=tuple(range(count)))
        of_x, values = torch.func.vmap(gradient, in_dims=(0, *[None] * (count - 1), 0))(
            *case.leaves, case.target
        )
        return values.sum(), [of_x[0], *(of_leaf.sum(0) for of_leaf in of_x[1:])]

    return of_samples


def linearised(function, case):
    def along_each_leaf(case):
        value, along = torch.func.linearize(
            lambda *leaves: case._replace(leaves=leaves).call(function.call), *case.leaves
        )
        return value, [along(*directions(case.leaves))]

    return along_each_leaf


def directions(leaves):
    return [
        torch.linspace(-1.0, 1.0, leaf.numel()).reshape(leaf.shape).to(leaf.dtype)
        for leaf in leaves
    ]


Way = Callable[[Function, Case], Callable[[Case], tuple[Tensor, list[Tensor]]]]
WAYS: dict[str, Way] = {
    "eager": eager,
    "vmap": by_samples,
    "compiled": lambda *of: compiled(*of, backend="aot_eager", dynamic=True),
    "compiled by inductor": lambda *of: compiled(*of, dynamic=False),
    "exported": exported,
    "linearize": linearised,
}
# in all dtypes; of the others the quick half has one entry for each function, in float32
IN_SECONDS = ("eager", "vmap")
QUICK = {
    name for name, function in FUNCTIONS.items() if FIRST[function.public] == name or function.many
}


def table():
    for way in WAYS:
        for name in FUNCTIONS:
            quick = way in IN_SECONDS or (name in QUICK and way in ("compiled", "exported"))
            quick |= way == "linearize" and name in QUICK and not name.startswith(BY_STEPS)
            dtypes = DTYPES if way in IN_SECONDS else DTYPES[:1]
            yield pytest.param(
                way, name, dtypes, marks=[] if quick else pytest.mark.slow, id=f"{way}-{name}"
            )
            if way not in IN_SECONDS:
                yield pytest.param(
                    way, name, DTYPES[1:], marks=pytest.mark.slow, id=f"{way}-{name}-half types"
                )


def kinds_of(way, function):
    # torch.func.vmap takes no batch of 0, and the graph is another one
    left_out = set() if way == "eager" else {"empty"}
    if way == "linearize":  # it knows only derivatives
        left_out |= {"all ignored", "NaN in a row", "infinity in a row", *OUT}
    if way == "vmap" and function.kind == "labels":  # PyTorch's kernels look at indices alone
        left_out |= {*OUT}
    return [kind for kind in KINDS[function.kind] if kind not in left_out]


def check_cell(way, called, function, kind, dtype):
    case = case_of(function, kind, dtype)
    if kind in OUT:
        with pytest.raises(
            (IndexError, ValueError, RuntimeError), match=r"target must hold|out of (bounds|range)"
        ):
            called(case)
        return
    value, exact = expected_of(function, case, reduction="sum" if way == "vmap" else "mean")
    found, gradients = called(case)
    if kind.endswith("in a row"):
        assert not gradients[0][3].isfinite().all(), "the gradient of the row is finite"
        value, others = value * torch.nan, [0, 1, 2, 4, 5]
        gradients, exact = [gradients[0][others]], [exact[0][others]]
    elif way == "linearize":
        exact = [
            torch.stack(
                [(g * d).sum() for g, d in zip(exact, directions(case.leaves), strict=True)]
            ).sum()
        ]
    ours, theirs = (
        [x.to(dtype).double() for x in (*xs, x)] for x, xs in ((found, gradients), (value, exact))
    )
    fused = way == "compiled by inductor" and "perturb_max" in function.public.__name__
    off = max(TOLERANCE[dtype], FUSED) if fused else TOLERANCE[dtype]
    torch.testing.assert_close(ours, theirs, rtol=off, atol=off, equal_nan=True)


@pytest.mark.bug_report(
    "pytorch/pytorch#180642",
    "`autograd.Function` in place: a wrong gradient under `torch.compile`.",
)
@pytest.mark.bug_report(
    "pytorch/pytorch#107824", "A call of an `autograd.Function` breaks under `torch.compile`."
)
@pytest.mark.bug_report(
    "pytorch/pytorch#135546", "A target out of range passes in silence under `torch.compile`."
)
@pytest.mark.bug_report(
    "pytorch/pytorch#11551", "An ignored row of -inf or NaN poisons the gradient."
)
@pytest.mark.bug_report(
    "fcakyon/balanced-loss#12", "The weight 1/0 of an absent class makes the loss NaN."
)
@pytest.mark.parametrize(("way", "name", "dtypes"), list(table()))
def test_every_cell_of_the_table_holds(way, name, dtypes, as_many, record_property):
    if way == "exported" and ONE_SIDE_OF_A_CONDITION.holds:
        pytest.skip(str(ONE_SIDE_OF_A_CONDITION))
    function, wrong = FUNCTIONS[name], []
    as_many(function)
    cells = [(kind, dtype) for dtype in dtypes for kind in kinds_of(way, function)]
    for dtype in dtypes:
        called = WAYS[way](
            function,
            case_of(function, "ignored", dtype, ROWS if way == "compiled by inductor" else 9),
        )
        for kind in kinds_of(way, function):
            try:
                check_cell(way, called, function, kind, dtype)
            except Exception as error:
                wrong.append(f"{kind}, {dtype}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    record_property("cells of the table of functions hold", len(cells))


def test_every_public_function_of_tensors_is_in_the_table():
    others = {"accumulation_steps", "as_softmax_mask", "class_counts_of"}  # without a gradient
    others |= {"adjust_logits", "fit_tau", "fit_temperature", "reliability"}
    functions = {
        name for name in functional.__all__ if not inspect.isclass(getattr(functional, name))
    }
    assert {function.public.__name__ for function in FUNCTIONS.values()} == functions - others


LOSSES = [name for name, function in FUNCTIONS.items() if function.kind != "transform"]
OF_LOGITS = [name for name in LOSSES if FUNCTIONS[name].kind != "head"]


def losses_and_gradients(function, case, **options):
    leaves = [leaf.detach().clone().requires_grad_() for leaf in case.leaves]
    losses = case._replace(leaves=leaves).call(function.call, **options)
    return [losses.detach(), *torch.autograd.grad(losses.sum(), leaves)]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_second_backward_gives_the_same_gradients_and_all_is_left_as_it_was(
    name, reduction, as_many
):
    function = FUNCTIONS[name]
    as_many(function)
    case = case_of(function, "ignored", torch.float64)
    before = [x.clone() for x in (*case.leaves, case.target, case.weight)]
    with torch.no_grad():
        alone = case.call(function.call, reduction=reduction)
    leaves = [leaf.requires_grad_() for leaf in case.leaves]
    losses = case.call(function.call, reduction=reduction)
    assert not alone.requires_grad
    torch.testing.assert_close(alone, losses.detach())
    first = torch.autograd.grad(losses, leaves, torch.ones_like(losses), retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    for gradient in first:
        assert not gradient.requires_grad
        gradient.zero_()
    second = torch.autograd.grad(losses, leaves, torch.full_like(losses, 3.0))
    torch.testing.assert_close([3.0 * gradient for gradient in kept], [*second])
    after = [x.detach() for x in (*case.leaves, case.target, case.weight)]
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("dtype", "ignore_index"),  # which wraps around to 1
    [
        (torch.uint8, -255),
        (torch.uint8, 257),
        (torch.int8, 257),
        (torch.int8, -255),
        (torch.int16, 65537),
    ],
    ids=str,
)
def test_an_ignore_index_beyond_a_narrow_type_ignores_nothing(name, dtype, ignore_index, as_many):
    function = FUNCTIONS[name]
    as_many(function)
    case = case_of(function, "plain", torch.float64)
    case.target[0] = 1
    narrow, wide = (
        losses_and_gradients(
            function, case._replace(target=target), ignore_index=ignore_index, reduction="none"
        )
        for target in (case.target.to(dtype), case.target)
    )
    torch.testing.assert_close(narrow, wide, rtol=0, atol=0)


@pytest.mark.parametrize("name", OF_LOGITS)
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_half_types_are_computed_in_float32_which_autocast_keeps(name, dtype, as_many):
    function = FUNCTIONS[name]
    as_many(function)
    case = case_of(function, "plain", dtype)
    wide = case._replace(leaves=[leaf.float() for leaf in case.leaves])
    for reduction in ("none", "mean", "sum"):
        found, expected = (
            losses_and_gradients(function, of, reduction=reduction) for of in (case, wide)
        )
        same = 1 if function.many else None  # the gradient of many logits is kept in their type
        torch.testing.assert_close(
            found[:same], [x.to(dtype) for x in expected[:same]], rtol=0, atol=0
        )
        with torch.autocast("cpu", dtype=dtype):
            loss = case.call(function.call, reduction=reduction)
        torch.testing.assert_close(loss, expected[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OF_LOGITS)
@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float64, 1e4), (torch.float32, 1e4), (torch.bfloat16, 1e3), (torch.float16, 1e3)],
    ids=str,
)
@pytest.mark.bug_report(
    "kornia/kornia#918",
    "The focal loss has a gradient of NaN where a probability is exactly 0 or 1.",
)
def test_large_logits_give_finite_losses_and_gradients(name, dtype, size, as_many):
    function = FUNCTIONS[name]
    as_many(function)
    case = case_of(function, "plain", dtype, rows=48)
    logits = ((torch.rand(48, CLASSES) * 2 - 1) * size).to(dtype)
    logits[0] = size  # all equal
    logits[1], logits[1, 3] = -size, size  # the target as far ahead as it gets
    logits[2], logits[2, 3] = size, -size  # and as far behind
    if function.kind == "labels":
        case.target[:3] = torch.nn.functional.one_hot(torch.tensor(3), CLASSES)
    else:
        case.target[:3] = 3
    exact = case._replace(leaves=[logits.double()]).call(function.call, reduction="none")
    leaf = logits.requires_grad_()
    loss = case._replace(leaves=[leaf]).call(function.call, reduction="none")
    fits = exact <= torch.finfo(dtype).max  # a loss of 1e6 is right, and is no float16
    assert loss[fits].isfinite().all()
    torch.testing.assert_close(loss[fits].double(), exact[fits], rtol=2e-2, atol=1e-4)
    (gradient,) = torch.autograd.grad(loss[fits].double().sum(), leaf)
    assert gradient.isfinite().all()


KINDS_OF_ONE_CLASS = ("classes", "transform")


# the others divide the scores, or are not invariant to a shift
OTHERS = "t_softmax_high", "taylor", "am_softmax,", "perturb_max_normal", "asymmetric", "bce"


@pytest.mark.parametrize("name", [name for name in OF_LOGITS if not name.startswith(OTHERS)])
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_scores_near_1e4_are_exact_to_a_few_units_in_the_last_place(
    name, sign, as_many
):
    function = FUNCTIONS[name]
    as_many(function)
    case = case_of(function, "plain", torch.float32, rows=64, classes=12)
    scores = sign * 1e4 + torch.randn(64, 12).round()
    found, exact = (
        losses_and_gradients(function, case._replace(leaves=[scores.to(dtype)]), reduction="none")
        for dtype in (torch.float32, torch.float64)
    )
    assert ((exact[1].abs() > 0.01) & (exact[1].abs() < 0.99)).any()
    off = (found[1] - exact[1]).abs().max()
    assert off < 8 * torch.finfo(torch.float32).eps


# a polynomial of -inf is +inf
RULED_OUT = [n for n, f in FUNCTIONS.items() if f.kind in KINDS_OF_ONE_CLASS and "taylor" not in n]


@pytest.mark.parametrize("name", RULED_OUT)
def test_a_class_ruled_out_by_minus_infinity_changes_nothing_and_has_no_gradient(name, as_many):
    function = FUNCTIONS[name]
    as_many(function)
    case = case_of(function, "plain", torch.float64, classes=6)
    more = torch.cat([case.leaves[0], torch.full((ROWS, 2), -torch.inf)], dim=1)
    ruled_out = case._replace(leaves=[more], weight=torch.ones(8))
    (found, gradient), (expected, of_others) = (
        losses_and_gradients(function, of, reduction="none") for of in (ruled_out, case)
    )
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(gradient[:, :6], of_others, rtol=1e-8, atol=1e-9)
    assert not gradient[:, 6:].any()


# What is changed in a good call, what is raised, and what its message names.
Refusals = list[tuple[dict[str, Any], type[Exception], str]]
GOOD = {"x": torch.zeros(2, 3), "target": torch.tensor([0, 1]), "weight": torch.ones(3)}
GOOD_LABELS = torch.tensor([[1, 0, 0], [0, 0, 1]])
ALSO_GOOD = {
    "labels": {"target": GOOD_LABELS},
    "head": {"x": torch.zeros(2, 4), "head": torch.zeros(3, 4)},
}
BAD_LOGITS: Refusals = [
    ({"x": torch.zeros(2, 3).long()}, TypeError, "^logits .*torch.int64"),
    ({"x": torch.tensor(1.0), "target": torch.tensor(0)}, ValueError, "^logits .*dimension"),
    ({"x": SimpleNamespace(logits=1)}, TypeError, r"^logits .*\.logits"),
]
BAD_OPTIONS: Refusals = [
    ({"reduction": "avg"}, ValueError, "^reduction .*'avg'"),
    ({"target": [0, 1]}, TypeError, "^target .*list"),
]
OUT_OF_RANGE: Refusals = [
    ({"target": torch.tensor([0, 3])}, IndexError, "^target .*0 to 2.* 3"),
    ({"target": torch.tensor([0, -1])}, IndexError, "^target .*0 to 2.* -1"),
]
BAD_WEIGHTS: Refusals = [
    ({"weight": torch.ones(4)}, ValueError, r"^weight .*\(3,\).*\(4,\)"),
    ({"weight": [1.0, 1.0, 1.0]}, TypeError, "^weight .*list"),
    ({"weight": torch.ones(3).long()}, TypeError, "^weight .*torch.int64"),
    ({"weight": torch.ones(3).requires_grad_()}, RuntimeError, r"^weight .*weight\.detach\(\)"),
]
FLOAT8 = torch.float8_e4m3fn
BAD_CALLS: dict[str, Refusals] = {
    "transform": BAD_LOGITS,
    "classes": [
        *(BAD_LOGITS + BAD_OPTIONS + OUT_OF_RANGE + BAD_WEIGHTS),
        ({"target": torch.zeros(2)}, TypeError, "^target .*torch.float32"),
        ({"target": torch.full((2, 3), 1 / 3)}, TypeError, "^target .*soft targets"),
        ({"target": torch.tensor([0, 1, 2])}, ValueError, r"^target .*\(2,\).*\(3,\)"),
    ],
    "labels": [
        *(BAD_LOGITS + BAD_OPTIONS),
        ({"target": torch.zeros(2)}, ValueError, r"^target .*\(2, 3\).*\(2,\)"),
        ({"target": torch.full((2, 3), 0.5)}, ValueError, "^target .*0 and 1.* 0.5"),
        ({"target": torch.full((2, 3), -1)}, ValueError, "^target .*0 and 1.* -1"),
        ({"target": torch.full((2, 3), torch.nan)}, ValueError, "^target .*0 and 1.* nan"),
    ],
    "head": [
        *(BAD_OPTIONS + OUT_OF_RANGE + BAD_WEIGHTS),
        ({"x": torch.zeros(2, 5)}, ValueError, r"^the hidden states.*\(C, d\)"),
        ({"x": torch.zeros(2, 4).to(FLOAT8)}, TypeError, "^the hidden states.*float8"),
        ({"x": torch.zeros(2, 4).double()}, TypeError, "^the hidden states.* one dtype"),
        ({"target": torch.tensor([0])}, ValueError, r"^target .*\(2,\)"),
        ({"ignore_index": None}, TypeError, "^ignore_index .*None"),
    ],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_input_is_refused_by_name(name, as_many):
    function = FUNCTIONS[name]
    as_many(function)
    for change, error, message in BAD_CALLS[function.kind]:
        with pytest.raises(error, match=message):
            function.call(**GOOD | ALSO_GOOD.get(function.kind, {}) | change)


def test_the_mask_refuses_bad_input_as_the_losses_do():
    for change, error, message in BAD_LOGITS + OUT_OF_RANGE:
        logits, target, _ = (GOOD | change).values()
        with pytest.raises(error, match=message):
            functional.as_softmax_mask(logits, target, 0.1)


PUBLIC = [getattr(functional, name) for name in functional.__all__]
PUBLIC += [ASSoftmaxLoss, MultiLabelASSoftmaxLoss, LinearCrossEntropyLoss]
WITH_A_MARGIN = [public for public in PUBLIC if "delta" in inspect.signature(public).parameters]


@pytest.mark.parametrize("public", WITH_A_MARGIN, ids=lambda public: public.__name__)
@pytest.mark.parametrize(
    ("delta", "error", "message"),
    [
        (1.5, ValueError, "^delta .*1.5"),
        (-0.1, ValueError, "^delta .*-0.1"),
        (float("nan"), ValueError, "^delta .*nan"),
        ("0.1", TypeError, "^delta .*str"),
        (True, TypeError, "^delta "),
    ],
)
def test_a_margin_that_is_none_is_refused(public, delta, error, message):
    target = GOOD_LABELS if "label" in public.__name__.lower() else GOOD["target"]
    settings = (4, 3) if public is LinearCrossEntropyLoss else ()
    head = (torch.zeros(3, 3),) if "linear" in public.__name__ else ()
    inputs = () if inspect.isclass(public) else (GOOD["x"], *head, target)
    with pytest.raises(error, match=message):
        public(*settings, *inputs, delta=delta)


COUNTS = torch.tensor([50, 20, 4])
NAN, TAU = math.nan, torch.tensor(1.5)
Change = tuple[Callable[..., Tensor], dict[str, Any], type[Exception]]
# the message begins with the name of the argument that is changed last
BAD_ARGUMENTS: list[Change] = [
    (functional.sparse_softmax, {"k": 0}, ValueError),
    (functional.sparse_softmax, {"k": 4}, ValueError),
    (functional.sparse_softmax, {"k": 2.0}, TypeError),
    (functional.entmax, {"alpha": 0.9}, ValueError),
    (functional.entmax, {"alpha": NAN}, ValueError),
    (functional.entmax, {"alpha": TAU}, TypeError),
    (functional.taylor_softmax, {"order": 3}, ValueError),
    (functional.taylor_softmax, {"order": 0}, ValueError),
    (functional.taylor_softmax, {"order": 2.0}, TypeError),
    (functional.t_softmax, {"tau": 0}, ValueError),
    (functional.t_softmax, {"tau": "1"}, TypeError),
    (functional.am_softmax, {"tau": 0.0}, ValueError),
    (functional.am_softmax_loss, {"margin": -0.1}, ValueError),
    (functional.perturb_max, {"noise": "uniform"}, ValueError),
    (functional.focal_loss, {"gamma": -1}, ValueError),
    (functional.generalised_cross_entropy_loss, {"q": 1.1}, ValueError),
    (functional.encouraging_loss, {"log_end": 1.0}, ValueError),
    (functional.logit_adjusted_loss, {"tau": -0.5}, ValueError),
    (functional.logit_adjusted_loss, {"tau": NAN}, ValueError),
    (class_weights, {"power": -1}, ValueError),
    (class_weights, {"beta": 0.0}, ValueError),
    (functional.logit_adjusted_loss, {"class_counts": COUNTS[:2]}, ValueError),
    (functional.adjust_logits, {"class_counts": -COUNTS}, ValueError),
    (functional.adjust_logits, {"tau": -0.5}, ValueError),
    (functional.adjust_logits, {"tau": "1"}, TypeError),
    (functional.logit_adjusted_loss, {"class_counts": COUNTS / 0}, ValueError),
    (class_weights, {"class_counts": -COUNTS}, ValueError),
    (functional.logit_adjusted_loss, {"class_counts": [1, 2]}, TypeError),
    (functional.asymmetric_loss, {"gamma_negative": -1}, ValueError),
    (functional.asymmetric_loss, {"gamma_positive": -0.1}, ValueError),
    (functional.asymmetric_loss, {"clip": 1.0}, ValueError),
    (functional.asymmetric_loss, {"clip": -0.1}, ValueError),
    (functional.multilabel_sparse_loss, {"k": 4}, ValueError),
    (functional.multilabel_as_cross_entropy, {"logits": torch.zeros(2, 0)}, ValueError),
]


@pytest.mark.parametrize(("public", "change", "error"), BAD_ARGUMENTS)
def test_an_argument_out_of_its_range_is_refused_by_name(public, change, error):
    labels = public.__name__.startswith(("asymmetric", "multilabel"))
    given = {
        "logits": torch.zeros(2, 3),
        "target": GOOD_LABELS if labels else GOOD["target"],
        "class_counts": COUNTS,
    }
    arguments = inspect.signature(public).parameters.keys()
    if "logits" in change:
        given["target"] = change["logits"]
    (name,) = change
    with pytest.raises(error, match=f"^{name} must"):
        public(**{name: value for name, value in given.items() if name in arguments} | change)
