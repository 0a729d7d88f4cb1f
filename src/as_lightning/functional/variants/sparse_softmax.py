r"""Softmax over the k largest logits (Sun et al.: arXiv 2112.12433)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_count
from as_lightning.functional.calling_convention import loss_of_rows, over_rows


def check_k(k: int, num_classes: int, of: str = "classes") -> None:
    if check_count("k", k, least=1) > num_classes:
        raise ValueError(f"k must be at most the number of {of}, {num_classes}, got {k}")


def sparse_softmax(logits: Tensor, *, k: int = 5, dim: int = -1) -> Tensor:
    r"""Softmax over the ``k`` largest logits $\Omega_k$ along ``dim``, exactly 0 elsewhere.

    $$
    p_i = e^{o_i} / \sum_{j \in \Omega_k} e^{o_j} \text{ for } i \in \Omega_k, \quad 0 \text{ else}
    $$

    ``k`` lies in [1, C], and `torch.topk` decides between ties.

    Source: Sun et al. 2021 (arXiv 2112.12433).

    Examples:
        >>> sparse_softmax(torch.tensor([1.0, 2.0, 3.0]), k=2)
        tensor([0.0000, 0.2689, 0.7311])
    """

    def transform(rows: Tensor) -> Tensor:
        check_k(k, rows.size(-1))
        largest, classes = rows.topk(k, dim=-1)
        return torch.zeros_like(rows).scatter(-1, classes, largest.softmax(-1))

    return over_rows(transform, logits, dim)


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

    A target that is not among the ``k`` largest stays in, as a ``k + 1``-th class: its loss is
    finite, and its gradient pulls it up. ``k = C`` is `torch.nn.functional.cross_entropy`, whose
    arguments the others are.

    Source: Sun et al. 2021 (arXiv 2112.12433).

    Examples:
        >>> logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
        >>> sparse_softmax_loss(logits, torch.tensor([2, 0]), k=2, reduction="none")
        tensor([0.3133, 2.4076])
    """

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        check_k(k, rows.size(-1))
        largest, classes = rows.topk(k, dim=-1)
        target_column = row_target.unsqueeze(-1)
        competitors = largest.masked_fill(classes == target_column, -torch.inf)
        scores = torch.cat((competitors, rows.gather(-1, target_column)), dim=-1)
        return 0.0 - scores.log_softmax(-1)[..., -1]

    return loss_of_rows(
        row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
