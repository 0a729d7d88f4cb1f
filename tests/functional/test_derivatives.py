"""Loss scalers, narrow integer targets and every way to differentiate: what each loss supports, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness.variant_methods import METHODS, Method
from oracles.as_softmax import as_cross_entropy_reference
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from as_lightning.functional import (
    as_cross_entropy,
    as_linear_cross_entropy,
    as_softmax_mask,
    bce_loss,
    cross_entropy,
    live_samples,
    multilabel_as_cross_entropy,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
)
from as_lightning.functional.calibration import fit_temperature
from as_lightning.functional.kernels import head_loss
from as_lightning.functional.leads import target_leads

LOSS_SCALE = 65536.0  # GradScaler's default


@pytest.fixture(params=["few logits", "many logits"])
def both_paths_of_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many logits":
        monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)


@pytest.fixture
def _no_head_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)


@pytest.fixture
def fused_head(_no_head_is_too_small: None) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weight and targets of a head that takes the path of wide ones."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    weight = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    return hidden, weight, torch.randint(30, (6,), generator=generator)


def dense(hidden: Tensor, weight: Tensor, target: Tensor, delta: float = 0.1, **options: Any) -> Tensor:
    return as_cross_entropy(F.linear(hidden, weight), target, delta, **options)


def head_gradients(loss: Callable[..., Tensor], scale: float, autocast: bool) -> tuple[Tensor, Tensor]:
    """The unscaled gradients of hidden states and weight after a backward with a loss scaler's factor."""
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
def test_the_fused_head_in_float16_loses_no_gradient(scale: float, reduction: str, delta: float) -> None:
    def fused(*tensors: Tensor) -> Tensor:
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
def test_sums_of_half_types_over_many_rows_of_one_class_neither_overflow_nor_stop(dtype: torch.dtype) -> None:
    hidden = torch.full((4096, 1), 8.0, dtype=dtype)
    weight = torch.zeros(40, 1, dtype=dtype, requires_grad=True)
    as_linear_cross_entropy(hidden, weight, torch.zeros(4096, dtype=torch.long), 1.0).backward()
    assert weight.grad is not None
    assert weight.grad[0].item() == pytest.approx(8 * (1 / 40 - 1), rel=1e-2)
    assert weight.grad[1].item() == pytest.approx(8 / 40, rel=1e-2)


@pytest.mark.usefixtures("both_paths_of_the_cpu")
@pytest.mark.parametrize("masked", [False, True], ids=["live rows", "mostly masked rows"])
@pytest.mark.parametrize("retain_graph", [False, True])
def test_an_upstream_gradient_above_the_largest_float16_stays_finite(retain_graph: bool, masked: bool) -> None:
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
        (expected,) = torch.autograd.grad(as_cross_entropy_reference(exact, target, 0.1, reduction="sum"), exact)
        torch.testing.assert_close(gradient, (expected * LOSS_SCALE).to(dtype), rtol=1e-2, atol=0.5)


@pytest.mark.usefixtures("both_paths_of_the_cpu")
def test_small_float16_probabilities_are_kept_for_the_loss_scaler() -> None:
    logits = torch.zeros(4, 200, dtype=torch.float16)
    logits[:, 0] = 17.0
    leaf = logits.requires_grad_()
    with torch.autocast("cpu", torch.float16):
        loss = as_cross_entropy(leaf, torch.tensor([0, 0, 1, 1]), 1.0, reduction="sum")
    (gradient,) = torch.autograd.grad(loss * 1024, leaf)
    expected = torch.softmax(logits.detach().double(), 1)[0, 5] * 1024
    assert gradient[0, 5].item() == pytest.approx(expected.item(), rel=2e-2)


NARROW = pytest.mark.parametrize(
    ("dtype", "ignore_index"),
    [(torch.uint8, -100), (torch.uint8, 300), (torch.int8, 300), (torch.int8, -300), (torch.int16, 70000)],
    ids=str,
)


