"""What the multi-label losses have in common; `test_differential.py` compares them with their formulas."""

import pytest
import torch

from as_lightning.functional import (
    asymmetric_loss,
    bce_loss,
    multilabel_as_cross_entropy,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
)


def sample(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64) * 3
    return logits, torch.randint(2, shape, generator=generator)


def test_multilabel_softmax_is_multilabel_as_softmax_at_delta_one() -> None:
    logits, target = sample(20, 8)
    torch.testing.assert_close(
        multilabel_softmax_loss(logits, target, reduction="none"),
        multilabel_as_cross_entropy(logits, target, delta=1.0, reduction="none"),
    )


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
