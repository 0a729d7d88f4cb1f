"""The perplexity of a model of sequences, from its probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class Perplexity(Metric):
    r"""How many equally likely classes would surprise as much: the exponential of the mean negative log-likelihood.

    .. math:: \exp\left(-\frac{1}{N} \sum_n \log p_{n, t_n}\right)

    It takes probabilities, as the other metrics of a task do. A probability below the smallest normal number of its
    dtype counts as that number.

    Args:
        **kwargs: arguments of :class:`torchmetrics.Metric`.

    Shape:
        - update: probabilities ``(N, C)``, class indices ``(N)``.
        - compute: 0-dim ``float64`` tensor, 1 or more; NaN before any update.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update(torch.full((2, 5), 0.2), torch.tensor([0, 3]))
        >>> round(float(perplexity.compute()), 4)
        5.0
    """

    full_state_update = False
    higher_is_better = False
    surprise: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("surprise", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add the surprise of a batch."""
        likelihood = preds.gather(1, target.unsqueeze(1)).clamp(min=torch.finfo(preds.dtype).tiny)
        self.surprise = self.surprise - likelihood.double().log().sum()
        self.count = self.count + target.numel()

    def compute(self) -> Tensor:
        """The perplexity over all updates and ranks."""
        return (self.surprise / self.count).exp()
