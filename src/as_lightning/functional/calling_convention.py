"""The calling convention of `torch.nn.functional.cross_entropy`, shared by every loss here.

Shapes, dtypes, class weights, ``ignore_index`` and reductions are checked and resolved. An ignored
row has no part in any sum: its logits and its weight become 0 first, so that neither NaN nor
infinity in them reaches loss or gradient.

Shapes and dtypes are checked everywhere. Values of the target are checked where the host can read
them: on a CPU, in eager calls, a class index out of range is an ``IndexError`` and a label that is
not 0 or 1 a ``ValueError``. In a graph an assertion raises ``RuntimeError``. On a GPU PyTorch's own
kernels assert that an index is in range, and labels are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import (
    check_class_weight,
    check_logits,
    check_reduction,
    check_tensor,
)
from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.tracing import can_read_values, in_plain_operations

# PyTorch's default ignore_index. The app's targets hold it. Here an ignored row reaches
# F.cross_entropy with it, whatever the caller's ignore_index is.
IGNORED = -100


HALF_TYPES = (torch.float16, torch.bfloat16)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a loss is computed: float32 for the half types, else ``dtype``."""
    if dtype in HALF_TYPES:
        return torch.float32
    return dtype


def widened(values: Tensor) -> Tensor:
    """Return the values in their `accumulation_dtype`."""
    if values.dtype in HALF_TYPES:
        return values.float()
    return values


def in_float64(values: Tensor) -> Tensor:
    """Return the values in float64, on the CPU if their device has none (Apple's ``mps``)."""
    if values.device.type == "mps":
        values = values.cpu()
    return values.double()


def loss_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype of a loss: ``dtype``, or float32 under autocast, as ``F.cross_entropy``."""
    if accumulation_dtype(dtype) != dtype and autocast_dtype(device) is not None:
        return torch.float32
    return dtype


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the dtype of a linear layer under autocast, None where autocast is off."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


def class_dimension(logits: Tensor) -> int:
    """Return the dimension of the classes: 1, or 0 for logits of shape ``(C)``."""
    if logits.dim() == 1:
        return 0
    return 1


class ClassRows(NamedTuple):
    """Samples with one class each, as rows: logits ``(R, C)`` and what belongs to each row.

    ``target`` is ``int64`` and in range, also in ignored rows; ``ignored`` is boolean, or None if
    there are none.
    """

    logits: Tensor
    target: Tensor
    ignored: Tensor | None


# A loss of rows. It takes the rows, the margin, a weight per class, the reduction, and whether to
# count. It returns the reduced loss in its accumulation dtype, and the counts or None.
RowsLoss = Callable[
    [ClassRows, float, Tensor | None, str, bool], tuple[Tensor, MaskingCounts | None]
]


def check_index_dtype(target: Tensor, expected: tuple[int, ...]) -> None:
    """Raise ``TypeError`` unless ``target`` is of an integer type."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(
            f"target must hold class indices (torch.int64) of shape {tuple(expected)}, got "
            f"{target.dtype} of shape {tuple(target.shape)}: soft targets and class probabilities "
            "have no single target class to compare with"
        )


def equals(target: Tensor, ignore_index: int | None) -> Tensor | None:
    """Return where ``target`` is ``ignore_index``, None where its dtype cannot hold that number."""
    if ignore_index is None or target.dtype == torch.bool:
        return None
    if not target.is_floating_point():
        limits = torch.iinfo(target.dtype)
        if not limits.min <= ignore_index <= limits.max:
            return None
    return target == ignore_index


