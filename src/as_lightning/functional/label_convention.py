"""How the losses with several labels for each sample are called: which labels are positive, negative or not known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_logits
from as_lightning.functional.calling_convention import class_dimension, equals, widened
from as_lightning.functional.tracing import looks


class LabelRows(NamedTuple):
    """Samples with several labels each, the label dimension last.

    Attributes:
        scores: the logits in their accumulation dtype, shape ``(..., C)``.
        positive: labels that are 1, boolean, of that shape.
        negative: labels that are 0.
        ignored: labels that are ``ignore_index`` and so neither; None where it is certain that there is none.
    """

    scores: Tensor
    positive: Tensor
    negative: Tensor
    ignored: Tensor | None


def counted_samples(labels: LabelRows) -> Tensor | None:
    """The samples with a known label, shape ``(...)``; None if all certainly have one."""
    return None if labels.ignored is None else ~labels.ignored.all(-1)


def label_rows(logits: Tensor, target: Tensor, ignore_index: int | None) -> LabelRows:
    """Check logits and labels of one shape, and find the positives, the negatives and the ignored labels.

    The values are checked on the CPU only: on an accelerator the check would make the host wait. With ``ignore_index``
    None every label is known.
    """
    check_logits(logits, "label")
    if target.is_complex():
        raise TypeError(f"target must hold 0 and 1 (bool, integer or floating point), got {target.dtype}")
    if target.shape != logits.shape:
        raise ValueError(
            f"target must have the shape of logits, {tuple(logits.shape)}, with 1 at each positive label and 0 "
            f"elsewhere, got {tuple(target.shape)}"
        )
    ignored = equals(target, ignore_index)
    if ignored is not None and looks(target) and not bool(ignored.any()):
        ignored = None
    positive, negative = (target, ~target) if target.dtype == torch.bool else (target == 1, target == 0)
    if ignored is not None:
        positive, negative = positive & ~ignored, negative & ~ignored
    if looks(target):
        known = positive | negative if ignored is None else positive | negative | ignored
        if not bool(known.all()):
            stray = target[~known]
            unknown = (
                "" if ignore_index is None else f", and ignore_index ({ignore_index}) for labels that are not known"
            )
            raise ValueError(
                f"target must hold only 0 and 1{unknown}, got {stray[0].item()!r} ({stray.numel()} such values): soft "
                "labels are not supported"
            )
    dim = class_dimension(logits)
    moved = (None if tensor is None else tensor.movedim(dim, -1) for tensor in (positive, negative, ignored))
    return LabelRows(widened(logits).movedim(dim, -1), *moved)  # type: ignore[arg-type]