def every_class(dtype: torch.dtype) -> Tensor:
    """A target of every class that an ignore_index could wrap around to."""
    return torch.arange(256 if dtype == torch.uint8 else 128).to(dtype)


@pytest.mark.usefixtures("both_paths_of_the_cpu", "_no_head_is_too_small")
@NARROW
def test_an_ignore_index_beyond_a_narrow_type_ignores_no_class(dtype: torch.dtype, ignore_index: int) -> None:
    target = every_class(dtype)
    classes = len(target)
    logits = torch.randn(classes, classes)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": "none"}
    expected = F.cross_entropy(logits, target.long(), **options)
    torch.testing.assert_close(as_cross_entropy(logits, target, 1.0, **options), expected)
    _, counts = as_cross_entropy(logits, target, 0.1, ignore_index=ignore_index, return_counts=True)
    assert int(counts.samples) == classes
    head = as_linear_cross_entropy(logits, torch.eye(classes), target, 1.0, **options)
    torch.testing.assert_close(head, expected)
    mask = as_softmax_mask(logits, target, 0.1, ignore_index=ignore_index)
    assert torch.equal(mask, as_softmax_mask(logits, target.long(), 0.1, ignore_index=ignore_index))
    live = live_samples(logits, target, 0.1, ignore_index)
    assert torch.equal(live, live_samples(logits, target.long(), 0.1, ignore_index))
    leads = target_leads(logits, target, ignore_index)
    assert torch.equal(leads, target_leads(logits, target.long(), ignore_index))
    temperature = fit_temperature(logits, target, ignore_index=ignore_index)
    assert temperature == fit_temperature(logits, target.long(), ignore_index=ignore_index)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
@NARROW
def test_the_family_ignores_no_class_for_an_ignore_index_beyond_a_narrow_type(
    method: Method, dtype: torch.dtype, ignore_index: int
) -> None:
    target = every_class(dtype)
    logits = torch.randn(len(target), len(target), dtype=torch.float64)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": "none", **method.all_loss_arguments}
    losses = []
    for classes in (target, target.long()):
        leaf = logits.clone().requires_grad_()
        loss = method.loss(leaf, classes, **options)
        losses.append((loss, *torch.autograd.grad(loss.sum(), leaf)))
    torch.testing.assert_close(*losses, rtol=0, atol=0)
    assert bool((losses[0][0] > 0).all())


@pytest.mark.parametrize(
    "loss", [bce_loss, multilabel_as_cross_entropy, multilabel_softmax_loss, multilabel_sparse_loss]
)
@pytest.mark.parametrize(("dtype", "ignore_index"), [(torch.uint8, -255), (torch.int8, 257), (torch.int16, 65537)])
def test_an_ignore_index_beyond_a_narrow_type_ignores_no_label(
    loss: Callable[..., Tensor], dtype: torch.dtype, ignore_index: int
) -> None:
    logits, target = torch.randn(6, 7), torch.tensor([[1, 0, 0, 1, 0, 1, 0]] * 6)  # ignore_index wraps around to 1
    found, expected = (
        loss(logits, labels, ignore_index=ignore_index, reduction="none") for labels in (target.to(dtype), target)
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_fused_head_takes_batched_upstream_gradients(
    fused_head: tuple[Tensor, Tensor, Tensor], reduction: str
) -> None:
    hidden, weight, target = fused_head
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]
    upstream = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    loss = as_linear_cross_entropy(*leaves, target, reduction=reduction)
    ours = torch.autograd.grad(loss, leaves, upstream, is_grads_batched=True)
    expected = torch.autograd.grad(dense(*leaves, target, reduction=reduction), leaves, upstream, is_grads_batched=True)
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_fused_head_of_single_losses_refuses_batched_upstream_gradients(
    fused_head: tuple[Tensor, Tensor, Tensor],
) -> None:
    hidden, weight, target = fused_head

    def losses(x: Tensor) -> Tensor:
        return as_linear_cross_entropy(x, weight, target, reduction="none")

    with pytest.raises(RuntimeError, match=r"one upstream gradient at a time, .*: use jacobian\(vectorize=False\)"):
        torch.autograd.functional.jacobian(losses, hidden, vectorize=True)
    expected = torch.autograd.functional.jacobian(lambda x: dense(x, weight, target, reduction="none"), hidden)
    torch.testing.assert_close(torch.autograd.functional.jacobian(losses, hidden), expected)


