"""What the multi-label losses have in common; `test_differential.py` compares them with their formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from as_lightning.functional import (
    asymmetric_loss,
    bce_loss,
    multilabel_as_cross_entropy,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
)

LOSSES = {
    "multilabel_as": (multilabel_as_cross_entropy, {}),
    "multilabel_softmax": (multilabel_softmax_loss, {}),
    "multilabel_sparse": (multilabel_sparse_loss, {"k": 2}),
    "bce": (bce_loss, {}),
    "asymmetric": (asymmetric_loss, {}),
    "asymmetric_without_clip": (asymmetric_loss, {"gamma_negative": 0.5, "gamma_positive": 0.5, "clip": 0.0}),
}
every_loss = pytest.mark.parametrize(("loss", "arguments"), LOSSES.values(), ids=LOSSES.keys())


def sample(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64) * 3
    return logits, torch.randint(2, shape, generator=generator)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@every_loss
def test_autocast_gives_a_float32_loss_as_cross_entropy_does(loss: Any, arguments: dict, reduction: str) -> None:
    logits, target = sample(6, 5)
    logits = logits.bfloat16()
    wide = loss(logits.float(), target, reduction=reduction, **arguments)
    assert loss(logits, target, reduction=reduction, **arguments).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(logits, target, reduction=reduction, **arguments)
        assert value.dtype == F.cross_entropy(logits, target[:, 0]).dtype == torch.float32
    torch.testing.assert_close(value, wide, rtol=1e-6, atol=1e-6)


@every_loss
def test_gradient_passes_gradcheck(loss: Any, arguments: dict) -> None:
    logits, target = sample(4, 5)
    target[0, 1] = -100
    assert torch.autograd.gradcheck(lambda x: loss(x, target, **arguments), (logits.requires_grad_(),))


@every_loss
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e4), (torch.bfloat16, 1e3), (torch.float16, 1e3)])
def test_large_logits_give_finite_losses_and_gradients(
    loss: Any, arguments: dict, dtype: torch.dtype, size: float
) -> None:
    logits = torch.tensor([[size, -size, size, -size], [size, size, size, -size]], dtype=dtype, requires_grad=True)
    value = loss(logits, torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0]]), **arguments)
    value.backward()
    assert value.isfinite()
    assert value.dtype == dtype
    assert logits.grad.isfinite().all()


def test_multilabel_softmax_is_multilabel_as_softmax_at_delta_one() -> None:
    logits, target = sample(20, 8)
    torch.testing.assert_close(
        multilabel_softmax_loss(logits, target, reduction="none"),
        multilabel_as_cross_entropy(logits, target, delta=1.0, reduction="none"),
    )


BAD_CALLS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "shape": ({"target": torch.zeros(2)}, ValueError, r"target must have the shape of logits, \(2, 3\), .* got \(2,\)"),
    "soft": (
        {"target": torch.full((2, 3), 0.5)},
        ValueError,
        r"only 0 and 1, and ignore_index \(-100\) .* got 0.5 \(6 such values\)",
    ),
    "-1": ({"target": torch.full((2, 3), -1)}, ValueError, "target must hold only 0 and 1, .* got -1"),
    "nan": ({"target": torch.full((2, 3), torch.nan)}, ValueError, "target must hold only 0 and 1, .* got nan"),
    "complex": ({"target": torch.zeros(2, 3, dtype=torch.complex64)}, TypeError, "target must hold 0 and 1"),
    "integers": ({"logits": torch.zeros(2, 3).long()}, TypeError, "logits must be a floating-point tensor"),
    "scalar": ({"logits": torch.tensor(0.0), "target": torch.tensor(0)}, ValueError, "must have a label dimension"),
    "reduction": ({"reduction": "batchmean"}, ValueError, "reduction must be one of"),
}


@every_loss
@pytest.mark.parametrize("case", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_input_is_refused_by_name(loss: Any, arguments: dict, case: tuple) -> None:
    change, error, message = case
    good = {"logits": torch.zeros(2, 3), "target": torch.tensor([[1, 0, 0], [0, 0, 1]])}
    with pytest.raises(error, match=message):
        loss(**good | arguments | change)


def test_asymmetric_is_bce_without_focus_and_clip_and_drops_the_negatives_below_its_clip() -> None:
    logits, target = sample(20, 8)
    plain = {"gamma_negative": 0, "gamma_positive": 0, "clip": 0.0}
    torch.testing.assert_close(asymmetric_loss(logits, target, **plain), bce_loss(logits, target))
    easy = (logits.sigmoid() < 0.2) & (target == 0)
    leaf = logits.requires_grad_()
    loss = asymmetric_loss(leaf, target, clip=0.2, reduction="none")
    loss.sum().backward()
    assert torch.equal(loss == 0, easy)
    assert torch.equal(leaf.grad == 0, easy)


@pytest.mark.parametrize("change", [{"gamma_negative": -1}, {"gamma_positive": -0.1}, {"clip": 1.0}, {"clip": -0.1}])
def test_a_focus_or_a_clip_out_of_range_is_refused(change: dict[str, float]) -> None:
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=rf"{name} must be a number .*got {value}"):
        asymmetric_loss(torch.randn(2, 4), torch.zeros(2, 4), **change)


def test_more_negatives_than_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="k must be at most the number of labels, 4, got 5"):
        multilabel_sparse_loss(torch.randn(2, 4), torch.zeros(2, 4), k=5)
