"""The losses of a wide head: against the dense formula in float64, and against PyTorch's own
functions.
"""

from typing import Any, NamedTuple

import pytest
import torch
from harness.gpu_kernel import take_the_kernel_of_a_gpu
from oracles.as_softmax import as_cross_entropy_reference
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from as_lightning import LinearCrossEntropyLoss
from as_lightning.functional import as_cross_entropy, as_linear_cross_entropy, linear_cross_entropy
from as_lightning.functional.kernels import head_loss, row_loss

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 8e-3}


@pytest.fixture(
    autouse=True, params=["by PyTorch", pytest.param("one kernel", marks=pytest.mark.slow)]
)
def _no_head_is_too_small(request, monkeypatch):
    """The tests' small heads take the path of wide ones, and that of a GPU also on the CPU."""
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)
    if request.param == "one kernel":
        take_the_kernel_of_a_gpu(monkeypatch, row_loss, head_loss)


class Head(NamedTuple):
    hidden: Tensor
    head_weight: Tensor
    bias: Tensor
    target: Tensor


def example(shape=(24,), classes=80, features=6, dtype=torch.float64, seed=0, lead=12.0):
    """A head with unmasked rows, mixed rows of few and of many kept classes, and fully
    masked rows.
    """
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, features, generator=generator, dtype=torch.float64)
    target = torch.randint(classes, shape, generator=generator)
    certainty = torch.rand((*shape, 1), generator=generator, dtype=torch.float64) * lead
    hidden = torch.randn((*shape, features), generator=generator, dtype=torch.float64) / features
    hidden = hidden + certainty * weight[target] / weight[target].square().sum(-1, keepdim=True)
    bias = torch.randn(classes, generator=generator, dtype=torch.float64) * 0.3
    return Head(hidden.to(dtype), weight.to(dtype), bias.to(dtype), target)


def value_and_gradients(loss_function, head, delta, **options):
    leaves = [x.detach().clone().requires_grad_() for x in head[:3]]
    loss = loss_function(*leaves, head.target, delta, **options)
    upstream = (
        torch.linspace(-1.0, 2.0, loss.numel()).reshape(loss.shape)
        if loss.dim()
        else torch.tensor(0.7)
    )
    return loss.detach(), *torch.autograd.grad(loss, leaves, upstream.to(loss))


def fused(hidden, head_weight, bias, target, delta, **options):
    return as_linear_cross_entropy(hidden, head_weight, target, delta, bias=bias, **options)


def dense(hidden, head_weight, bias, target, delta, **options):
    """The head, then the float64 reference of the loss."""
    logits = F.linear(hidden.double(), head_weight.double(), bias.double())
    return as_cross_entropy_reference(
        logits.movedim(-1, 0 if logits.dim() == 1 else 1), target, delta, **options
    )


def assert_agrees(ours, reference, dtype):
    for mine, theirs in zip(ours, reference, strict=True):
        assert mine.dtype == dtype
        # relative to the largest entry: sums over rows cancel
        size = max(1.0, float(theirs.abs().nan_to_num().max())) if theirs.numel() else 1.0
        torch.testing.assert_close(
            mine.double(), theirs.double(), rtol=0.0, atol=TOLERANCE[dtype] * size, equal_nan=True
        )


@pytest.mark.parametrize("frozen", ["hidden", "head_weight", "bias"])
@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_a_frozen_input_gets_no_gradient_and_changes_no_other(frozen, reduction):
    head = example()
    free = {
        name: x.clone().requires_grad_()
        for name, x in head._asdict().items()
        if name not in (frozen, "target")
    }
    fused(**{**head._asdict(), **free}, delta=0.1, reduction=reduction).sum().backward()
    everything = Head(*(x.clone().requires_grad_() for x in head[:3]), head.target)
    fused(*everything, 0.1, reduction=reduction).sum().backward()
    for name, x in free.items():
        torch.testing.assert_close(x.grad, getattr(everything, name).grad)
    assert getattr(head, frozen).grad is None


def test_nan_in_one_row_reaches_the_loss_and_its_gradient_alone():
    head = example()
    head.hidden[5] = torch.nan
    loss, of_hidden, of_weight, _ = value_and_gradients(fused, head, 0.1, reduction="none")
    assert loss.isnan().nonzero().flatten().tolist() == [5]
    assert of_hidden.isnan().any(1).nonzero().flatten().tolist() == [5]
    assert of_weight.isnan().any()
    assert value_and_gradients(fused, head, 0.1)[0].isnan()


