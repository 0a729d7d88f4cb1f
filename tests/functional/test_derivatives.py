"""First and second derivatives of every function, in every mode; loss scalers and half types."""

from functools import partial

import pytest
import torch
from harness.function_table import FUNCTIONS, case_of
from oracles.as_softmax import as_cross_entropy_reference
from torch.nn import functional as F

from as_lightning.functional import (
    as_cross_entropy,
    as_linear_cross_entropy,
    as_softmax_mask,
    cross_entropy,
)
from as_lightning.functional.calibration import fit_temperature
from as_lightning.functional.kernels import head_loss
from as_lightning.functional.leads import target_leads

LOSS_SCALE = 65536.0  # GradScaler's default


@pytest.fixture(params=["few logits", "many logits"])
def both_paths_of_the_cpu(request, monkeypatch):
    if request.param == "many logits":
        monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)


@pytest.fixture
def _no_head_is_too_small(monkeypatch):
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)


def dense(hidden, weight, target, delta=0.1, **options):
    return as_cross_entropy(F.linear(hidden, weight), target, delta, **options)


def head_gradients(loss, scale, autocast):
    """The unscaled gradients of hidden states and weight after a backward with a loss scaler's
    factor.
    """
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(1024, 16, generator=generator).requires_grad_()
    weight = (torch.randn(4000, 16, generator=generator) * 0.02).requires_grad_()
    target = torch.randint(2000, (1024,), generator=generator)
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        value = loss(hidden, weight, target)
    (value * scale).backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return hidden.grad / scale, weight.grad / scale


@pytest.mark.usefixtures("_no_head_is_too_small")
@pytest.mark.parametrize("delta", [0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("scale", [1.0, 32768.0, LOSS_SCALE])
def test_the_fused_head_in_float16_loses_no_gradient(scale, reduction, delta):
    def fused(*tensors):
        loss = as_linear_cross_entropy(*tensors, delta, reduction=reduction)
        return loss.mean() if reduction == "none" else loss

    exact = head_gradients(lambda *tensors: dense(*tensors, delta), 1.0, autocast=False)
    for ours, expected in zip(head_gradients(fused, scale, autocast=True), exact, strict=True):
        # classes that are no sample's target get q / N each, some 1e-7: it is these that were lost
        assert expected.any(1).all()
        assert ours.any(1).all()
        assert ((ours - expected).norm(dim=1) <= 0.02 * expected.norm(dim=1) + 1e-9).all()


@pytest.mark.usefixtures("_no_head_is_too_small")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])  # whose sum stops at a fraction
def test_sums_of_half_types_over_many_rows_of_one_class_neither_overflow_nor_stop(dtype):
    hidden = torch.full((4096, 1), 8.0, dtype=dtype)
    weight = torch.zeros(40, 1, dtype=dtype, requires_grad=True)
    as_linear_cross_entropy(hidden, weight, torch.zeros(4096, dtype=torch.long), 1.0).backward()
    assert weight.grad is not None
    assert weight.grad[0].item() == pytest.approx(8 * (1 / 40 - 1), rel=1e-2)
    assert weight.grad[1].item() == pytest.approx(8 / 40, rel=1e-2)


@pytest.mark.usefixtures("both_paths_of_the_cpu")
@pytest.mark.parametrize("masked", [False, True], ids=["live rows", "mostly masked rows"])
@pytest.mark.parametrize("retain_graph", [False, True])
def test_an_upstream_gradient_above_the_largest_float16_stays_finite(retain_graph, masked):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(40, 9, generator=generator)
    target = torch.randint(9, (40,), generator=generator)
    if masked:
        logits[torch.arange(38), target[:38]] += 40.0
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.to(dtype).requires_grad_()
        with torch.autocast("cpu", dtype):
            loss = as_cross_entropy(half, target, 0.1, reduction="sum")
        (gradient,) = torch.autograd.grad(loss * LOSS_SCALE, half, retain_graph=retain_graph)
        exact = half.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(
            as_cross_entropy_reference(exact, target, 0.1, reduction="sum"), exact
        )
        torch.testing.assert_close(gradient, (expected * LOSS_SCALE).to(dtype), rtol=1e-2, atol=0.5)


@pytest.mark.usefixtures("both_paths_of_the_cpu")
def test_small_float16_probabilities_are_kept_for_the_loss_scaler():
    logits = torch.zeros(4, 200, dtype=torch.float16)
    logits[:, 0] = 17.0
    leaf = logits.requires_grad_()
    with torch.autocast("cpu", torch.float16):
        loss = as_cross_entropy(leaf, torch.tensor([0, 0, 1, 1]), 1.0, reduction="sum")
    (gradient,) = torch.autograd.grad(loss * 1024, leaf)
    expected = torch.softmax(logits.detach().double(), 1)[0, 5] * 1024
    assert gradient[0, 5].item() == pytest.approx(expected.item(), rel=2e-2)


