"""How many batches the next accumulation window should take: the policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from as_lightning.functional.accumulation import accumulation_steps
from as_lightning.functional.argument_checks import check_choice, check_count, check_number


class AccumulationWindow(NamedTuple):
    """One optimizer step: the batches that led to it and what was counted in them, summed over the ranks."""

    epoch: int  # 0-based
    batch: int  # 0-based index in the epoch of the window's first batch
    length: int  # how many batches were accumulated
    masked_samples: int  # whose competitors were all masked; 0 if the module counts no masking
    samples: int  # in the loss; without a masking counter the batches' sizes, or 0 with a schedule by steps
    items: float = 0  # what the batches weigh, where the callback counts it; otherwise the samples
    step: int = 0  # optimizer steps taken by its end


@runtime_checkable
class Policy(Protocol):
    """Decides how many batches the next window takes. Its state goes into checkpoints, so it must be plain data."""

    def next_length(self, window: AccumulationWindow) -> int:
        """The wanted length after ``window``; before the first window, after an empty one (``length=0``)."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@dataclass
class FunctionPolicy:
    """A user's function of the closed window; it has no state."""

    next_length: Callable[[AccumulationWindow], int]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@dataclass(kw_only=True)
class MaskingPolicy:
    """More batches as more samples are masked (AS-Speed): the number wanted is ``steps``.

    ``max_steps``, ``scale`` and ``monotone`` are those of `accumulation_steps`, which has the formula.

    Args:
        warmup_windows: the number of windows before the first change.
        update_every: the number of windows between two decisions; a decision uses the counts of all of them.

    Examples:
        >>> policy = MaskingPolicy(max_steps=4)
        >>> policy.next_length(AccumulationWindow(epoch=0, batch=0, length=1, masked_samples=24, samples=32))
        2
    """

    max_steps: int = 4
    scale: float = 1.0
    monotone: bool = True
    warmup_windows: int = 0
    update_every: int = 1
    steps: int = field(default=1, init=False)
    _windows_seen: int = field(default=0, init=False)
    _undecided: tuple[int, int, int] = field(default=(0, 0, 0), init=False)  # windows, samples, masked samples

    def __post_init__(self) -> None:
        for name, least in (("max_steps", 1), ("warmup_windows", 0), ("update_every", 1)):
            setattr(self, name, check_count(name, getattr(self, name), least=least))
        check_number("scale", self.scale, lambda scale: scale > 0, "a positive number")

    def next_length(self, window: AccumulationWindow) -> int:
        if window.length == 0:
            return self.steps
        self._windows_seen += 1
        if self._windows_seen <= self.warmup_windows - self.update_every:
            return self.steps
        windows, samples, masked = self._undecided
        windows, samples, masked = windows + 1, samples + window.samples, masked + window.masked_samples
        self._undecided = (windows, samples, masked)
        if windows == self.update_every:
            self._undecided = (0, 0, 0)
            limits: Any = {"scale": self.scale, "max_steps": self.max_steps, "monotone": self.monotone}
            self.steps = accumulation_steps(samples, masked, previous=self.steps, **limits)
        return self.steps

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "windows_seen": self._windows_seen, "undecided": self._undecided}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state. If the run is resumed with a smaller ``max_steps``, that limit applies at once."""
        self.steps = min(state_dict["steps"], self.max_steps)
        self._windows_seen, self._undecided = state_dict["windows_seen"], tuple(state_dict["undecided"])


class StepSchedule:
    """So many batches from a given optimizer step, or (``by="samples"``) from a number of samples of all ranks, on.

    Examples:
        >>> schedule = StepSchedule({0: 1, 1000: 4, 5000: 16})
        >>> window = AccumulationWindow(epoch=0, batch=999, length=1, masked_samples=0, samples=32, step=1000)
        >>> schedule.next_length(window)
        4
    """

    def __init__(self, schedule: Mapping[int, int], by: Literal["step", "samples"] = "step") -> None:
        check_choice("by", by, ("step", "samples"))
        if 0 not in schedule:
            raise ValueError(f"schedule must say the length from 0 on, as in {{0: 1, 1000: 4}}, got {schedule!r}")
        checked = {
            check_count("a key of schedule", start, least=0): check_count("a length in schedule", length, least=1)
            for start, length in schedule.items()
        }
        self.schedule, self.by, self._samples = dict(sorted(checked.items())), by, 0

    def next_length(self, window: AccumulationWindow) -> int:
        self._samples += window.samples
        position = window.step if self.by == "step" else self._samples
        return next(length for start, length in reversed(self.schedule.items()) if start <= position)

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self._samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._samples = state_dict["samples"]
