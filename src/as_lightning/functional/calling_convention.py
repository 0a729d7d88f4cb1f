"""The calling convention of `torch.nn.functional.cross_entropy`, shared by every loss here.

Shapes, dtypes, class weights, ``ignore_index`` and reductions are checked and resolved. An ignored
row has no part in any sum: its logits and its weight become 0 first, so that neither NaN nor
infinity in them reaches loss or gradient.

Shapes and dtypes are checked everywhere, values of the target where they can be:

* called eagerly on a CPU, a class index out of range is an ``IndexError``, a label that is not 0 or
  1 a ``ValueError``;
* in a graph of ``torch.compile`` on a CPU the ``IndexError`` is the same. Elsewhere, for labels and
  in a graph of ``torch.export`` an assertion in the graph raises ``RuntimeError``, on a GPU as an
  assertion of the device;
* called eagerly on a GPU, where the host would have to wait, PyTorch's own kernels assert that an
  index is in range. There labels are not checked, and neither are they within the transforms of
  ``torch.func``.
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
from as_lightning.functional.tracing import in_plain_operations, looks, recorded


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a loss of logits of ``dtype`` is computed: float32 for the half types,
    else theirs.
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widened(values: Tensor) -> Tensor:
    """The values in their `accumulation_dtype`."""
    dtype = accumulation_dtype(values.dtype)
    return values if values.dtype == dtype else values.to(dtype)


def in_float64(values: Tensor) -> Tensor:
    """The values in float64: on their device, or on the CPU if their device has none, as Apple's
    GPUs (``mps``).
    """
    return (values.cpu() if values.device.type == "mps" else values).double()


def loss_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of the loss of logits of ``dtype``: theirs, or under autocast float32, as
    ``F.cross_entropy``'s is.
    """
    if accumulation_dtype(dtype) == dtype:
        return dtype
    return dtype if autocast_dtype(device) is None else torch.float32


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of a linear layer under autocast; None if autocast is off, or the device (``meta``)
    has none.
    """
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


def class_dimension(logits: Tensor) -> int:
    """The dimension of the classes: 1, or 0 for logits of shape ``(C)``."""
    return 0 if logits.dim() == 1 else 1


class ClassRows(NamedTuple):
    """Samples with one class each, as rows: logits ``(R, C)`` in their own dtype and what belongs
    to each row.

    ``target`` is ``int64`` and in range, also in ignored rows; ``ignored`` is boolean, or None if
    there are none; ``classes`` counts all classes, also where the logits hold only some of them.
    """

    logits: Tensor
    target: Tensor
    ignored: Tensor | None
    classes: int


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
            f"{target.dtype} of shape "
            f"{tuple(target.shape)}: soft targets and class probabilities have no single target "
            "class to compare with"
        )


def check_class_indices(logits: Tensor, target: Tensor) -> None:
    """Raise unless ``target`` holds class indices for ``logits`` in one of the shapes
    ``F.cross_entropy`` takes.
    """
    check_logits(logits)
    check_tensor("target", target)
    shape = logits.shape
    expected = (
        shape[:1] if len(shape) == 2 else shape[:0] if len(shape) == 1 else shape[:1] + shape[2:]
    )
    if target.dtype != torch.int64:
        check_index_dtype(target, expected)
    if target.shape != expected:
        raise ValueError(
            f"target must have shape {tuple(expected)} for logits of shape {tuple(shape)} "
            f"(class dimension {class_dimension(logits)}), got {tuple(target.shape)}"
        )


def equals(target: Tensor, ignore_index: int | None) -> Tensor | None:
    """Where ``target`` is ``ignore_index``; None where its dtype cannot hold that number (``uint8``
    has no -100).
    """
    if ignore_index is None or target.dtype == torch.bool:
        return None
    if not target.is_floating_point():
        limits = torch.iinfo(target.dtype)
        if not limits.min <= ignore_index <= limits.max:
            return None
    return target == ignore_index


# PyTorch's default ignore_index. The app's targets hold it. Here an ignored row reaches
# F.cross_entropy with it, whatever the caller's ignore_index is.
IGNORED = -100


def safe_targets(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Class indices as ``int64``, 0 where ignored; and the mask of the ignored, None where there
    certainly is none.
    """
    # int is tested first, so that the compiler traces no hasattr of a dynamic number
    if type(ignore_index) is not int and not hasattr(ignore_index, "__index__"):
        raise TypeError(
            f"ignore_index must be an integer, got {ignore_index!r}: to ignore no row, leave it "
            "out (-100)"
        )
    if not looks(target):
        ignored = equals(target, ignore_index)
        indices = target.long() if ignored is None else target.long().masked_fill(ignored, 0)
        return (
            _checked_in_graph(indices, classes) if torch.compiler.is_compiling() else indices
        ), ignored
    target = target.long()
    if target.numel() == 0:
        return target, None
    lowest, highest = map(Tensor.item, target.aminmax())
    ignored = equals(target, ignore_index) if lowest <= ignore_index <= highest else None
    if ignored is not None:
        target = target.masked_fill(ignored, 0)
        lowest, highest = map(Tensor.item, target.aminmax())
    if lowest < 0 or highest >= classes:
        raise _out_of_range(classes, lowest if lowest < 0 else highest)
    return target, ignored


