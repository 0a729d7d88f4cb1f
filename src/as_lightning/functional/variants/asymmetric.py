r"""Several labels whose easy negatives count less (Ridnik et al.: arXiv 2009.14119)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_number, check_reduction
from as_lightning.functional.calling_convention import label_rows, reduce_labels


def asymmetric_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma_negative: float = 4.0,
    gamma_positive: float = 0.0,
    clip: float = 0.05,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Binary cross-entropy of every known label, with a focus of its own for positives and for
    negatives.

    $$
    \ell_+ = -(1 - p)^{\gamma_+} \log p, \qquad \ell_- = -p_m^{\gamma_-} \log(1 - p_m), \qquad
    p_m = \max(p - m, 0)
    $$

    with $p$ the sigmoid of a logit. A negative below the ``clip`` $m$, in [0, 1), has no loss and
    no gradient. The two $\gamma$ are 0 or more; with all three 0 it is `bce_loss`. As there, the
    mean is over the known labels (the paper's code takes the sum), and targets are 1, 0, or
    ``ignore_index`` where a label is unknown.

    Source: Ridnik et al. 2021 (arXiv 2009.14119), equations 4 to 7.

    Examples:
        >>> asymmetric_loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, -100]]))
        tensor(0.0637)
    """
    powers = {"gamma_negative": gamma_negative, "gamma_positive": gamma_positive}
    for name, power in powers.items():
        check_number(name, power, lambda value: value >= 0, "a number of 0 or more")
    clip = check_number("clip", clip, lambda value: 0 <= value < 1, "a number in [0, 1)")
    labels = label_rows(logits, target, ignore_index)
    check_reduction(reduction)
    known = labels.positive | labels.negative
    # a positive has the loss of a negative with the negated logit, without the clip
    scores = torch.where(labels.positive, -labels.scores, labels.scores).masked_fill(~known, 0.0)
    positive = labels.positive.to(scores.dtype)
    clips = clip * (1 - positive)
    gammas = gamma_negative * (1 - positive) + gamma_positive * positive
    log_complement = torch.logaddexp(F.logsigmoid(-scores), clips.log()).clamp(max=0.0)
    # a power below 1 has no derivative at 0
    shifted = (scores.sigmoid() - clips).clamp(min=torch.finfo(scores.dtype).tiny)
    loss = (0.0 - shifted**gammas * log_complement).masked_fill(~known, 0.0)
    return reduce_labels(loss, known, logits, reduction)
