"""When an accumulation window closes: functions of the open window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from as_lightning.functional.accumulation import accumulation_steps
from as_lightning.functional.argument_checks import check_choice, check_count


@dataclass
class AccumulationWindow:
    """The batches that one optimizer step gathers, and what is counted in them over all ranks.

    Attributes:
        epoch: the 0-based epoch.
        batch: the 0-based index in the epoch of its first batch.
        step: the optimizer steps taken before it.
        length: its batches so far, that of a policy's question included.
        items: the items in its batches; without ``items=`` a batch of a rank is one item. A policy
            that reads them waits for the device and all ranks; with ``"module"`` it gets NaN.
        items_before: the items of all windows before it, since training began.
        wanted: the length that the policy wanted, if it says one; an epoch or a validation cuts.
        masked_samples: the samples whose competitors are all masked, once it has closed.
        samples: the samples in the loss, once it has closed; 0 in a module that counts no masking.
        loss: the mean of its losses, weighed as their gradients are, once it has closed.
        last: the closed window before it; None at the start of training.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    length: int = 0
    items: float = 0.0
    items_before: float = 0.0
    wanted: int = 1
    masked_samples: int = 0
    samples: int = 0
    loss: float = field(default=0.0, compare=False)
    last: AccumulationWindow | None = field(default=None, repr=False, compare=False)


# Whether the optimizer steps after the batch that starts.
Policy = Callable[[AccumulationWindow], bool]


@dataclass(frozen=True)
class MaskingPolicy:
    """AS-Speed: more batches as more samples are masked, by `accumulation_steps`."""

    max_steps: int = 4
    scale: float = 1.0
    monotone: bool = True

    def __post_init__(self) -> None:
        accumulation_steps(0, 0, **vars(self))

    def __call__(self, window: AccumulationWindow) -> bool:
        last = window.last
        if last is not None:
            counts = last.samples, last.masked_samples
            window.wanted = accumulation_steps(*counts, previous=last.wanted, **vars(self))
        return window.length >= window.wanted


@dataclass(eq=False)
class AccumulationSchedule:
    """Window lengths that change at given optimizer steps, or at given numbers of items of all
    ranks.

    Args:
        schedule: the length of windows from each position on, the first of them 0.
        by: what a position counts: optimizer ``"step"``s, or ``"items"`` since training began.

    Examples:
        >>> schedule = AccumulationSchedule({0: 1, 1000: 4, 5000: 16})
        >>> [schedule(AccumulationWindow(step=1000, length=length)) for length in (1, 2, 3, 4)]
        [False, False, False, True]
    """

    schedule: Mapping[int, int]
    by: Literal["step", "items"] = "step"

    def __post_init__(self) -> None:
        check_choice("by", self.by, ("step", "items"))
        if 0 not in self.schedule:
            raise ValueError(
                "schedule must say the length from 0 on, as in {0: 1, 1000: 4}, got "
                f"{self.schedule!r}"
            )
        for start, length in self.schedule.items():
            check_count("a key of schedule", start, least=0)
            check_count("a length in schedule", length, least=1)

    def __call__(self, window: AccumulationWindow) -> bool:
        position = window.step if self.by == "step" else window.items_before
        latest = max(start for start in self.schedule if start <= position)
        window.wanted = self.schedule[latest]
        return window.length >= window.wanted


@dataclass(frozen=True)
class TokenBudget:
    """Windows that close with the batch that brings them to so many ``items`` on all ranks.

    It needs the callback's ``items=``, a function of the batch, which also weighs the batches.

    Examples:
        >>> budget = TokenBudget(4096)
        >>> [budget(AccumulationWindow(length=2, items=items)) for items in (4095.0, 4096.0)]
        [False, True]
    """

    items: int
    by = "items"

    def __post_init__(self) -> None:
        check_count("items", self.items, least=1)

    def __call__(self, window: AccumulationWindow) -> bool:
        return window.items >= self.items


def checked_policy(policy: Policy | None, options: dict[str, Any], items: Any) -> Policy:
    """Return the policy of `AdaptiveGradientAccumulation`, AS-Speed with its options by default."""
    given = {name: value for name, value in options.items() if value is not None}
    if policy is None:
        return MaskingPolicy(**given)
    if given or not callable(policy):
        raise TypeError(
            "policy must be a function of the open window, such as an AccumulationSchedule; "
            f"max_steps=4 stands alone, for AS-Speed: got {policy!r} and {given}"
        )
    if getattr(policy, "by", None) == "items" and not callable(items):
        raise ValueError(f"{type(policy).__name__} goes by items: give items=lambda batch: ...")
    return policy