def _out_of_range(classes: int, index: float) -> IndexError:
    return IndexError(
        f"target must hold class indices from 0 to {classes - 1} or ignore_index, got {index}"
    )


def _checked_in_graph(indices: Tensor, classes: int) -> Tensor:
    in_range = ((indices >= 0) & (indices < classes)).all()
    if indices.is_cpu and not recorded(indices):
        return torch.ops.as_lightning.class_indices(indices, in_range, classes)
    torch._assert_async(
        in_range, "target must hold class indices less than the number of classes, or ignore_index"
    )
    return indices


def _class_indices_on_cpu(indices: Tensor, in_range: Tensor, classes: int) -> Tensor:
    if not bool(in_range):
        lowest, highest = map(Tensor.item, indices.aminmax())
        raise _out_of_range(classes, lowest if lowest < 0 else highest)
    return indices.clone()  # an operator must not return its argument


# A node of a graph that raises IndexError, without the layers that torch.library.custom_op puts
# around each call.
if not hasattr(
    torch.ops.as_lightning, "class_indices"
):  # a process that imports the package again has it
    _LIBRARY = torch.library.Library("as_lightning", "FRAGMENT")
    _LIBRARY.define("class_indices(Tensor indices, Tensor in_range, SymInt classes) -> Tensor")
    _LIBRARY.impl("class_indices", _class_indices_on_cpu, "CPU")
    torch.library.register_fake(
        "as_lightning::class_indices", lambda indices, in_range, classes: torch.empty_like(indices)
    )


def class_rows(
    logits: Tensor, target: Tensor, ignore_index: int, classes: int | None = None
) -> ClassRows:
    """Check ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)`` logits with their class indices, and view
    them as rows.
    """
    check_class_indices(logits, target)
    dimensions = logits.dim()
    if dimensions == 1:
        logits, target = logits.unsqueeze(0), target.reshape(1)
    elif dimensions > 2:
        logits, target = logits.movedim(1, -1).reshape(-1, logits.size(1)), target.reshape(-1)
    classes = logits.shape[1] if classes is None else classes
    return ClassRows(logits, *safe_targets(target, classes, ignore_index), classes)


def reduce_rows(
    loss: Tensor,
    ignored: Tensor | None,
    row_weight: Tensor | None,
    reduction: str,
    *,
    zeroed: bool = False,
    samples: Tensor | None = None,
) -> Tensor:
    """Drop, weigh and reduce the losses of rows as ``F.cross_entropy`` does: the mean of none is
    NaN.

    ``zeroed``: loss and gradient of ignored rows are 0 already. ``samples``: the number of rows not
        ignored, if known.
    """
    if ignored is not None:
        loss = loss if zeroed else loss.masked_fill(ignored, 0.0)
        if row_weight is not None:  # a class without samples may have an infinite or NaN weight
            row_weight = row_weight.masked_fill(ignored, 0.0)
    if row_weight is not None:
        loss = loss * row_weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if row_weight is not None:
        return loss.sum() / row_weight.sum()
    if ignored is None:
        return loss.mean()
    return loss.sum() / ((~ignored).sum() if samples is None else samples)


def reduce_batch(
    loss: Tensor, batch: ClassRows, weight: Tensor | None, reduction: str, **known: Any
) -> Tensor:
    """`reduce_rows` with a weight per class."""
    row_weight = None if weight is None else weight.to(loss.dtype).index_select(0, batch.target)
    return reduce_rows(loss, batch.ignored, row_weight, reduction, **known)


def over_rows(transform: Callable[[Tensor], Tensor], logits: Tensor, dim: int) -> Tensor:
    """Apply a transform of ``(R, C)`` rows along ``dim``; the result has the shape and the dtype of
    ``logits``.
    """
    check_logits(logits)
    moved = widened(logits).movedim(dim, -1)
    rows = moved.reshape(-1, moved.size(-1))
    return transform(rows).reshape(moved.shape).movedim(-1, dim).to(logits.dtype)


def clean_logits(batch: ClassRows) -> Tensor:
    """The logits in their accumulation dtype, 0 in ignored rows: a NaN there must reach neither
    loss nor gradient.
    """
    rows = widened(batch.logits)
    return rows if batch.ignored is None else rows.masked_fill(batch.ignored.unsqueeze(-1), 0.0)


def cross_entropy_of_rows(
    scores: Tensor,
    batch: ClassRows,
    weight: Tensor | None,
    reduction: str,
    label_smoothing: float = 0.0,
) -> Tensor:
    """``F.cross_entropy`` of scores that have been computed from `clean_logits`."""
    options = {"ignore_index": IGNORED, "label_smoothing": label_smoothing}
    target = (
        batch.target if batch.ignored is None else batch.target.masked_fill(batch.ignored, IGNORED)
    )
    # every class is in a smoothed label's loss
    if weight is None or label_smoothing or not in_plain_operations(scores):
        weight = None if weight is None else weight.to(scores.dtype)
        return F.cross_entropy(scores, target, weight, reduction=reduction, **options)  # type: ignore[arg-type]
    # in a graph and under vmap, F.cross_entropy multiplies all scores by the weights: 0 by those of
    # absent classes too
    losses = F.cross_entropy(scores, target, reduction="none", **options)  # type: ignore[arg-type]
    return reduce_batch(losses, batch, weight, reduction)


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
    """Shapes, ``ignore_index`` and reductions of ``F.cross_entropy`` around a loss of
    single rows.
    """
    batch = class_rows(logits, target, ignore_index)
    check_reduction(reduction)
    check_class_weight(weight, batch.classes)
    loss = reduce(row_loss(clean_logits(batch), batch.target), batch, weight, reduction)
    loss = loss.reshape(target.shape) if reduction == "none" else loss
    return loss.to(loss_dtype(logits.dtype, logits.device))


def cross_entropy_of(
    scores: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    label_smoothing: float = 0.0,
    **settings: Any,
) -> Tensor:
    """``F.cross_entropy`` of the scores of rows and their targets, for class indices only, as
    `loss_of_rows`.
    """
    reduce = partial(cross_entropy_of_rows, label_smoothing=label_smoothing)
    return loss_of_rows(scores, logits, target, reduce=reduce, **settings)


class HeadOperands(NamedTuple):
    """The operands of a linear head's loss: weight ``(C, d)``, bias ``(C)``, and a weight per
    class.
    """

    hidden: Tensor
    head_weight: Tensor
    bias: Tensor | None
    target: Tensor
    weight: Tensor | None


class LabelRows(NamedTuple):
    """Samples with several labels each, the label dimension last: scores in their accumulation
    dtype, and three masks.

    A label is ``positive``, ``negative`` or ``ignored``; that is None where there certainly is
    none.
    """

    scores: Tensor
    positive: Tensor
    negative: Tensor
    ignored: Tensor | None


def reduce_samples(loss: Tensor, labels: LabelRows, logits: Tensor, reduction: str) -> Tensor:
    """`reduce_rows` of the losses of samples with several labels, in the dtype of the loss of
    ``logits``.
    """
    ignored_samples = None if labels.ignored is None else labels.ignored.all(-1)
    return reduce_rows(loss, ignored_samples, None, reduction).to(
        loss_dtype(logits.dtype, logits.device)
    )


def reduce_labels(loss: Tensor, known: Tensor, logits: Tensor, reduction: str) -> Tensor:
    """Reduce losses of single labels, 0 where a label is unknown; ``loss`` may be their sum
    already.
    """
    if reduction == "none":
        loss = loss.movedim(-1, class_dimension(logits))
    else:
        loss = loss.sum() if reduction == "sum" else loss.sum() / known.sum()
    return loss.to(loss_dtype(logits.dtype, logits.device))


def label_rows(logits: Tensor, target: Tensor, ignore_index: int | None) -> LabelRows:
    """Check logits and labels of one shape, and find the positives, the negatives and the ignored
    labels.

    With ``ignore_index`` None all are known.
    """
    check_logits(logits, "label")
    check_tensor("target", target)
    if target.is_complex():
        raise TypeError(
            f"target must hold 0 and 1 (bool, integer or floating point), got {target.dtype}"
        )
    if target.shape != logits.shape:
        raise ValueError(
            f"target must have the shape of logits, {tuple(logits.shape)}, with 1 at each positive "
            "label and 0 "
            f"elsewhere, got {tuple(target.shape)}"
        )
    ignored = equals(target, ignore_index)
    if ignored is not None and looks(target) and not bool(ignored.any()):
        ignored = None
    positive, negative = (
        (target, ~target) if target.dtype == torch.bool else (target == 1, target == 0)
    )
    if ignored is not None:
        positive, negative = positive & ~ignored, negative & ~ignored
    if looks(target) or torch.compiler.is_compiling():
        known = positive | negative if ignored is None else positive | negative | ignored
        expected = f"target must hold only 0 and 1, and ignore_index ({ignore_index}) for labels that are not known"
        if torch.compiler.is_compiling():
            torch._assert_async(known.all(), expected)
        elif not bool(known.all()):
            stray = target[~known]
            raise ValueError(
                f"{expected}, got {stray[0].item()!r} ({stray.numel()} such values): soft labels "
                "are not supported"
            )
    dim = class_dimension(logits)
    moved = (
        None if tensor is None else tensor.movedim(dim, -1)
        for tensor in (positive, negative, ignored)
    )
    return LabelRows(widened(logits).movedim(dim, -1), *moved)  # type: ignore[arg-type]
