"""The loss and the gradient of rows of logits in one kernel, for a GPU: it comes with Triton, as PyTorch for CUDA does.

A program takes a row: one pass for the largest logit and the sum of exponentials, one for what the margin keeps, one
that writes the gradient.
"""

from __future__ import annotations

import contextlib

import torch
import triton
import triton.language as tl
from torch import Tensor

from as_lightning.functional.masking import all_masked_above

BLOCK = 4096  # logits of a row that a program takes at a time


@triton.jit
def _row_loss(  # type: ignore[no-untyped-def]
    rows,
    row_stride,
    class_stride,
    targets,
    target_stride,
    target_logits,
    ignored,
    ignored_stride,
    gradient,
    gradient_stride,
    gradient_class_stride,
    losses,
    masked,
    delta,
    all_masked,
    unit,
    CLASSES: tl.constexpr,
    HAS_IGNORED: tl.constexpr,
    WRITES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row * target_stride)
    dead = tl.load(ignored + row * ignored_stride) != 0 if HAS_IGNORED else target < 0
    logits, out, place = rows + row * row_stride, gradient + row * gradient_stride, tl.arange(0, BLOCK)
    peaks = tl.full([BLOCK], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, CLASSES, BLOCK):
        inside = start + place < CLASSES
        logit = tl.load(logits + (start + place) * class_stride, inside, float("-inf")).to(tl.float32)
        higher = tl.maximum(peaks, logit)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        sums = sums * tl.exp(peaks - shift) + tl.exp(logit - shift)
        peaks = higher
    peak = tl.max(peaks)
    total = tl.sum(sums * tl.exp(peaks - tl.where(peak == float("-inf"), 0.0, peak)))
    target_logit = tl.load(target_logits + row).to(tl.float32) - peak
    p_target = tl.exp(target_logit) / total
    loss = tl.log(total) - target_logit
    kept = tl.zeros([BLOCK], tl.float32)
    dropped = tl.zeros([BLOCK], tl.int32)
    for start in range(0, CLASSES, BLOCK):
        inside = start + place < CLASSES
        logit = tl.load(logits + (start + place) * class_stride, inside, float("-inf")).to(tl.float32)
        p = tl.exp(logit - peak) / total
        drops = (p < p_target - delta) & inside
        dropped += drops.to(tl.int32)
        kept += tl.where(drops | ~inside, 0.0, p)
    count, share = tl.sum(dropped), tl.sum(kept)
    fully = (p_target > all_masked) | ((count > 0) & (count == CLASSES - 1))
    loss = tl.where(count > 0, loss + tl.log(share), loss)
    loss = tl.where(loss < 0.0, 0.0, loss)  # NaN stays
    tl.store(losses + row, tl.where(dead | fully, 0.0, loss))
    tl.store(masked + row, tl.where(dead, 0, tl.where(fully, CLASSES - 1, count)))
    if WRITES:
        scale = tl.where(count > 0, share, 1.0) * total
        for start in range(0, CLASSES, BLOCK):
            inside = start + place < CLASSES
            logit = tl.load(logits + (start + place) * class_stride, inside, float("-inf")).to(tl.float32)
            weight = tl.exp(logit - peak)
            q = tl.where(weight / total < p_target - delta, 0.0, weight / scale)
            slope = tl.where(dead | fully, 0.0, (q - tl.where(start + place == target, 1.0, 0.0)) * unit)
            tl.store(out + (start + place) * gradient_class_stride, slope.to(gradient.dtype.element_ty), inside)


def losses_and_gradient(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, gradient: Tensor | None, unit: float
) -> tuple[Tensor, Tensor]:
    """The loss of each row, ``float32 (N)``, and its masked competitors; 0 in ignored and in fully masked rows.

    The gradient, times ``unit``, is written into ``gradient`` ``(N, C)``, which may be ``rows``.
    """
    count, classes = rows.shape
    loss, masked = rows.new_empty(count, dtype=torch.float32), torch.empty_like(target)
    if not count:
        return loss, masked
    out, block = rows if gradient is None else gradient, min(BLOCK, 1 << max(classes - 1, 1).bit_length())
    flags = target if ignored is None else ignored
    # by PyTorch, which asserts on the device that targets are in range
    target_logits = rows.gather(1, target.unsqueeze(1))
    with torch.cuda.device(rows.device) if rows.is_cuda else contextlib.nullcontext():
        _row_loss[(count,)](
            *(rows, rows.stride(0), rows.stride(1), target, target.stride(0)),
            *(target_logits, flags, flags.stride(0)),
            *(out, out.stride(0), out.stride(1), loss, masked),
            *(delta, all_masked_above(delta), unit),
            CLASSES=classes,
            HAS_IGNORED=ignored is not None,
            WRITES=gradient is not None,
            BLOCK=block,
            num_warps=max(1, min(8, block // 256)),
        )
    return loss, masked