@pytest.mark.parametrize(
    ("dtype", "ignore_index"), [(torch.uint8, -100), (torch.int8, 300), (torch.int16, 70000)]
)
def test_what_is_read_off_logits_ignores_no_class_for_an_ignore_index_beyond_a_narrow_type(
    dtype, ignore_index
):
    # every class that it could wrap around to
    target = torch.arange(256 if dtype == torch.uint8 else 128)
    logits = torch.randn(len(target), len(target))
    for function in (partial(as_softmax_mask, delta=0.1), target_leads, fit_temperature):
        found, expected = (
            function(logits, of, ignore_index=ignore_index) for of in (target.to(dtype), target)
        )
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
    counts = as_cross_entropy(
        logits, target.to(dtype), ignore_index=ignore_index, return_counts=True
    )[1]
    assert int(counts.samples) == len(target)


def loss_and_leaves(name, reduction, as_many):
    """A function of its leaves in float64, these, and whether it is the fused head."""
    function = FUNCTIONS[name]
    as_many(function)
    kind = {"transform": "plain", "labels": "ignored"}.get(function.kind, "weighted")
    case = case_of(function, kind, torch.float64, rows=6, classes=5, features=3)

    def loss(*leaves):
        return case._replace(leaves=[*leaves]).call(function.call, reduction=reduction)

    leaves = tuple(leaf.requires_grad_() for leaf in case.leaves)
    return loss, leaves, function.kind == "head" and function.many


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_first_derivatives_of_every_mode_are_right_or_refused(name, reduction, as_many):
    loss, leaves, fused = loss_and_leaves(name, reduction, as_many)
    batched = not fused or reduction == "mean"
    ways = {
        "check_forward_ad": True,
        "check_batched_forward_grad": True,
        "check_batched_grad": batched,
    }
    assert torch.autograd.gradcheck(loss, leaves, atol=1e-7, rtol=1e-7, **ways)
    one_by_one = torch.autograd.functional.jacobian(loss, leaves)
    for jacobian in (torch.func.jacfwd, torch.func.jacrev)[: 1 + batched]:
        torch.testing.assert_close(jacobian(loss, (0, 1)[: len(leaves)])(*leaves), one_by_one)
    if not batched:
        with pytest.raises(RuntimeError, match=r"jacobian\(vectorize=False"):
            torch.autograd.functional.jacobian(loss, leaves, vectorize=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_those_of_the_eager_call_in_every_mode(name, as_many):
    loss, leaves, fused = loss_and_leaves(name, "mean", as_many)
    if fused:
        with pytest.raises(RuntimeError, match=r"create_graph=True: .*as_cross_entropy"):
            torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
        return
    assert torch.autograd.gradgradcheck(loss, leaves)
    eager = torch.autograd.functional.hessian(lambda x: loss(x, *leaves[1:]), leaves[0])
    assert eager.isfinite().all()
    some_are_linear = FUNCTIONS[name].kind == "transform"  # where they are not 0
    assert eager.any() or some_are_linear
    x, others = leaves[0].detach(), [leaf.detach() for leaf in leaves[1:]]
    of_first = lambda x: loss(x, *others)  # noqa: E731
    for hessian in (torch.func.hessian(of_first), torch.func.jacrev(torch.func.grad(of_first))):
        torch.testing.assert_close(hessian(x), eager)


def test_second_derivatives_of_many_logits_under_the_compiler_are_right(monkeypatch):
    monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
    logits, target = torch.randn(6, 5, dtype=torch.float64), torch.randint(5, (6,))
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x: as_cross_entropy(x, target, 0.1), backend="eager", fullgraph=True
    )

    def penalty(loss):
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
        return second

    torch.testing.assert_close(
        penalty(compiled), penalty(lambda x: as_cross_entropy(x, target, 0.1))
    )
    assert penalty(compiled).any()


def test_a_backend_without_second_derivatives_refuses_them_as_for_cross_entropy(monkeypatch):
    monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
    target, messages = torch.randint(5, (6,)), []
    for loss in (F.cross_entropy, as_cross_entropy):
        torch.compiler.reset()
        compiled = torch.compile(
            lambda x, loss=loss: loss(x, target), backend="aot_eager", fullgraph=True
        )
        leaf = torch.randn(6, 5).requires_grad_()
        (gradient,) = torch.autograd.grad(compiled(leaf), leaf, create_graph=True)
        with pytest.raises(RuntimeError) as refusal:
            torch.autograd.grad(gradient.square().sum(), leaf)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]


# of few rows all are computed in one way, of many each in its own
@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(torch.bfloat16, -3.14, 100.0), (torch.float16, -4e4, 4e4)]
)
def test_the_loss_of_a_far_target_in_half_precision_is_that_of_float32(rows, dtype, low, high):
    logits = torch.zeros(rows, 70, dtype=dtype)
    logits[:, 0], logits[:, 1] = low, high
    target = torch.zeros(rows, dtype=torch.int64)
    exact = F.cross_entropy(logits.double(), target)
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(
            as_cross_entropy(logits, target, 1.0).double(), exact, rtol=1e-5, atol=0
        )
