"""Whether a call computes numbers, or is being turned into another program."""

from __future__ import annotations

import torch


def traced() -> bool:
    """True inside ``torch.compile`` and the transforms of ``torch.func``, where Python must not look at values."""
    functorch_active = getattr(torch._C, "_are_functorch_transforms_active", None)  # torch has no public question
    return torch.compiler.is_compiling() or (functorch_active is not None and functorch_active())
