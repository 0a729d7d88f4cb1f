"""Label noise: wrong training labels, the same ones for every method, to see which loss learns them by heart."""

from __future__ import annotations

import torch
from torch import Tensor


def check_label_noise(rate: float) -> float:
    """``rate`` itself.

    Raises:
        ValueError: if it is no share in [0, 1].
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"label_noise must be a share in [0, 1], got {rate}")
    return rate


def corrupt_labels(targets: Tensor, num_classes: int, rate: float, seed: int) -> Tensor:
    """Give a share of the samples another class, each of the others with the same probability (symmetric noise).

    Exactly ``round(rate * N)`` labels change, which ones and into what depends on ``seed`` alone.

    Args:
        targets: class indices, shape ``(N)`` ``int64``; left as they are.
        num_classes: how many classes there are, at least 2.
        rate: the share of labels that become wrong, in [0, 1].
        seed: seeds the choice.

    Raises:
        ValueError: if ``rate`` lies outside [0, 1] or there is no other class.

    Source: symmetric label noise as in Patrini et al., CVPR 2017 (arXiv 1609.03683), without the diagonal.

    Example:
        >>> targets = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
        >>> noisy = corrupt_labels(targets, num_classes=3, rate=0.4, seed=0)
        >>> int((noisy != targets).sum())
        4
    """
    check_label_noise(rate)
    if num_classes < 2:
        raise ValueError(f"label noise needs at least 2 classes, got {num_classes}")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(targets), generator=generator)[: round(rate * len(targets))]
    shift = torch.randint(1, num_classes, (len(chosen),), generator=generator)
    noisy = targets.clone()
    noisy[chosen] = (targets[chosen] + shift) % num_classes
    return noisy