@pytest.mark.usefixtures("both_paths_of_the_cpu")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_jacobians_are_the_same_vectorised_or_not(reduction: str) -> None:
    logits, target = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])

    def loss(x: Tensor) -> Tensor:
        return as_cross_entropy(x, target, 0.1, reduction=reduction)

    one_by_one = torch.autograd.functional.jacobian(loss, logits)
    for options in ({"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
        torch.testing.assert_close(torch.autograd.functional.jacobian(loss, logits, **options), one_by_one)
    torch.testing.assert_close(torch.func.jacrev(loss)(logits), one_by_one)
    torch.testing.assert_close(torch.func.jacfwd(loss)(logits), one_by_one)


@pytest.mark.usefixtures("both_paths_of_the_cpu")
def test_forward_mode_gives_the_directional_derivative(fused_head: tuple[Tensor, Tensor, Tensor]) -> None:
    hidden, weight, target = fused_head
    direction = torch.randn_like(hidden)
    leaf = hidden.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(dense(leaf, weight, target), leaf)
    for loss in (as_linear_cross_entropy, dense):
        with forward_ad.dual_level():
            value = loss(forward_ad.make_dual(hidden, direction), weight, target)
            tangent = forward_ad.unpack_dual(value).tangent
        torch.testing.assert_close(tangent, (gradient * direction).sum())
        _, by_transform = torch.func.jvp(lambda x, loss=loss: loss(x, weight, target), (hidden,), (direction,))
        torch.testing.assert_close(by_transform, tangent)


def test_second_derivatives_of_many_logits_under_the_compiler_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
    logits, target = torch.randn(6, 5, dtype=torch.float64), torch.randint(5, (6,))
    torch.compiler.reset()
    compiled = torch.compile(lambda x: as_cross_entropy(x, target, 0.1), backend="eager", fullgraph=True)

    def penalty(loss: Callable[[Tensor], Tensor]) -> Tensor:
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
        return second

    torch.testing.assert_close(penalty(compiled), penalty(lambda x: as_cross_entropy(x, target, 0.1)))
    assert penalty(compiled).any()


def test_a_backend_without_second_derivatives_refuses_them_as_for_cross_entropy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
    target, messages = torch.randint(5, (6,)), []
    for loss in (F.cross_entropy, as_cross_entropy):
        torch.compiler.reset()
        compiled = torch.compile(lambda x, loss=loss: loss(x, target), backend="aot_eager", fullgraph=True)
        leaf = torch.randn(6, 5).requires_grad_()
        (gradient,) = torch.autograd.grad(compiled(leaf), leaf, create_graph=True)
        with pytest.raises(RuntimeError) as refusal:
            torch.autograd.grad(gradient.square().sum(), leaf)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("rows", [100, 1000])  # of few rows all are computed in one way, of many each in its own
@pytest.mark.parametrize(("dtype", "low", "high"), [(torch.bfloat16, -3.14, 100.0), (torch.float16, -4e4, 4e4)])
def test_the_loss_of_a_far_target_in_half_precision_is_that_of_float32(
    rows: int, dtype: torch.dtype, low: float, high: float
) -> None:
    logits = torch.zeros(rows, 70, dtype=dtype)
    logits[:, 0], logits[:, 1] = low, high
    target = torch.zeros(rows, dtype=torch.int64)
    exact = F.cross_entropy(logits.double(), target)
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(as_cross_entropy(logits, target, 1.0).double(), exact, rtol=1e-5, atol=0)
