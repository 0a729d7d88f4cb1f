"""The losses as modules: thin shells over `as_lightning.functional`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_class_weight
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import (
    as_linear_cross_entropy,
    check_label_smoothing,
    why_not_linear,
)
from as_lightning.functional.masking import DEFAULT_DELTA
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.masking_counter import MaskedLoss


class ASSoftmaxLoss(MaskedLoss):
    r"""AS-Softmax cross-entropy in the place of `torch.nn.CrossEntropyLoss`.

    Its ``weight`` is a buffer of that name, so state dicts of the two modules load into one
    another.

    Args:
        delta: the margin, in [0, 1]; 1 is plain cross-entropy. It may be changed between calls. The
            default of 0.1 is the paper's; tuning seldom chooses it.
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that take no part.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Source: paper, section III; shapes and errors are those of `as_cross_entropy`.

    Examples:
        >>> import torch
        >>> ASSoftmaxLoss(delta=0.5)(torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]]), torch.tensor([0, 0]))
        tensor(0.3351)
    """

    weight: Tensor | None

    def __init__(
        self,
        delta: float = DEFAULT_DELTA,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(delta, ignore_index=ignore_index, reduction=reduction)
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self._counted(as_cross_entropy, logits, target, self.delta, weight=self.weight)


class MultiLabelASSoftmaxLoss(MaskedLoss):
    r"""Multi-label AS-Softmax cross-entropy.

    Args:
        delta: the margin, in [0, 1]; 1 masks nothing. It may be changed between calls. The default
            of 0.1 is the paper's; tuning seldom chooses it.
        ignore_index: target value of unknown labels, which are left out.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Source: paper, section III; shapes and errors are those of `multilabel_as_cross_entropy`.

    Examples:
        >>> import torch
        >>> loss = MultiLabelASSoftmaxLoss(delta=0.5)
        >>> loss(torch.tensor([[4.0, 0.0, -3.0], [1.0, 0.9, -2.0]]), torch.tensor([[1, 0, 0], [0, 1, 0]]))
        tensor(0.8451)
    """

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self._counted(multilabel_as_cross_entropy, logits, target, self.delta)


class LinearCrossEntropyLoss(MaskedLoss):
    r"""A wide linear layer and its cross-entropy in one module, without ever holding the logits.

    ``loss.linear(hidden)`` gives the logits for validation and prediction. State dicts load from
    and into PyTorch's ``torch.nn.LinearCrossEntropyLoss`` (2.13 and later).

    Args:
        in_features: the width ``d`` of the hidden states.
        num_classes: the number of classes ``C``.
        bias: whether the layer has a bias. Off by default, as in PyTorch's module.
        weight: a weight per class, shape ``(C)``.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        ignore_index: target value of rows that take no part.
        label_smoothing: 0; any other value is refused.
        delta: the margin of AS-Softmax, in [0, 1]; 1, the default, is plain cross-entropy.
        device: that of the layer.
        dtype: that of the layer.

    Raises:
        TypeError: if ``linear`` is no plain ``nn.Linear`` any more, as after pruning: it is read,
            not called. Its parametrizations are applied, its other hooks are not.

    Source: the signature follows PyTorch 2.13; shapes and errors are those of
        `linear_cross_entropy`.

    Examples:
        >>> import torch
        >>> loss = LinearCrossEntropyLoss(16, 50_000)
        >>> loss(torch.randn(4, 16), torch.tensor([0, 7, 7, 49_999])).backward()
        >>> loss.linear.weight.grad.shape
        torch.Size([50000, 16])
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        delta: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(delta, ignore_index=ignore_index, reduction=reduction)
        check_label_smoothing(label_smoothing)
        check_class_weight(weight, num_classes)
        self.register_buffer("weight", weight)
        self.linear = nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        problem = why_not_linear(self.linear, hooks=True)
        if problem is not None:
            raise TypeError(
                "LinearCrossEntropyLoss reads the weight and bias of its linear layer and does "
                "not call it, but "
                f"{problem}: compute ASSoftmaxLoss({self.delta})(linear(hidden), target) with a "
                "layer of your own"
            )
        operands = input, self.linear.weight, target, self.delta
        return self._counted(
            as_linear_cross_entropy, *operands, bias=self.linear.bias, weight=self.weight
        )
