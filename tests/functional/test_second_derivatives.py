"""Every public loss either has the right second derivative or refuses it: none is dropped in silence."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from harness.variant_methods import METHODS
from torch import Tensor
from torch.nn import functional as F

from as_lightning import compat, functional
from as_lightning.functional import as_cross_entropy, as_linear_cross_entropy, cross_entropy, linear_cross_entropy
from as_lightning.functional.kernels import head_loss

Loss = Callable[..., Tensor]
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(4, 5, generator=GENERATOR, dtype=torch.float64)
HEAD = torch.randn(6, 5, generator=GENERATOR, dtype=torch.float64)
TARGET, IGNORING = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 4, -100, 2])
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0, 0.1], dtype=torch.float64)
LABELS = (torch.rand(4, 5, generator=GENERATOR) < 0.4).long()


def with_target(loss: Loss, target: Tensor = TARGET, **arguments: object) -> Loss:
    return lambda logits, reduction: loss(logits, target, reduction=reduction, **arguments)


def with_head(loss: Loss) -> Loss:
    return lambda hidden, reduction: loss(hidden, HEAD, TARGET, reduction=reduction)


SEVERAL_LABELS = ("multilabel_as_cross_entropy", "bce_loss", "multilabel_softmax_loss", "multilabel_sparse_loss")
SEVERAL_LABELS += ("asymmetric_loss",)
LOSSES: dict[str, tuple[Loss, Loss]] = {  # the function, and a call of it
    **{
        name: (method.loss, with_target(method.loss, IGNORING, weight=WEIGHT, **method.all_loss_arguments))
        for name, method in METHODS.items()
    },
    **{name: (getattr(functional, name), with_target(getattr(functional, name), LABELS)) for name in SEVERAL_LABELS},
    "as_cross_entropy": (as_cross_entropy, with_target(as_cross_entropy, delta=0.1)),
    "as_cross_entropy, weighted": (as_cross_entropy, with_target(as_cross_entropy, IGNORING, delta=0.5, weight=WEIGHT)),
    "as_cross_entropy, margin 1": (as_cross_entropy, with_target(as_cross_entropy, delta=1.0)),
    "as_linear_cross_entropy": (as_linear_cross_entropy, with_head(as_linear_cross_entropy)),
    "linear_cross_entropy": (linear_cross_entropy, with_head(linear_cross_entropy)),
}
WIDE_HEADS_REFUSE = {"as_linear_cross_entropy", "linear_cross_entropy"}


def second_derivative(loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Of the gradient's squares, as in a gradient penalty."""
    leaf = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
    return second


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    ("name", "few_logits"),
    [(name, True) for name in LOSSES] + [(name, False) for name in LOSSES if name not in METHODS],
    ids=lambda value: value if isinstance(value, str) else ("few logits" if value else "many logits"),
)
def test_the_first_derivative_is_right_and_the_second_right_or_refused(
    name: str, few_logits: bool, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kernel in (cross_entropy, head_loss):
        monkeypatch.setattr(kernel, "FEW_LOGITS", 1 << 16 if few_logits else 0)
    loss = functools.partial(LOSSES[name][1], reduction=reduction)
    if not few_logits and name in WIDE_HEADS_REFUSE:
        with pytest.raises(RuntimeError, match=r"differentiated once, .* create_graph=True: .*as_cross_entropy"):
            second_derivative(loss)
    else:
        assert torch.autograd.gradcheck(loss, LOGITS.clone().requires_grad_())
        assert torch.autograd.gradgradcheck(loss, LOGITS.clone().requires_grad_())
        assert second_derivative(loss).any()


def test_all_public_losses_are_looked_at() -> None:
    public = {name for name in functional.__all__ if name.endswith(("_loss", "cross_entropy"))}
    assert {function.__name__ for function, _ in LOSSES.values()} == public


def test_the_losses_under_the_authors_names_have_the_second_derivatives_of_ours() -> None:
    masks, labels_loss = compat.AS_Softmax(0.1), compat.Multi_label_AS_Softmax(0.1)

    def single(logits: Tensor) -> Tensor:
        return F.cross_entropy(*masks(logits, TARGET))

    def several(logits: Tensor) -> Tensor:
        return labels_loss.as_multilabel_categorical_crossentropy(logits, LABELS, *labels_loss(logits, LABELS))

    for theirs, ours in ((single, "as_cross_entropy"), (several, "multilabel_as_cross_entropy")):
        expected = second_derivative(functools.partial(LOSSES[ours][1], reduction="mean"))
        torch.testing.assert_close(second_derivative(theirs), expected)
