from typing import Any

import pytest
import torch
from harness.gpu_kernel import take_the_kernel_of_a_gpu
from oracles.as_softmax import as_softmax_reference
from torch.nn import functional as F

from as_lightning.functional import (
    as_cross_entropy,
    as_softmax_mask,
    cross_entropy,
    multilabel_as_cross_entropy,
)
from as_lightning.functional.calling_convention import accumulation_dtype
from as_lightning.functional.kernels import row_loss

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
SHAPES = ((7,), (5, 7), (3, 7, 4), (2, 7, 3, 2), (1, 1), (4, 2), (6, 1, 2))
SCALAR_UPSTREAM = -0.5


@pytest.fixture(
    autouse=True,
    params=["few logits", "many logits", pytest.param("one kernel", marks=pytest.mark.slow)],
)
def _every_path(request, monkeypatch):
    """The small examples take the paths of few and of many logits, and those of other devices, also
    on the CPU.
    """
    if request.param != "few logits":
        monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
    if request.param == "one kernel":
        take_the_kernel_of_a_gpu(monkeypatch, row_loss)


def example(shape, dtype=torch.float32, seed=0):
    """Logits with unmasked, mixed and fully masked rows, and targets."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    class_dim = 0 if len(shape) == 1 else 1
    target_shape = shape[:class_dim] + shape[class_dim + 1 :]
    target = torch.randint(shape[class_dim], target_shape, generator=generator)
    lead = torch.rand(target_shape, generator=generator, dtype=torch.float64) * 8
    logits.scatter_add_(class_dim, target.unsqueeze(class_dim), lead.unsqueeze(class_dim))
    return logits.to(dtype), target


def value_and_gradient(loss_function, logits, *args, **kwargs):
    """The loss and its gradient for an upstream gradient that differs from element to element."""
    leaf = logits.detach().clone().requires_grad_()
    loss = loss_function(leaf, *args, **kwargs)
    upstream = (
        torch.linspace(-1.0, 2.0, loss.numel()).reshape(loss.shape)
        if loss.dim()
        else torch.tensor(SCALAR_UPSTREAM)
    )
    (gradient,) = torch.autograd.grad(loss, leaf, upstream.to(loss.dtype))
    return loss.detach(), gradient


def assert_agrees(ours, reference, dtype):
    for mine, theirs in zip(ours, reference, strict=True):
        torch.testing.assert_close(
            mine, theirs.to(dtype), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], equal_nan=True
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [*SHAPES, (0, 7), (0, 3, 5), (2, 3, 0)], ids=str)
def test_delta_one_equals_cross_entropy(shape, reduction, dtype):
    logits, target = example(shape, dtype)
    # computed in float32, then rounded: on a CPU F.cross_entropy rounds half types between its
    # steps
    exact = logits.to(accumulation_dtype(dtype))
    weight = torch.linspace(
        0.25, 2.0, logits.size(0 if logits.dim() == 1 else 1), dtype=exact.dtype
    )
    for kwargs in ({}, {"weight": weight}):
        for ignored in (-100, 0):
            options = {**kwargs, "ignore_index": ignored, "reduction": reduction}
            assert_agrees(
                value_and_gradient(as_cross_entropy, logits, target, 1.0, **options),
                value_and_gradient(F.cross_entropy, exact, target, **options),
                dtype,
            )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("delta", [0.0, 0.1, 0.5])
def test_loss_and_gradient_are_0_to_the_last_bit_exactly_where_no_competitor_is_kept(shape, delta):
    logits, target = example(shape)
    class_dim = 0 if len(shape) == 1 else 1
    live = as_softmax_mask(logits, target, delta).sum(class_dim) > 1
    losses = as_cross_entropy(logits.requires_grad_(), target, delta, reduction="none")
    losses.sum().backward()
    assert torch.equal(losses != 0, live)
    assert torch.equal(logits.grad.any(class_dim), live)


def test_nan_is_kept():
    logits = torch.tensor([[torch.nan, 9.0, 0.0]])
    assert as_softmax_mask(logits, torch.tensor([1]), 0.1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_more_is_saved_for_backward_than_by_cross_entropy(dtype, monkeypatch):
    # few logits are widened as a whole: 128 KB at most
    monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
    logits, target = example((64, 500), dtype)

    def saved_bytes(loss_function):
        storages: dict[int, int] = {}

        def pack(tensor):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss_function(logits.clone().requires_grad_() * 1, target)
        return sum(storages.values())

    # beside the matrix there is only a handful of numbers for each row
    assert saved_bytes(as_cross_entropy) <= saved_bytes(F.cross_entropy) + 64 * 64
    assert saved_bytes(as_cross_entropy) < 1.15 * logits.numel() * logits.element_size()


@pytest.mark.parametrize(("shape", "reduction"), [((7,), "mean"), ((4, 7, 3), "none")], ids=str)
def test_every_shape_and_reduction_with_its_counts_traces_to_one_graph(shape, reduction):
    logits, target = example(shape, torch.bfloat16)
    torch.compiler.reset()
    compiled = torch.compile(as_cross_entropy, fullgraph=True, backend="aot_eager")
    options: dict[str, Any] = {"reduction": reduction, "return_counts": True}
    (loss, counts), (expected, all_counts) = (
        f(logits, target, 0.1, **options) for f in (compiled, as_cross_entropy)
    )
    torch.testing.assert_close(loss, expected)
    assert tuple(counts) == tuple(all_counts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_row_has_the_same_half_gradient_whether_or_not_all_upstream_gradients_are_one_number(
    dtype, reduction
):
    logits, target = example((40, 9), dtype)
    # fully masked rows, and ignored ones
    logits[::7], target[1::7] = (50.0 * F.one_hot(target[::7], 9), -100)
    leaf = logits.requires_grad_()
    (one_number,) = torch.autograd.grad(as_cross_entropy(leaf, target, reduction=reduction), leaf)
    share = torch.full((40,), 1.0 if reduction == "sum" else 1.0 / int((target != -100).sum()))
    odd = int(one_number.any(-1).nonzero()[0])
    share[odd] *= 2.0
    # so that the loss of each row is not rounded to the half type
    with torch.autocast("cpu", dtype):
        (by_row,) = torch.autograd.grad(
            as_cross_entropy(leaf, target, reduction="none"), leaf, share
        )
    others = [row for row in range(40) if row != odd]
    assert one_number[others].any()
    assert torch.equal(by_row[others], one_number[others])
    assert not one_number[::7].any()
    assert not one_number[1::7].any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gpu_is_never_waited_for(dtype):
    logits, target = example((64, 100), dtype)
    target[3] = -100
    leaf, device_target = logits.cuda().requires_grad_(), target.cuda()
    weight = torch.linspace(0.5, 1.5, 100)
    device_weight, labels = weight.cuda(), (logits > 0).cuda()
    for mode in ("default", "error"):  # first CUDA's libraries are started up
        torch.cuda.set_sync_debug_mode(mode)
        try:
            multilabel_as_cross_entropy(leaf * 1, labels, 0.1, return_counts=True)[0].backward()
            leaf.grad = None
            loss, counts = as_cross_entropy(
                leaf, device_target, 0.1, weight=device_weight, return_counts=True
            )
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert leaf.grad is not None
    expected, gradient = value_and_gradient(as_cross_entropy, logits, target, 0.1, weight=weight)
    assert_agrees(
        (loss.detach().cpu(), leaf.grad.cpu()), (expected, gradient / SCALAR_UPSTREAM), dtype
    )
    assert [int(count) for count in counts] == list(as_softmax_reference(logits, target, 0.1)[2])
