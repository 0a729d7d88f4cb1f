"""The row pass as one node of a compiled graph: on the CPU faster than what the compiler makes of the formula."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import ClassRows, accumulation_dtype, reduce_batch
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.kernels.row_loss import differentiable_backward, losses_and_gradient


# the schema is written out: not every version of torch can read it from annotations that are strings
@torch.library.custom_op(
    "as_lightning::row_loss",
    mutates_args=(),
    schema="(Tensor rows, Tensor target, Tensor ignored, float delta, bool differentiated) -> (Tensor, Tensor, Tensor)",
)
def compiled_row_loss(
    rows: Tensor, target: Tensor, ignored: Tensor, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The losses, the masked competitors and the gradient, as those of `RowLoss`."""
    return losses_and_gradient(rows, target, ignored, delta, differentiated)


@compiled_row_loss.register_fake
def _(
    rows: Tensor, target: Tensor, ignored: Tensor, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    loss = rows.new_empty(rows.shape[:1], dtype=accumulation_dtype(rows.dtype))
    return loss, torch.empty_like(target), rows.new_empty(rows.shape if differentiated else (0, rows.size(1)))


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[2], inputs[1])
    ctx.set_materialize_grads(False)


def _compiled_backward(
    ctx: Any, grad_loss: Tensor | None, _: Tensor | None, grad_gradient: Tensor | None
) -> tuple[Tensor | None, None, None, None, None]:
    gradient, target = ctx.saved_tensors
    return differentiable_backward(gradient, target, grad_loss, grad_gradient), None, None, None, None


compiled_row_loss.register_autograd(_compiled_backward, setup_context=_save_gradient)


def compiled_loss(
    batch: ClassRows, delta: float, weight: Tensor | None, reduction: str, counting: bool
) -> tuple[Tensor, MaskingCounts | None]:
    """A `RowsLoss`."""
    differentiated = torch.is_grad_enabled() and batch.logits.requires_grad
    loss, masked, _ = compiled_row_loss(batch.logits, batch.target, batch.ignored, delta, differentiated)
    counts = counts_of_rows(masked, batch.ignored, batch.classes) if counting else None
    return reduce_batch(loss, batch, weight, reduction), counts