def safe_targets(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Return class indices as ``int64``, 0 where ignored, and the mask of the ignored or None."""
    # int is tested first, so that the compiler traces no hasattr of a dynamic number
    if type(ignore_index) is not int and not hasattr(ignore_index, "__index__"):
        raise TypeError(
            f"ignore_index must be an integer, got {ignore_index!r}: to ignore no row, leave it "
            "out (-100)"
        )
    if not can_read_values(target):
        return _unread_targets(target, classes, ignore_index)
    target = target.long()
    if target.numel() == 0:
        return target, None
    ignored = None
    lowest, highest = map(Tensor.item, target.aminmax())
    if lowest <= ignore_index <= highest:
        ignored = target == ignore_index
        target = target.masked_fill(ignored, 0)
        lowest, highest = map(Tensor.item, target.aminmax())
    if lowest < 0 or highest >= classes:
        stray = lowest if lowest < 0 else highest
        raise IndexError(
            f"target must hold class indices from 0 to {classes - 1} or ignore_index, got {stray}"
        )
    return target, ignored


def _unread_targets(
    target: Tensor, classes: int, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    ignored = equals(target, ignore_index)
    indices = target.long()
    if ignored is not None:
        indices = indices.masked_fill(ignored, 0)
    if torch.compiler.is_compiling():
        torch._assert_async(
            ((indices >= 0) & (indices < classes)).all(),
            "target must hold class indices less than the number of classes, or ignore_index",
        )
    return indices, ignored


def class_rows(logits: Tensor, target: Tensor, ignore_index: int) -> ClassRows:
    """Check logits and class indices of any shape that ``F.cross_entropy`` takes; return rows."""
    check_logits(logits)
    check_tensor("target", target)
    shape = logits.shape
    expected = shape[:1]
    if len(shape) != 2:
        expected = shape[: class_dimension(logits)] + shape[2:]
    if target.dtype != torch.int64:
        check_index_dtype(target, expected)
    if target.shape != expected:
        raise ValueError(
            f"target must have shape {tuple(expected)} for logits of shape {tuple(shape)} "
            f"(class dimension {class_dimension(logits)}), got {tuple(target.shape)}"
        )
    if len(shape) == 1:
        logits, target = logits.unsqueeze(0), target.reshape(1)
    elif len(shape) > 2:
        logits, target = logits.movedim(1, -1).reshape(-1, shape[1]), target.reshape(-1)
    return ClassRows(logits, *safe_targets(target, logits.shape[1], ignore_index))


def reduce_rows(
    loss: Tensor,
    ignored: Tensor | None,
    row_weight: Tensor | None,
    reduction: str,
    *,
    zeroed: bool = False,
    samples: Tensor | None = None,
) -> Tensor:
    """Drop, weigh and reduce the losses of rows as ``F.cross_entropy`` does: a mean of none is NaN.

    With ``zeroed``, loss and gradient of ignored rows are 0 already. ``samples`` is the number of
    rows that are not ignored, if known.
    """
    if ignored is not None and not zeroed:
        loss = loss.masked_fill(ignored, 0.0)
    if row_weight is not None:
        if ignored is not None:  # a class without samples may have an infinite or NaN weight
            row_weight = row_weight.masked_fill(ignored, 0.0)
        loss = loss * row_weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if row_weight is not None:
        return loss.sum() / row_weight.sum()
    if ignored is None:
        return loss.mean()
    if samples is None:
        samples = (~ignored).sum()
    return loss.sum() / samples


def reduce_batch(
    loss: Tensor, batch: ClassRows, weight: Tensor | None, reduction: str, **known: Any
) -> Tensor:
    """Return `reduce_rows` with a weight per class."""
    row_weight = None
    if weight is not None:
        row_weight = weight.to(loss.dtype).index_select(0, batch.target)
    return reduce_rows(loss, batch.ignored, row_weight, reduction, **known)


def over_rows(transform: Callable[[Tensor], Tensor], logits: Tensor, dim: int) -> Tensor:
    """Apply a transform of ``(R, C)`` rows along ``dim``, keeping shape and dtype."""
    check_logits(logits)
    moved = widened(logits).movedim(dim, -1)
    rows = moved.reshape(-1, moved.size(-1))
    return transform(rows).reshape(moved.shape).movedim(-1, dim).to(logits.dtype)


def clean_logits(batch: ClassRows) -> Tensor:
    """Return the logits in their accumulation dtype, 0 in ignored rows, which may hold NaN."""
    rows = widened(batch.logits)
    if batch.ignored is None:
        return rows
    return rows.masked_fill(batch.ignored.unsqueeze(-1), 0.0)


def cross_entropy_of_rows(
    scores: Tensor, batch: ClassRows, weight: Tensor | None, reduction: str
) -> Tensor:
    """Return ``F.cross_entropy`` of scores that have been computed from `clean_logits`."""
    target = batch.target
    if batch.ignored is not None:
        target = target.masked_fill(batch.ignored, IGNORED)
    cross_entropy = partial(F.cross_entropy, scores, target, ignore_index=IGNORED)
    if weight is None:
        return cross_entropy(reduction=reduction)
    if not in_plain_operations(scores):
        return cross_entropy(weight=weight.to(scores.dtype), reduction=reduction)
    # in a graph and under vmap, F.cross_entropy multiplies all scores by the weights: 0 by those of
    # absent classes too
    return reduce_batch(cross_entropy(reduction="none"), batch, weight, reduction)


def loss_of_rows(
    row_loss: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    reduce: Callable[[Tensor, ClassRows, Tensor | None, str], Tensor] = reduce_batch,
) -> Tensor:
    """Give a loss of single rows the shapes, options and reductions of ``F.cross_entropy``."""
    batch = class_rows(logits, target, ignore_index)
    check_reduction(reduction)
    check_class_weight(weight, batch.logits.size(-1))
    loss = reduce(row_loss(clean_logits(batch), batch.target), batch, weight, reduction)
    if reduction == "none":
        loss = loss.reshape(target.shape)
    return loss.to(loss_dtype(logits.dtype, logits.device))


def cross_entropy_of(
    scores: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor, **settings: Any
) -> Tensor:
    """Return ``F.cross_entropy`` of the scores of rows and their targets, as `loss_of_rows`."""
    return loss_of_rows(scores, logits, target, reduce=cross_entropy_of_rows, **settings)


class LabelRows(NamedTuple):
    """Samples with several labels each, the labels last: scores in their accumulation dtype, masks.

    A label is ``positive``, ``negative`` or ``ignored``; that is None where there certainly is
    none.
    """

    scores: Tensor
    positive: Tensor
    negative: Tensor
    ignored: Tensor | None


def label_rows(logits: Tensor, target: Tensor, ignore_index: int | None) -> LabelRows:
    """Check logits and labels of one shape; all are known where ``ignore_index`` is None."""
    check_logits(logits, "label")
    check_tensor("target", target)
    if target.shape != logits.shape:
        raise ValueError(
            f"target must have the shape of logits, {tuple(logits.shape)}, with 1 at each positive "
            f"label and 0 elsewhere, got {tuple(target.shape)}"
        )
    dim = class_dimension(logits)
    target = target.movedim(dim, -1)
    readable = can_read_values(target)
    ignored = equals(target, ignore_index)
    if ignored is not None and readable and not bool(ignored.any()):
        ignored = None
    positive, negative = target == 1, target == 0
    if ignored is not None:
        positive, negative = positive & ~ignored, negative & ~ignored
    if readable or torch.compiler.is_compiling():
        _check_labels(target, positive | negative, ignored, ignore_index)
    return LabelRows(widened(logits).movedim(dim, -1), positive, negative, ignored)


def _check_labels(
    target: Tensor, known: Tensor, ignored: Tensor | None, ignore_index: int | None
) -> None:
    """Raise unless all labels are known or ignored, in a graph by an assertion."""
    expected = f"target must hold only 0 and 1, and ignore_index ({ignore_index})"
    if ignored is not None:
        known = known | ignored
    if torch.compiler.is_compiling():
        torch._assert_async(known.all(), expected)
    elif not bool(known.all()):
        stray = target[~known]
        raise ValueError(
            f"{expected} for labels that are not known, got {stray[0].item()!r} "
            f"({stray.numel()} such values): soft labels are not supported"
        )


def reduce_samples(loss: Tensor, labels: LabelRows, logits: Tensor, reduction: str) -> Tensor:
    """Reduce the losses of samples with several labels, to the dtype of the loss of ``logits``."""
    ignored_samples = None
    if labels.ignored is not None:
        ignored_samples = labels.ignored.all(-1)
    reduced = reduce_rows(loss, ignored_samples, None, reduction)
    return reduced.to(loss_dtype(logits.dtype, logits.device))


def reduce_labels(loss: Tensor, known: Tensor, logits: Tensor, reduction: str) -> Tensor:
    """Reduce losses of single labels, 0 where unknown; ``loss`` may be their sum already."""
    if reduction == "none":
        loss = loss.movedim(-1, class_dimension(logits))
    else:
        loss = loss.sum()
        if reduction == "mean":
            loss = loss / known.sum()
    return loss.to(loss_dtype(logits.dtype, logits.device))
