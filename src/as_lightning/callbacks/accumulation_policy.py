"""How many batches the next accumulation window should take: functions of the closed window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from as_lightning.functional.accumulation import accumulation_steps
from as_lightning.functional.argument_checks import check_choice, check_count, check_number


class AccumulationWindow(NamedTuple):
    """One optimizer step: the batches that led to it and what was counted in them, summed over the
    ranks.
    """

    epoch: int  # 0-based
    batch: int  # 0-based index in the epoch of the window's first batch
    length: int  # how many batches were accumulated
    masked_samples: int  # whose competitors were all masked; 0 if the module counts no masking
    # in the loss; without a masking counter the batches' sizes, or 0 where no policy reads them
    samples: int
    items: float = 0  # in the batches; without items= the samples
    step: int = 0  # optimizer steps taken by its end
    wanted: int = 1  # the length that the policy wanted for it
    samples_seen: int = 0  # since training began, by its end
    items_seen: float = 0


Policy = Callable[[AccumulationWindow], int]


@dataclass(kw_only=True, frozen=True)
class MaskingPolicy:
    """More batches as more samples are masked (AS-Speed); the arguments and the formula are
    `accumulation_steps`'s.

    Examples:
        >>> policy = MaskingPolicy(max_steps=4)
        >>> policy(AccumulationWindow(epoch=0, batch=0, length=1, masked_samples=24, samples=32, wanted=1))
        2
    """

    max_steps: int = 4
    scale: float = 1.0
    monotone: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_steps", check_count("max_steps", self.max_steps, least=1))
        check_number("scale", self.scale, lambda scale: scale > 0, "a positive number")

    def __call__(self, window: AccumulationWindow) -> int:
        return accumulation_steps(
            window.samples, window.masked_samples, previous=window.wanted, **vars(self)
        )


@dataclass(eq=False)
class AccumulationSchedule:
    """Window lengths that change at given optimizer steps, or at given numbers of samples or items
    of all ranks.

    Args:
        schedule: the length of windows from each position on, the first of them 0.
        by: what a position counts: optimizer ``"step"``s, ``"samples"`` or ``"items"`` since
            training began.

    Examples:
        >>> schedule = AccumulationSchedule({0: 1, 1000: 4, 5000: 16})
        >>> schedule(AccumulationWindow(epoch=0, batch=999, length=1, masked_samples=0, samples=32, step=1000))
        4
    """

    schedule: Mapping[int, int]
    by: Literal["step", "samples", "items"] = "step"

    def __post_init__(self) -> None:
        check_choice("by", self.by, ("step", "samples", "items"))
        if 0 not in self.schedule:
            raise ValueError(
                f"schedule must say the length from 0 on, as in {{0: 1, 1000: 4}}, got "
                f"{self.schedule!r}"
            )
        checked = {
            check_count("a key of schedule", start, least=0): check_count(
                "a length in schedule", length, least=1
            )
            for start, length in self.schedule.items()
        }
        self.schedule = dict(sorted(checked.items()))

    def __call__(self, window: AccumulationWindow) -> int:
        position = {
            "step": window.step,
            "samples": window.samples_seen,
            "items": window.items_seen,
        }[self.by]
        return next(
            length for start, length in reversed([*self.schedule.items()]) if start <= position
        )


@dataclass(frozen=True)
class TokenBudget:
    """Windows of about ``items`` items on all ranks, given the items per batch of the latest
    window.

    It needs the callback's ``items=``, which also weighs the batches, so that each step is exact
    whatever its window holds. The first window takes one batch.

    Examples:
        >>> budget = TokenBudget(4096)
        >>> budget(AccumulationWindow(epoch=0, batch=0, length=2, masked_samples=0, samples=64, items=1000))
        8
    """

    items: int
    by = "items"

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", check_count("items", self.items, least=1))

    def __call__(self, window: AccumulationWindow) -> int:
        return (
            max(1, round(self.items * window.length / window.items))
            if window.items
            else window.wanted
        )
