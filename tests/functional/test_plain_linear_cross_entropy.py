"""Plain cross-entropy of a wide head: ``linear_cross_entropy`` and ``LinearCrossEntropyLoss``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from as_lightning import LinearCrossEntropyLoss
from as_lightning.functional import linear_cross_entropy
from as_lightning.functional.kernels import head_loss


@pytest.fixture(autouse=True)
def _no_head_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)


def example(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(*shape, 5, generator=generator, dtype=torch.float64)
    weight, bias = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((90, 5), (90,)))
    return hidden, weight, bias, torch.randint(90, shape, generator=generator)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(), (12,), (3, 4), (2, 3, 2)], ids=str)
def test_it_equals_cross_entropy_of_the_linear_layer(shape: tuple[int, ...], reduction: str) -> None:
    *tensors, target = example(shape)
    if target.dim():
        target.view(-1)[0] = 7
    weight = torch.linspace(0.5, 2.0, 90, dtype=torch.float64)
    results = []
    for fused in (True, False):
        hidden, linear_weight, bias = (x.clone().requires_grad_() for x in tensors)
        options: dict[str, Any] = {"weight": weight, "ignore_index": 7, "reduction": reduction}
        if fused:
            loss = linear_cross_entropy(hidden, linear_weight, target, linear_bias=bias, **options)
        else:
            logits = F.linear(hidden, linear_weight, bias).reshape(-1, 90)
            loss = F.cross_entropy(logits, target.reshape(-1), **options)
            loss = loss.reshape(target.shape) if reduction == "none" else loss
        loss.sum().backward()
        results.append((loss.detach(), hidden.grad, linear_weight.grad, bias.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("bias", [False, True])
def test_the_module_is_its_function(bias: bool) -> None:
    hidden, _, _, target = example((12,))
    module = LinearCrossEntropyLoss(5, 90, bias=bias, weight=torch.ones(90), reduction="sum", dtype=torch.float64)
    expected = F.cross_entropy(module.linear(hidden), target, reduction="sum")
    torch.testing.assert_close(module(hidden, target), expected)


def test_the_modules_state_has_the_names_of_pytorchs_own() -> None:
    # torch.nn.LinearCrossEntropyLoss of PyTorch 2.13 has these keys
    module = LinearCrossEntropyLoss(5, 90, bias=True, weight=torch.ones(90))
    assert set(module.state_dict()) == {"weight", "linear.weight", "linear.bias"}
    assert repr(module).startswith("LinearCrossEntropyLoss(\n  ignore_index=-100, reduction='mean', weight of 90")


def test_label_smoothing_is_refused_with_the_reason() -> None:
    hidden, weight, _, target = example((3,))
    with pytest.raises(ValueError, match=r"label_smoothing must be 0, got 0.1: a smoothed target has a share in every"):
        linear_cross_entropy(hidden, weight, target, label_smoothing=0.1)
    with pytest.raises(ValueError, match="label_smoothing must be 0"):
        LinearCrossEntropyLoss(5, 90, label_smoothing=0.1)


MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "width": ({"input": torch.zeros(2, 5)}, ValueError, r"^input must have shape .* linear_weight \(C, d\), got"),
    "no tensor": ({"target": [0, 1]}, TypeError, "^target must be a tensor, got list"),
    "nothing": ({"input": None}, TypeError, "^input must be a tensor, got NoneType"),
    "integers": ({"input": torch.zeros(2, 4).long()}, TypeError, "^input must be a floating-point tensor"),
    "eight bits": (
        {"input": torch.zeros(2, 4).to(torch.float8_e4m3fn)},
        TypeError,
        r"^input must be float32, float64, bfloat16 or float16, got torch.float8_e4m3fn: convert it",
    ),
    "dtypes": ({"input": torch.zeros(2, 4).double()}, TypeError, "^input, linear_weight and linear_bias must have"),
    "bias": ({"linear_bias": torch.zeros(2)}, ValueError, r"^linear_bias must have shape \(3,\), .* got \(2,\)"),
    "class weights": ({"weight": torch.zeros(2)}, ValueError, r"^weight must hold one weight per class, shape"),
    "learnt class weights": (
        {"weight": torch.ones(3, requires_grad=True)},
        RuntimeError,
        r"^weight must not require a gradient.*weight.detach\(\)",
    ),
    "rows": ({"target": torch.tensor([0])}, ValueError, r"^target must have shape \(2,\), that of input without"),
    "devices": (
        {"linear_weight": torch.zeros(3, 4, device="meta")},
        ValueError,
        "^input, linear_weight, linear_bias and target must be on one device, .* linear_weight on meta",
    ),
    "ignore_index": ({"ignore_index": None}, TypeError, "^ignore_index must be an integer, got None: .* leave it out"),
    "half an index": ({"ignore_index": 1.5}, TypeError, "^ignore_index must be an integer, got 1.5"),
}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_as_the_caller_names_the_argument(
    name: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 1000 if held else 0)
    change, error, message = MISTAKES[name]
    arguments = {
        "input": torch.zeros(2, 4),
        "linear_weight": torch.zeros(3, 4),
        "target": torch.tensor([0, 1]),
        "linear_bias": torch.zeros(3),
    }
    with pytest.raises(error, match=message):
        linear_cross_entropy(**{**arguments, **change})


def test_a_module_refuses_class_weights_of_another_number_of_classes() -> None:
    with pytest.raises(ValueError, match=r"weight must hold one weight per class, shape \(90,\), got \(80,\)"):
        LinearCrossEntropyLoss(5, 90, weight=torch.ones(80))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_shapes_without_values_are_enough(dtype: torch.dtype) -> None:
    # as for Lightning's measure_flops
    with torch.device("meta"):
        module = LinearCrossEntropyLoss(5, 90_000, dtype=dtype)
        hidden, target = torch.randn(40, 5, dtype=dtype, requires_grad=True), torch.zeros(40, dtype=torch.long)
        loss = module(hidden, target)
        loss.backward()
    assert loss.is_meta
    assert module.linear.weight.grad.shape == (90_000, 5)


def test_few_logits_compile_without_a_graph_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 1000)
    hidden, weight, bias, target = example((6,))
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    loss = F.cross_entropy(F.linear(hidden, weight, bias), target)
    torch.testing.assert_close(compiled(hidden, weight, target, linear_bias=bias), loss)


def test_hidden_states_of_no_width_equal_cross_entropy() -> None:
    target = torch.tensor([0, 1])
    loss = linear_cross_entropy(torch.zeros(2, 0), torch.zeros(3, 0), target, linear_bias=torch.arange(3.0))
    torch.testing.assert_close(loss, F.cross_entropy(torch.arange(3.0).expand(2, 3), target))


def test_class_probabilities_are_refused() -> None:
    hidden, weight, _, _ = example((3,))
    with pytest.raises(TypeError, match="target must hold class indices"):
        linear_cross_entropy(hidden, weight, torch.rand(3, 90))


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="PyTorch has this function from 2.13 on")
def test_it_equals_pytorchs_function_of_that_name() -> None:
    hidden, weight, bias, target = example((12,))
    options: dict[str, Any] = {"linear_bias": bias, "weight": torch.rand(90, dtype=torch.float64), "ignore_index": 3}
    expected = F.linear_cross_entropy(hidden, weight, target, **options)
    torch.testing.assert_close(linear_cross_entropy(hidden, weight, target, **options), expected)


def test_the_example_of_the_documentation_trains() -> None:
    page = Path(__file__).parents[2] / "docs" / "wide_output_layers.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (code,) = [block for block in blocks if "50_000" in block]
    scope: dict[str, Any] = {"__name__": "wide_output_layers"}
    exec(compile(code.replace("50_000", "500"), str(page), "exec"), scope)
    assert scope["trainer"].global_step == 4
