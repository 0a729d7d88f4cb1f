"""The authors' names, so that code written for their ``as_sm.py`` changes one import.

Signatures and the results of their README are kept. Three errors are corrected: sums are
stabilised, a positive label stays positive when its probability underflows, and a sample without
positives (or negatives) keeps all its labels.

Source: https://github.com/aopolin-lv/AS-Softmax
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from as_lightning.functional.calling_convention import label_rows
from as_lightning.functional.masking import as_softmax_mask, check_delta
from as_lightning.functional.multilabel import log_one_plus_sum_exp, multilabel_keep

__all__ = ["AS_Softmax", "Multi_label_AS_Softmax", "compute_accumulation_step"]


class AS_Softmax(nn.Module):
    """Logits with the masked classes at ``-inf``, to be passed to a cross-entropy.

    Logits ``(..., C)`` and labels ``(...)`` become rows, ``(N, C)`` and ``(N,)``; those labelled
    -100 are masked as if their label were 0. ``delta`` is the margin, in [0, 1].

    Examples:
        >>> rows = [1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3], [2.5, 3.5, 0.4, 0.3]
        >>> logits = torch.tensor(rows)
        >>> as_logits, labels = AS_Softmax(delta=0.10)(logits, torch.tensor([1, 2, -100]))
        >>> as_logits
        tensor([[  -inf, 1.5000,   -inf,   -inf],
                [2.5000, 3.5000, 0.4000, 0.3000],
                [2.5000, 3.5000,   -inf,   -inf]])
    """

    def __init__(self, delta: float) -> None:
        super().__init__()
        self.delta = check_delta(delta)

    def forward(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        rows, row_labels = logits.reshape(-1, logits.size(-1)), labels.reshape(-1)
        keep = as_softmax_mask(rows, row_labels, self.delta)
        return rows.masked_fill(~keep, -torch.inf), row_labels


class Multi_label_AS_Softmax(nn.Module):
    """The two masks of the multi-label loss, ``True`` is kept: for negatives, and for positives.

    Logits, labels and both masks have the shape ``(N, C)``. ``delta`` is the margin, in [0, 1].

    Examples:
        >>> rows = [1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3], [2.5, 3.5, 0.4, 0.3]
        >>> logits = torch.tensor(rows)
        >>> labels = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 1]])
        >>> loss = Multi_label_AS_Softmax(delta=0.10)
        >>> loss.as_multilabel_categorical_crossentropy(logits, labels, *loss(logits, labels))
        tensor(2.0778)
    """

    def __init__(self, delta: float) -> None:
        super().__init__()
        self.delta = check_delta(delta)

    def forward(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return multilabel_keep(label_rows(logits, labels, None), self.delta)

    def as_multilabel_categorical_crossentropy(
        self, y_pred: Tensor, y_true: Tensor, mask_neg: Tensor, mask_pos: Tensor
    ) -> Tensor:
        """The mean over the samples of the loss with these masks."""
        scores, positive, negative, _ = label_rows(y_pred, y_true, None)
        loss_of_negatives = log_one_plus_sum_exp(scores, mask_neg & negative)
        loss_of_positives = log_one_plus_sum_exp(-scores, mask_pos & positive)
        loss = loss_of_negatives + loss_of_positives
        return loss.mean().to(y_pred.dtype)


def compute_accumulation_step(
    logits: Tensor, lamb: float, speedup: bool = True
) -> tuple[int, int, int]:
    r"""Return the masked samples, the masked classes, and the accumulation steps.

    $$
    k = \max(1, \operatorname{round}(\lambda N / (N - N_\text{masked} + 10^{-8})))
    $$

    ``logits`` are what `AS_Softmax` returns, ``(..., C)``, without the rows labelled -100; ``lamb``
    is $\lambda$, and ``speedup=False`` always asks for 1 step. The caller's loop must bound the
    steps, as the authors' does; new code uses `accumulation_steps`.

    Examples:
        >>> logits = torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 0.1]])
        >>> as_logits, _ = AS_Softmax(delta=0.1)(logits, torch.tensor([0, 0, 0]))
        >>> compute_accumulation_step(as_logits, 1)
        (2, 2, 3)
    """
    masked_in_row = (logits == -torch.inf).sum(-1).flatten()
    samples = len(masked_in_row)
    masked_samples = int((masked_in_row == logits.size(-1) - 1).sum())
    steps = 1
    if speedup:
        steps = max(1, round(lamb * samples / (samples - masked_samples + 1e-8)))
    return masked_samples, int(masked_in_row.sum()), steps