def test_a_fully_masked_batch_has_zero_loss_and_gradients_to_the_last_bit():
    head = example(lead=0.0)
    hidden = (
        1000.0
        * head.head_weight[head.target]
        / head.head_weight[head.target].norm(dim=1, keepdim=True)
    )
    target = F.linear(hidden, head.head_weight).argmax(1)
    results = value_and_gradients(
        fused, Head(hidden, head.head_weight, torch.zeros_like(head.bias), target), 0.1
    )
    assert not any(result.any() for result in results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_many_rows_sum_exactly_and_an_infinite_gradient_of_a_masked_row_is_none(dtype):
    head = example((4000,), 8, dtype=dtype)
    exact = Head(*(x.double() for x in head[:3]), head.target)
    roots = [lambda *args, of=of: of(*args, reduction="none").sqrt().sum() for of in (fused, dense)]
    live = Head(
        *(x[dense(*exact, 0.1, reduction="none") > 0] if x.size(0) == 4000 else x for x in exact)
    )
    for ours, expected in (((fused, head), (dense, exact)), ((roots[0], head), (roots[1], live))):
        pairs = zip(
            *(value_and_gradients(function, of, 0.1)[2:] for function, of in (ours, expected)),
            strict=True,
        )
        for (x, y), limit in zip(
            pairs, (2e-6, 1e-7) if dtype.itemsize > 2 else (5e-3, 5e-3), strict=True
        ):
            assert (x.double() - y).norm() < limit * y.norm()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_activation_checkpointing_changes_nothing(reduction, reentrant):
    head = example()
    leaves = [x.clone().requires_grad_() for x in head[:3]]

    def loss(hidden, weight, bias):
        return fused(hidden.tanh(), weight, bias, head.target, 0.1, reduction=reduction).sum()

    plain = torch.autograd.grad(loss(*leaves), leaves)
    checkpoint(loss, *leaves, use_reentrant=reentrant).backward()
    for leaf, expected in zip(leaves, plain, strict=True):
        torch.testing.assert_close(leaf.grad, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_computes_as_the_dense_head_does(dtype):
    head = example(dtype=torch.float32)
    results = []
    for autocast_loss in (
        lambda h, w, b: fused(h, w, b, head.target, 0.1),
        lambda h, w, b: as_cross_entropy(F.linear(h, w, b), head.target, 0.1),
    ):
        leaves = [x.clone().requires_grad_() for x in head[:3]]
        with torch.autocast("cpu", dtype=dtype):
            loss = autocast_loss(*leaves)
        loss.backward()
        assert loss.dtype == torch.float32
        results.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=2 * TOLERANCE[dtype])


class LargestStorage(torch.utils._python_dispatch.TorchDispatchMode):
    """The bytes of the largest tensor that an operation returns."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, Tensor):
                self.size = max(self.size, x.untyped_storage().nbytes())
        return out


def test_peak_memory_is_a_workspace_and_the_gradients(monkeypatch):
    head = example((64,), classes=2000, features=4, dtype=torch.float32)
    monkeypatch.setattr(head_loss, "workspace_rows", lambda *_: 4)
    monkeypatch.setattr(row_loss, "CPU_BLOCK_PER_THREAD", 2000)
    leaves = [x.requires_grad_() for x in head[:3]]
    with LargestStorage() as largest:
        fused(*leaves, head.target, 0.1).backward()
    assert 0 < largest.size <= 4 * 2000 * 4


def test_a_bfloat16_weight_has_no_gradient_in_float32_where_one_chunk_is_all(monkeypatch):
    head = example((8,), classes=2000, features=16, dtype=torch.bfloat16)
    monkeypatch.setattr(row_loss, "CPU_BLOCK_PER_THREAD", 1)
    leaves = [x.requires_grad_() for x in head[:3]]
    with LargestStorage() as largest:
        fused(*leaves, head.target, 1.0).backward()
    assert largest.size == 2000 * 16 * 2


@pytest.mark.parametrize("bias", [False, True])
def test_the_module_is_its_function_and_its_state_has_the_names_of_pytorchs_own(bias):
    hidden, _, _, target = example(classes=90)
    module = LinearCrossEntropyLoss(
        6, 90, bias=bias, weight=torch.ones(90), reduction="sum", dtype=torch.float64
    )
    expected = F.cross_entropy(module.linear(hidden), target, reduction="sum")
    torch.testing.assert_close(module(hidden, target), expected)
    # torch.nn.LinearCrossEntropyLoss of PyTorch 2.13 has these keys
    assert set(module.state_dict()) == {"weight", "linear.weight"} | (
        {"linear.bias"} if bias else set()
    )
    with pytest.raises(
        ValueError, match=r"weight must hold one weight per class, shape \(90,\), got \(80,\)"
    ):
        LinearCrossEntropyLoss(5, 90, weight=torch.ones(80))


def test_another_bias_and_label_smoothing_are_refused_with_the_reason():
    hidden, weight, _, target = example()
    with pytest.raises(
        ValueError, match=r"^the head's bias must have shape \(80,\), .* got \(2,\)"
    ):
        linear_cross_entropy(hidden, weight, target, linear_bias=torch.zeros(2).double())
    with pytest.raises(
        ValueError,
        match=r"label_smoothing must be 0, got 0.1: a smoothed target has a share in every",
    ):
        linear_cross_entropy(hidden, weight, target, label_smoothing=0.1)
    with pytest.raises(ValueError, match="label_smoothing must be 0"):
        LinearCrossEntropyLoss(5, 90, label_smoothing=0.1)


def test_hidden_states_of_no_width_equal_cross_entropy():
    target = torch.tensor([0, 1])
    loss = linear_cross_entropy(
        torch.zeros(2, 0), torch.zeros(3, 0), target, linear_bias=torch.arange(3.0)
    )
    torch.testing.assert_close(loss, F.cross_entropy(torch.arange(3.0).expand(2, 3), target))


@pytest.mark.skipif(
    not hasattr(F, "linear_cross_entropy"), reason="PyTorch has this function from 2.13 on"
)
def test_it_equals_pytorchs_function_of_that_name():
    hidden, weight, bias, target = example(classes=90)
    options: dict[str, Any] = {
        "linear_bias": bias,
        "weight": torch.rand(90, dtype=torch.float64),
        "ignore_index": 3,
    }
    expected = F.linear_cross_entropy(hidden, weight, target, **options)
    torch.testing.assert_close(linear_cross_entropy(hidden, weight, target, **options), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_gpu_agrees_with_the_dense_formula(reduction, dtype):
    head = example(dtype=dtype)
    ours = value_and_gradients(fused, Head(*(x.cuda() for x in head)), 0.1, reduction=reduction)
    exact = Head(head.hidden.double(), head.head_weight.double(), head.bias.double(), head.target)
    expected = value_and_gradients(dense, exact, 0.1, reduction=reduction)
    assert_agrees(tuple(x.cpu() for x in ours), expected, dtype)
