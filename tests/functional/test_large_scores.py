"""Beside scores near 1e4 float32 has no digits for a sum of 1e4 and some; a gradient is exact all
the same.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from as_lightning.functional import (
    as_cross_entropy,
    multilabel_as_cross_entropy,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
    sparse_softmax_loss,
)

SAMPLES, CLASSES = 64, 12
ONE_LABEL: dict[str, Callable[..., Tensor]] = {
    "F.cross_entropy": F.cross_entropy,  # what can be asked for
    "as_cross_entropy": partial(as_cross_entropy, delta=0.3),
    "sparse_softmax": partial(sparse_softmax_loss, k=5),
}
SEVERAL_LABELS: dict[str, Callable[..., Tensor]] = {
    "multilabel_as_softmax": partial(multilabel_as_cross_entropy, delta=0.3),
    "without a mask": partial(multilabel_as_cross_entropy, delta=1.0),
    "multilabel_softmax": multilabel_softmax_loss,
    "multilabel_sparse": partial(multilabel_sparse_loss, k=5),
}


@pytest.mark.parametrize("name", [*ONE_LABEL, *SEVERAL_LABELS])
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_of_scores_near_1e4_are_exact_to_a_few_units_in_the_last_place(name, sign):
    logits = (sign * 1e4 + torch.randn(SAMPLES, CLASSES).round()).float()
    loss = (ONE_LABEL | SEVERAL_LABELS)[name]
    target = (
        torch.randint(CLASSES, (SAMPLES,))
        if name in ONE_LABEL
        else torch.randint(2, (SAMPLES, CLASSES))
    )

    def gradient(dtype):
        leaf = logits.to(dtype).requires_grad_()
        return torch.autograd.grad(loss(leaf, target, reduction="sum"), leaf)[0].double()

    exact = gradient(torch.float64)
    assert ((exact.abs() > 0.01) & (exact.abs() < 0.99)).any()
    assert float((gradient(torch.float32) - exact).abs().max()) < 8 * torch.finfo(torch.float32).eps
