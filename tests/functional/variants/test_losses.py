"""Properties that every loss with class-index targets has, against its reference and against ``F.cross_entropy``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness.variant_methods import METHODS, Method, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.variants import by_rows

from as_lightning.functional import (
    entmax_loss,
    label_smoothing_loss,
)

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


@every_method
@pytest.mark.parametrize("num_classes", [3, 9])
@pytest.mark.parametrize("scale", [0.3, 3.0, 12.0])
def test_loss_equals_reference(method: Method, num_classes: int, scale: float) -> None:
    logits = random_logits(5, num_classes, scale=scale)
    target = torch.tensor([0, 1, 2, 2, 0])
    loss = method.loss(logits, target, reduction="none", **method.all_loss_arguments)
    expected = by_rows(method.reference_loss, logits.numpy(), target.numpy(), **method.all_loss_arguments)
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-6, atol=1e-8)


@every_method
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32_which_autocast_keeps(
    method: Method, dtype: torch.dtype, reduction: str
) -> None:
    logits = random_logits(6, 10).to(dtype).requires_grad_()
    wide, target = logits.detach().float().requires_grad_(), torch.arange(6)
    loss, expected = (method.loss(x, target, reduction=reduction, **method.all_loss_arguments) for x in (logits, wide))
    loss.sum().backward()
    expected.sum().backward()
    assert loss.dtype == dtype
    assert torch.equal(loss, expected.to(dtype))
    assert torch.equal(logits.grad, wide.grad.to(dtype))
    with torch.autocast("cpu", dtype=dtype):
        loss = method.loss(logits, target, reduction=reduction, **method.all_loss_arguments)
        assert loss.dtype == F.cross_entropy(logits, target).dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)


def test_label_smoothing_is_the_one_of_pytorch() -> None:
    logits, target, weight = random_logits(6, 5), torch.tensor([0, 1, -100, 4, 1, 2]), torch.rand(5).double()
    for reduction in ("none", "mean", "sum"):
        assert torch.equal(
            label_smoothing_loss(logits, target, smoothing=0.2, weight=weight, reduction=reduction),
            F.cross_entropy(logits, target, label_smoothing=0.2, weight=weight, reduction=reduction),
        )


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.gradient_is_p_minus_onehot])
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 5),
    classes=st.integers(1, 300),
    scale=st.sampled_from([0.1, 1.0, 5.0, 50.0]),
)
def test_gradient_is_p_minus_onehot(name: str, seed: int, rows: int, classes: int, scale: float) -> None:
    method = METHODS[name]
    assert method.transform is not None
    logits = random_logits(rows, classes, scale=scale, seed=seed).requires_grad_()
    target = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(seed))
    method.loss(logits, target, reduction="sum", **method.all_loss_arguments).backward()
    expected = method.transform(logits.detach(), **method.arguments) - F.one_hot(target, classes)
    torch.testing.assert_close(logits.grad, expected, rtol=1e-7, atol=1e-9)


@every_method
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from([(torch.float32, 1e4), (torch.bfloat16, 1e3), (torch.float16, 1e3), (torch.float64, 1e4)]),
)
@pytest.mark.bug_report(
    "kornia/kornia#918", "The focal loss has a gradient of NaN where a probability is exactly 0 or 1."
)
def test_large_logits_give_finite_losses_and_gradients(
    method: Method, seed: int, kind: tuple[torch.dtype, float]
) -> None:
    dtype, size = kind
    generator = torch.Generator().manual_seed(seed)
    logits = ((torch.rand(8, 40, generator=generator) * 2 - 1) * size).to(dtype)
    logits[0] = size  # all equal
    logits[1], logits[1, 3] = -size, size  # the target as far ahead as it gets
    logits[2], logits[2, 3] = size, -size  # and as far behind
    logits.requires_grad_()
    target = torch.full((8,), 3)
    exact = method.loss(logits.detach().double(), target, reduction="none", **method.all_loss_arguments)
    loss = method.loss(logits, target, reduction="none", **method.all_loss_arguments)
    fits = exact <= torch.finfo(dtype).max  # a loss of 1e6 is right, and is no float16
    assert loss[fits].isfinite().all()
    torch.testing.assert_close(loss[fits].double(), exact[fits], rtol=2e-2, atol=1e-4)
    loss[fits].double().sum().backward()
    assert logits.grad.isfinite().all()


@every_method
def test_classes_masked_with_minus_infinity_are_left_out(method: Method) -> None:
    if not method.shift_invariant or method.loss is label_smoothing_loss or "power" in method.arguments:
        pytest.skip("a polynomial of -inf is +inf, smoothing puts mass on every class, and weights are relative to all")
    logits = random_logits(3, 6, scale=1.0)
    masked = torch.cat((logits, torch.full((3, 2), -torch.inf, dtype=torch.float64)), dim=1).requires_grad_()
    target = torch.tensor([0, 1, 2])
    loss = method.loss(masked, target, reduction="none", **method.all_loss_arguments)
    expected = method.loss(logits, target, reduction="none", **method.all_loss_arguments)
    torch.testing.assert_close(loss, expected, rtol=1e-8, atol=1e-9)
    loss.sum().backward()
    assert torch.equal(masked.grad[:, 6:], torch.zeros(3, 2, dtype=torch.float64))


@pytest.mark.parametrize(("alpha", "lead"), [(2.0, 1.0), (1.5, 2.0), (1.25, 4.0)])
def test_entmax_loss_vanishes_past_its_margin(alpha: float, lead: float) -> None:
    logits = random_logits(5, 8, scale=1.0)
    target = logits.argmax(-1)
    best_other = logits.scatter(1, target.unsqueeze(1), -torch.inf).amax(1, keepdim=True)
    ahead = logits.scatter(1, target.unsqueeze(1), best_other + lead + 1e-9).requires_grad_()
    short = logits.scatter(1, target.unsqueeze(1), best_other + lead - 0.05)
    loss = entmax_loss(ahead, target, alpha=alpha, reduction="none")
    loss.sum().backward()
    exact = 0.0 if alpha == 2.0 else 1e-14
    torch.testing.assert_close(loss.detach(), torch.zeros(5, dtype=torch.float64), rtol=0, atol=exact)
    torch.testing.assert_close(ahead.grad, torch.zeros_like(ahead), rtol=0, atol=exact)
    assert (entmax_loss(short, target, alpha=alpha, reduction="none") > 0).all()


def test_entmax_losses_of_many_equal_classes_keep_their_digits() -> None:
    # running sums over 30,000 logits of -1e4 lose all digits in float32
    logits = torch.full((2, 30_000), -1e4)
    logits[:, 7], logits[:, 9] = 0.0, -0.4
    target = torch.tensor([9, 20])
    for alpha in (1.5, 2.0, 1.3):
        expected = entmax_loss(logits.double(), target, alpha=alpha, reduction="none")
        torch.testing.assert_close(entmax_loss(logits, target, alpha=alpha, reduction="none").double(), expected)


BAD_CALLS: dict[str, tuple[dict[str, Any], type[Exception] | tuple[type[Exception], ...], str]] = {
    "float target": ({"target": torch.zeros(2)}, TypeError, "class indices"),
    "soft target": ({"target": torch.full((2, 4), 0.25)}, TypeError, "class indices"),
    "integer logits": ({"logits": torch.ones(2, 4).long()}, TypeError, "logits must be a floating-point tensor"),
    "shape": ({"target": torch.tensor([0, 1, 2])}, ValueError, r"shape \(2,\)"),
    "reduction": ({"reduction": "batchmean"}, ValueError, "reduction must be one of .* got 'batchmean'"),
    "weight shape": ({"weight": torch.ones(3)}, ValueError, r"one weight per class, shape \(4,\), got \(3,\)"),
    "weight type": ({"weight": torch.ones(4).long()}, TypeError, "weight must be a floating-point tensor"),
    "high": ({"target": torch.tensor([0, 4])}, (IndexError, RuntimeError), r"bound|class indices from 0 to 3 .* got"),
    "low": ({"target": torch.tensor([0, -1])}, (IndexError, RuntimeError), r"bound|class indices from 0 to 3 .* got"),
}


@every_method
@pytest.mark.parametrize("case", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_input_is_refused(method: Method, case: tuple) -> None:
    change, error, message = case
    good = {"logits": torch.randn(2, 4), "target": torch.tensor([0, 1])}
    with pytest.raises(error, match=message):
        method.loss(**good | method.all_loss_arguments | change)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_method
def test_cuda_agrees_with_cpu(method: Method) -> None:
    logits, target = random_logits(8, 300, dtype=torch.float32).requires_grad_(), torch.arange(8)
    on_device = logits.detach().cuda().requires_grad_()
    loss = method.loss(logits, target, **method.all_loss_arguments)
    device_loss = method.loss(on_device, target.cuda(), **method.all_loss_arguments)
    loss.backward()
    device_loss.backward()
    torch.testing.assert_close(device_loss.cpu(), loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(on_device.grad.cpu(), logits.grad, rtol=1e-3, atol=1e-5)
