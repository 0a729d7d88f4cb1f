r"""Softmax over the k largest logits (Sun et al.: arXiv 2112.12433)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import loss_of_rows, over_rows


def check_k(k: int, num_classes: int, of: str = "classes") -> None:
    """Raise unless ``k`` is a whole number between 1 and ``num_classes``."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"k must be an int, the number of {of} to keep, got {k!r} of type {type(k).__name__}")
    if not 1 <= k <= num_classes:
        raise ValueError(f"k must lie between 1 and the number of {of}, {num_classes}, got {k}")


def sparse_softmax(logits: Tensor, *, k: int = 5, dim: int = -1) -> Tensor:
    r"""Softmax over the ``k`` largest logits $\Omega_k$, exactly 0 elsewhere; `torch.topk` decides between ties.

    $$
    p_i = \frac{e^{o_i}}{\sum_{j \in \Omega_k} e^{o_j}} \text{ for } i \in \Omega_k, \quad 0 \text{ otherwise}
    $$

    Args:
        logits: any shape, floating point.
        k: how many classes keep a probability, in [1, C].
        dim: the class dimension.

    Source: Sun et al. 2021 (arXiv 2112.12433).

    Examples:
        >>> sparse_softmax(torch.tensor([1.0, 2.0, 3.0]), k=2)
        tensor([0.0000, 0.2689, 0.7311])
    """

    def of_rows(rows: Tensor) -> Tensor:
        check_k(k, rows.size(-1))
        largest, classes = rows.topk(k, dim=-1)
        return torch.zeros_like(rows).scatter(-1, classes, largest.softmax(-1))

    return over_rows(of_rows, logits, dim)


def sparse_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    k: int = 5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy over the ``k`` largest logits and the target's.

    $$
    \ell = \log \sum_{j \in \Omega_k \cup \{t\}} e^{o_j} - o_t
    $$

    A target that is not among the ``k`` largest stays in, as a ``k + 1``-th class: its loss is finite, and its gradient
    pulls it up. ``k = C`` is ``F.cross_entropy``.

    Args:
        logits: it and the other arguments are those of `torch.nn.functional.cross_entropy`.
        k: how many of the largest logits take part, in [1, C].

    Source: Sun et al. 2021 (arXiv 2112.12433).

    Examples:
        >>> logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
        >>> sparse_softmax_loss(logits, torch.tensor([2, 0]), k=2, reduction="none")
        tensor([0.3133, 2.4076])
    """

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        check_k(k, rows.size(-1))
        largest, classes = rows.topk(k, dim=-1)
        own = row_target.unsqueeze(-1)
        competitors = largest.masked_fill(classes == own, -torch.inf)
        log_probability = torch.cat((competitors, rows.gather(-1, own)), dim=-1).log_softmax(-1)
        return 0.0 - log_probability[..., -1]

    return loss_of_rows(row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction)
