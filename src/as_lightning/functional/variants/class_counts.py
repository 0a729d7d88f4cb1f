"""How many training examples each class has, for losses that need it (long tails)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_logits, check_tensor
from as_lightning.functional.calling_convention import (
    accumulation_dtype,
    check_index_dtype,
    class_dimension,
    safe_targets,
)
from as_lightning.functional.tracing import can_read_values


def class_counts_of(
    targets: Tensor | Iterable[Tensor], num_classes: int, *, ignore_index: int = -100
) -> Tensor:
    """Return how often each class is a target: int64, shape ``(num_classes)``, on the CPU.

    ``targets`` are class indices of any shape, or an iterable of such tensors, as of the batches of
    a training dataloader. An index out of range raises ``IndexError``, a target that is no integer
    ``TypeError``.

    Examples:
        >>> class_counts_of(torch.tensor([0, 2, 2, -100]), num_classes=4)
        tensor([1, 0, 2, 0])
        >>> batches = [("inputs", torch.tensor([0, 1])), ("inputs", torch.tensor([1]))]
        >>> class_counts_of((target for _, target in batches), num_classes=2)
        tensor([1, 2])
    """
    counts = torch.zeros(num_classes, dtype=torch.int64)
    if isinstance(targets, Tensor):
        targets = [targets]
    for target in targets:
        check_tensor("targets", target)
        check_index_dtype(target, target.shape)
        indices, ignored = safe_targets(target.cpu(), num_classes, ignore_index)
        if ignored is not None:
            indices = indices[~ignored]
        counts += torch.bincount(indices.flatten(), minlength=num_classes)
    return counts


@functools.cache  # once for these classes
def _warn_of_unseen(classes: tuple[int, ...]) -> None:
    shown = ", ".join(map(str, classes[:10]))
    if len(classes) > 10:
        shown += ", ..."
    warnings.warn(
        f"class_counts is 0 for class {shown} ({len(classes)} in all): the training data have no "
        "example of it; it counts as a class with one example, so that its logit stays finite",
        stacklevel=4,
    )


def checked_counts(class_counts: Tensor, logits: Tensor) -> Tensor:
    """Return the counts on the logits' device, in the dtype of the computation, at least 1.

    Raise unless there is one count, 0 or more, for each class of the logits. Values are checked on
    the CPU only.
    """
    check_logits(logits)
    check_tensor("class_counts", class_counts)
    classes = logits.size(class_dimension(logits))
    if class_counts.shape != (classes,):
        raise ValueError(
            f"class_counts must hold one count per class, shape ({classes},) for logits of shape "
            f"{tuple(logits.shape)}, got {tuple(class_counts.shape)}"
        )
    if can_read_values(class_counts) and classes:
        unseen = class_counts == 0
        wrong = ~((class_counts > 0) & (class_counts < torch.inf) | unseen)
        if bool(wrong.any()):
            raise ValueError(
                "class_counts must hold the training examples of each class, 0 or more, got "
                f"{class_counts[wrong][0].item()}"
            )
        if bool(unseen.any()):
            _warn_of_unseen(tuple(unseen.nonzero().flatten().tolist()))
    # a copy from the CPU does not wait for the device
    counts = class_counts.to(
        logits.device, accumulation_dtype(logits.dtype), non_blocking=class_counts.is_cpu
    )
    return counts.clamp(min=1)


def log_prior(class_counts: Tensor, logits: Tensor) -> Tensor:
    """Return the log of each class's share of the examples, after `checked_counts`."""
    counts = checked_counts(class_counts, logits)
    return (counts / counts.sum()).log()
