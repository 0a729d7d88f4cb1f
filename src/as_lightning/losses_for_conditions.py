"""The losses made for long tails, wrong labels and many labels, as PyTorch losses.

Each calls its function in `as_lightning.functional`. ``**settings`` are ``weight``,
``ignore_index`` and ``reduction`` of `torch.nn.CrossEntropyLoss`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from as_lightning.functional.variants.asymmetric import asymmetric_loss
from as_lightning.functional.variants.class_weighted import class_weights
from as_lightning.functional.variants.encouraging import encouraging_loss
from as_lightning.functional.variants.focal import focal_loss
from as_lightning.functional.variants.generalised_cross_entropy import (
    generalised_cross_entropy_loss,
)
from as_lightning.functional.variants.logit_adjusted import logit_adjusted_loss
from as_lightning.losses import cross_entropy_settings


class LogitAdjustedLoss(nn.CrossEntropyLoss):
    """Cross-entropy of logits plus ``tau`` times the log of each class's share, for a long tail.

    Args:
        class_counts: how many training examples each class has, shape ``(C)``.
        tau: the strength, 0 or more; 0 is plain cross-entropy.
        **settings: those of `torch.nn.CrossEntropyLoss`.

    Source: Menon et al. 2021 (arXiv 2007.07314), equation 10; errors of `logit_adjusted_loss`.

    Examples:
        >>> loss = LogitAdjustedLoss(torch.tensor([90, 9, 1]))
        >>> loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor(2.8028)
    """

    class_counts: Tensor

    def __init__(self, class_counts: Tensor, tau: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.register_buffer("class_counts", torch.as_tensor(class_counts), persistent=False)
        self.tau = tau

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        settings = cross_entropy_settings(self)
        return logit_adjusted_loss(
            input, target, class_counts=self.class_counts, tau=self.tau, **settings
        )


class ClassWeightedLoss(nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss` with the weights of `class_weights`, for a long tail.

    Args:
        class_counts: how many training examples each class has, shape ``(C)``.
        beta: see `class_weights`.
        power: see `class_weights`.
        **settings: those of `torch.nn.CrossEntropyLoss`, but ``weight``.

    Source: Cui et al. 2019 (arXiv 1901.05555), equations 2 and 5.

    Examples:
        >>> loss = ClassWeightedLoss(torch.tensor([90, 10]))
        >>> loss(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([0, 1]))
        tensor(0.4133)
    """

    def __init__(
        self, class_counts: Tensor, beta: float = 1.0, power: float = 1.0, **settings: Any
    ) -> None:
        super().__init__(weight=class_weights(class_counts, beta, power), **settings)


class GeneralisedCrossEntropyLoss(nn.CrossEntropyLoss):
    """Between cross-entropy (``q=0``) and the absolute error (1), for wrong labels.

    Args:
        q: in [0, 1]; a sample's loss is at most ``1 / q``.
        **settings: those of `torch.nn.CrossEntropyLoss`.

    Source: Zhang, Sabuncu 2018 (arXiv 1805.07836), equation 6.

    Examples:
        >>> loss = GeneralisedCrossEntropyLoss(q=0.7)
        >>> loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0]))
        tensor(1.1637)
    """

    def __init__(self, q: float = 0.7, **settings: Any) -> None:
        super().__init__(**settings)
        self.q = q

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        settings = cross_entropy_settings(self)
        return generalised_cross_entropy_loss(input, target, q=self.q, **settings)


class FocalLoss(nn.CrossEntropyLoss):
    r"""Cross-entropy times $(1 - p_t)^\gamma$, which counts less for a probable target.

    Args:
        gamma: 0 or more; 0 is plain cross-entropy.
        **settings: those of `torch.nn.CrossEntropyLoss`. The paper's alpha is ``weight``.

    Source: Lin et al. 2017 (arXiv 1708.02002), equation 4, with softmax for the sigmoid.

    Examples:
        >>> FocalLoss(gamma=2.0)(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor(0.0457)
    """

    def __init__(self, gamma: float = 2.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.gamma = gamma

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return focal_loss(input, target, gamma=self.gamma, **cross_entropy_settings(self))


class EncouragingLoss(nn.CrossEntropyLoss):
    """Cross-entropy with a bonus that keeps the gradient large where the target is probable.

    Args:
        log_end: the probability, in [0, 1), from which the bonus grows along its tangent.
        **settings: those of `torch.nn.CrossEntropyLoss`.

    Source: Zhao, Yang, Lin, Sun 2022 (arXiv 2110.06537), section 4.

    Examples:
        >>> EncouragingLoss()(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor(-0.6867)
    """

    def __init__(self, log_end: float = 0.75, **settings: Any) -> None:
        super().__init__(**settings)
        self.log_end = log_end

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        settings = cross_entropy_settings(self)
        return encouraging_loss(input, target, log_end=self.log_end, **settings)


class AsymmetricLoss(nn.BCEWithLogitsLoss):
    """Binary cross-entropy in which easy negatives count less, those below ``clip`` not at all.

    Args:
        gamma_negative: the focus of negatives, 0 or more.
        gamma_positive: the focus of positives, 0 or more.
        clip: the probability, in [0, 1), below which a negative has no loss.
        ignore_index: target value of unknown labels, which are left out.
        reduction: ``"none"``, ``"mean"`` (over the known labels) or ``"sum"``.

    Source: Ridnik et al. 2021 (arXiv 2009.14119), equations 4 to 7.

    Examples:
        >>> loss = AsymmetricLoss()
        >>> loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, -100]]))
        tensor(0.0637)
    """

    def __init__(
        self,
        gamma_negative: float = 4.0,
        gamma_positive: float = 0.0,
        clip: float = 0.05,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.gamma_negative = gamma_negative
        self.gamma_positive = gamma_positive
        self.clip = clip
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return asymmetric_loss(
            input,
            target,
            gamma_negative=self.gamma_negative,
            gamma_positive=self.gamma_positive,
            clip=self.clip,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )
