"""The loss and the gradient of rows of logits in one kernel, for a GPU: it comes with Triton, as
PyTorch for CUDA does.

A program takes a tile of rows: one pass for the largest logit and the sum of exponentials; one for
what the margin keeps, where a row of the tile is mixed (`row_loss`); one that writes the gradient,
which reads the logits again unless all rows of the tile are 0.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from as_lightning.functional.masking import all_masked_above

# logits that a program takes at a time: of a row, of all its rows (short rows share a program), and
# of a warp
BLOCK, TILE, PER_WARP = 2048, 128, 256


@triton.jit
def _row_loss(  # type: ignore[no-untyped-def]
    logits,
    row_stride,
    class_stride,
    targets,
    target_logits,
    ignored,
    gradient,
    losses,
    tally,
    delta,
    all_masked,
    unit,
    count,
    CLASSES: tl.constexpr,
    HAS_IGNORED: tl.constexpr,
    WRITES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exist, places = rows < count, tl.arange(0, BLOCK).to(tl.int64)[None, :]
    target, target_logit = (
        tl.load(targets + rows, exist, 0),
        tl.load(target_logits + rows, exist, 0.0).to(tl.float32),
    )
    dead = tl.load(ignored + rows, exist, 1) != 0 if HAS_IGNORED else ~exist
    starts = logits + rows[:, None] * row_stride
    peaks = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, CLASSES, BLOCK):
        inside = exist[:, None] & (first + places < CLASSES)
        logit = tl.load(starts + (first + places) * class_stride, inside, float("-inf")).to(
            tl.float32
        )
        lower = tl.exp(-tl.abs(logit - peaks))
        sums = tl.where(
            logit == float("-inf"), sums, tl.where(logit > peaks, sums * lower + 1.0, sums + lower)
        )
        peaks = tl.maximum(peaks, logit)
    peak = tl.max(peaks, 1)
    total = tl.sum(sums * tl.exp(peaks - tl.where(peak == float("-inf"), 0.0, peak)[:, None]), 1)
    inverse = 1.0 / total
    p_target = tl.exp(target_logit - peak) * inverse
    loss = tl.log(total) - (target_logit - peak)
    zero, cut = dead | (p_target > all_masked), p_target - delta
    dropped, kept = tl.zeros([ROWS], tl.int32), tl.full([ROWS], 1.0, tl.float32)
    if tl.max((~zero & (cut > 0.0)).to(tl.int32)) > 0:
        drops, shares = tl.zeros([ROWS, BLOCK], tl.int32), tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, CLASSES, BLOCK):
            inside = exist[:, None] & (first + places < CLASSES)
            logit = tl.load(starts + (first + places) * class_stride, inside, float("-inf")).to(
                tl.float32
            )
            p = tl.exp(logit - peak[:, None]) * inverse[:, None]
            below = (p < cut[:, None]) & inside
            drops += below.to(tl.int32)
            shares += tl.where(below | ~inside, 0.0, p)
        dropped = tl.sum(drops, 1)
        kept = tl.where(dropped > 0, tl.sum(shares, 1), 1.0)
    zero = zero | ((dropped > 0) & (dropped == CLASSES - 1))
    loss += tl.log(kept)
    tl.store(losses + rows, tl.where(zero | (loss < 0.0), 0.0, loss), exist)  # NaN stays
    live, fully = (~dead).to(tl.int64), (zero & ~dead).to(tl.int64)
    tl.store(tally + 4 * rows, fully if CLASSES > 1 else live, exist)
    tl.store(tally + 4 * rows + 1, live, exist)
    tl.store(
        tally + 4 * rows + 2, tl.where(zero, fully * (CLASSES - 1), dropped.to(tl.int64)), exist
    )
    tl.store(tally + 4 * rows + 3, live * (CLASSES - 1), exist)
    if WRITES:
        starts_out, scale = gradient + rows[:, None] * CLASSES, inverse / kept
        some_live = tl.min(zero.to(tl.int32)) == 0
        for first in range(0, CLASSES, BLOCK):
            inside = exist[:, None] & (first + places < CLASSES)
            slope = tl.zeros([ROWS, BLOCK], tl.float32)
            if some_live:
                logit = tl.load(starts + (first + places) * class_stride, inside, float("-inf")).to(
                    tl.float32
                )
                exponential = tl.exp(logit - peak[:, None])
                q = tl.where(
                    exponential * inverse[:, None] < cut[:, None], 0.0, exponential * scale[:, None]
                )
                slope = tl.where(
                    zero[:, None],
                    0.0,
                    (q - (first + places == target[:, None]).to(tl.float32)) * unit,
                )
            tl.store(starts_out + first + places, slope.to(gradient.dtype.element_ty), inside)


@triton.jit
def _scale_rows(  # type: ignore[no-untyped-def]
    gradient,
    scale,
    scale_stride,
    ignored,
    unit,
    count,
    CLASSES: tl.constexpr,
    HAS_IGNORED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exist, places = rows < count, tl.arange(0, BLOCK).to(tl.int64)[None, :]
    factor = tl.load(scale + rows * scale_stride, exist, 0.0).to(tl.float32) / unit
    if HAS_IGNORED:  # these stay 0: the mean of no row has an infinite upstream gradient
        exist = exist & (tl.load(ignored + rows, exist, 1) == 0)
    for first in range(0, CLASSES, BLOCK):
        inside = exist[:, None] & (first + places < CLASSES)
        place = gradient + rows[:, None] * CLASSES + first + places
        product = tl.load(place, inside, 0.0).to(tl.float32) * factor[:, None]
        tl.store(place, product.to(gradient.dtype.element_ty), inside)


def losses_and_gradient(
    rows: Tensor,
    target: Tensor,
    ignored: Tensor | None,
    delta: float,
    gradient: Tensor | None,
    unit: float,
) -> tuple[Tensor, Tensor]:
    """The loss of each row, ``float32 (N)``, 0 in ignored and in fully masked rows; and its counts,
    ``int64 (N, 4)``.

    The counts are those of `MaskingCounts`. The gradient, times ``unit``, is written into
    ``gradient``, contiguous ``(N, C)``, which may be ``rows``.
    """
    count = rows.size(0)
    loss, tally = rows.new_empty(count, dtype=torch.float32), target.new_empty((count, 4))
    # by PyTorch, which asserts on the device that targets are in range
    target_logits = rows.gather(1, target.unsqueeze(1))
    operands = (rows, rows.stride(0), rows.stride(1), target.contiguous(), target_logits)
    optional_operands = (
        target if ignored is None else ignored.contiguous(),
        rows if gradient is None else gradient,
    )
    _launch(
        _row_loss,
        rows,
        *(*operands, *optional_operands, loss, tally, delta, all_masked_above(delta), unit),
        HAS_IGNORED=ignored is not None,
        WRITES=gradient is not None,
    )
    return loss, tally


def scale_rows(gradient: Tensor, scale: Tensor, ignored: Tensor | None, unit: float) -> Tensor:
    """Multiply the rows of a contiguous gradient that are not ignored by ``scale / unit``."""
    mask = scale if ignored is None else ignored.contiguous()
    _launch(
        _scale_rows,
        gradient,
        gradient,
        scale,
        scale.stride(0),
        mask,
        unit,
        HAS_IGNORED=ignored is not None,
    )
    return gradient


def _launch(kernel: Any, rows: Tensor, *arguments: Any, **constants: bool) -> None:
    count, classes = rows.shape
    if not rows.numel():
        return
    block = min(BLOCK, triton.next_power_of_2(classes))
    tile = max(1, TILE // block)
    with torch.cuda.device(rows.device) if rows.is_cuda else contextlib.nullcontext():
        kernel[(triton.cdiv(count, tile),)](
            *(*arguments, count),
            CLASSES=classes,
            **constants,
            ROWS=tile,
            BLOCK=block,
            num_warps=max(1, tile * block // PER_WARP),
        )
