"""The classifier head that am_softmax brings along: cosines in place of inner products."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CosineHead(nn.Module):
    r"""The cosine of the angle between the features and a vector per class; 0 for features of length 0.

    .. math:: \cos\theta_i = \frac{w_i^\top x}{\lVert w_i \rVert \, \lVert x \rVert}

    It has no bias and no temperature: the loss divides by its own. ``(..., in_features)`` gives ``(..., num_classes)``.

    Source: Wang, Cheng, Liu, Liu 2018 (arXiv 1801.05599), section 2.

    Example:
        >>> import torch
        >>> head = CosineHead(2, 2)
        >>> _ = head.weight.data.copy_(torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
        >>> head(torch.tensor([[5.0, 0.0]]))
        tensor([[1.0000, 0.7071]], grad_fn=<MmBackward0>)
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        if in_features < 1 or num_classes < 1:
            raise ValueError(f"in_features and num_classes must be 1 or more, got {in_features} and {num_classes}")
        self.in_features, self.num_classes = in_features, num_classes
        # the direction of a normal vector is uniform on the sphere; its length only sets the speed of turning
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(num_classes, in_features)))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=-1), F.normalize(self.weight, dim=-1))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, num_classes={self.num_classes}"
