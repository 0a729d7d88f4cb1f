"""What the rows of a loss count for."""

from __future__ import annotations

import pytest
import torch

from as_lightning.loss_call import ClassLoss, HeadLoss, LabelLoss

ROWS = 70_001  # more than bfloat16 counts exactly and float16 holds


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rows_are_counted_exactly_also_in_a_half_type(dtype: torch.dtype) -> None:
    logits = torch.zeros(ROWS, 2, dtype=dtype)
    classes, labels = torch.zeros(ROWS, dtype=torch.long), torch.zeros(ROWS, 2)
    head = torch.zeros(3, 2, dtype=dtype), None
    for call in (
        ClassLoss(logits, classes, None, -100, "mean"),
        HeadLoss(logits, *head, classes, None, -100, "mean"),
        LabelLoss(logits, labels, -100, "mean"),
    ):
        assert float(call.rows().weight.sum()) == ROWS
