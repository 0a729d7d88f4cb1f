"""The mean and the standard deviation of the training split's values, and inputs standardised by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CONSTANT = 1e-9  # variance below which values count as all equal


def value_sums(values: Tensor) -> Tensor:
    """Number, sum and sum of squares of each channel's values; shape ``(3, C)``.

    They are exact (``int64``) for integers and ``float64`` for floating-point values.

    Args:
        values: shape ``(..., C, H, W)``, or fewer dimensions for one channel.
    """
    dtype = torch.float64 if values.is_floating_point() else torch.int64
    channels = (values.movedim(-3, 0) if values.ndim > 2 else values[None]).flatten(1).to(dtype)
    count = torch.full((len(channels),), channels.shape[1], dtype=dtype)
    return torch.stack([count, channels.sum(1), channels.square().sum(1)])


def mean_and_std(sums: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    r"""Each channel's mean and standard deviation of ``x / scale``, ``float64`` of shape ``(C,)``.

    .. math:: \mu = \frac{1}{n s} \sum x, \qquad \sigma = \frac{1}{s} \sqrt{\frac{1}{n} \sum x^2 - (s \mu)^2}

    A channel that is constant gets :math:`\sigma = 1`.

    Args:
        sums: of :func:`value_sums`.
        scale: ``s``; 255 for bytes that stand for values in [0, 1].

    Example:
        >>> mean_and_std(value_sums(torch.tensor([[[1.0, 3.0]], [[5.0, 5.0]]])))
        (tensor([2., 5.], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """
    number, total, squares = sums.double()
    mean = total / number
    variance = squares / number - mean.square()
    return mean / scale, torch.where(variance > CONSTANT, variance, scale**2).sqrt() / scale


class Standardise(nn.Module):
    """A transform: values less ``mean``, divided by ``std``."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, values: Tensor) -> Tensor:
        return values.sub(self.mean).div_(self.std)
