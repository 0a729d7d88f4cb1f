"""The conditions that a training split is put under: few samples of each class, a long tail, wrong
labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

NoiseKind = Literal["uniform", "pairs"]


def corrupt_labels(
    targets: Tensor, num_classes: int, rate: float, seed: int, kind: NoiseKind = "uniform"
) -> Tensor:
    """Give ``round(rate * N)`` of the class indices ``(N)`` another class.

    With ``"uniform"`` each other class has the same probability; with ``"pairs"`` class ``c``
    becomes class ``c + 1``, and the last one the first.

    Source: symmetric noise as in Patrini et al., CVPR 2017 (arXiv 1609.03683), without the
    diagonal; pair flipping as in Han et al., NeurIPS 2018 (arXiv 1804.06872).
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(targets), generator=generator)[: round(rate * len(targets))]
    shift = (
        torch.randint(1, num_classes, (len(chosen),), generator=generator)
        if kind == "uniform"
        else 1
    )
    noisy = targets.clone()
    noisy[chosen] = (targets[chosen] + shift) % num_classes
    return noisy


def long_tail_sizes(counts: Tensor, imbalance: float, generator: torch.Generator) -> Tensor:
    r"""How many of its ``counts`` ``(C)`` samples each class keeps in an exponential profile.

    $$
    n_c = \min\big(N_c, \lfloor N_{\max} \, r^{-k_c / (C - 1)} \rfloor\big)
    $$

    with the imbalance $r$, the class's own number $N_c$, that of the largest class $N_{\max}$, and
    the place $k_c$ of the class in an order that ``generator`` draws.

    Source: Cao et al., NeurIPS 2019 (arXiv 1906.07413), section 4.
    """
    places = torch.randperm(len(counts), generator=generator).double() / (len(counts) - 1)
    profile = counts.max() * torch.tensor(imbalance, dtype=torch.float64) ** -places
    return counts.minimum(
        (profile + 1e-9).long()
    )  # rounding may leave the power below a whole number


def drawn_rows(targets: Tensor, sizes: Sequence[int], generator: torch.Generator) -> list[int]:
    """``sizes[c]`` rows of each class ``c``, drawn by ``generator``, in ascending order."""
    order = torch.randperm(len(targets), generator=generator)
    class_rows = [order[targets[order] == label][:size] for label, size in enumerate(sizes)]
    return sorted(torch.cat(class_rows).tolist())


def thirds_by_count(counts: Tensor) -> dict[str, list[int]]:
    """The classes in thirds by their ``counts``: ``many``, ``medium`` and ``few``; two classes have
    no ``medium``.
    """
    order = counts.argsort(descending=True, stable=True).tolist()
    first, second = round(len(order) / 3), round(2 * len(order) / 3)
    thirds = {"many": order[:first], "medium": order[first:second], "few": order[second:]}
    return {name: sorted(classes) for name, classes in thirds.items() if classes}
