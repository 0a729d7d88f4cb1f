"""How many batches the next accumulation window should take, decided from the windows before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from as_lightning.functional.accumulation import accumulation_steps


@dataclass(kw_only=True)
class AccumulationPolicy:
    """The settings of :func:`~as_lightning.functional.accumulation_steps`, and the counts since the last decision.

    Args:
        max_steps: the largest number of batches in a window.
        scale: the formula's factor.
        monotone: never ask for fewer batches than before.
        warmup_windows: the number of windows before the first change.
        update_every: the number of windows between two decisions; a decision uses the counts of all of them.

    Attributes:
        steps: how many batches the next window should take.

    Raises:
        ValueError: if an argument lies outside its range.

    Example:
        >>> policy = AccumulationPolicy(max_steps=4, scale=1.0, monotone=True, warmup_windows=0, update_every=1)
        >>> policy.see(samples=32, masked_samples=24)
        >>> policy.steps
        2
    """

    max_steps: int
    scale: float
    monotone: bool
    warmup_windows: int
    update_every: int
    steps: int = field(default=1, init=False)
    _windows_seen: int = field(default=0, init=False)
    _undecided: tuple[int, int, int] = field(default=(0, 0, 0), init=False)  # windows, samples, masked samples

    def __post_init__(self) -> None:
        for name, least in (("max_steps", 1), ("warmup_windows", 0), ("update_every", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        if not (isinstance(self.scale, (int, float)) and 0 < self.scale < math.inf):
            raise ValueError(f"scale must be a positive number, got {self.scale!r}")

    def forget(self) -> None:
        """The state before training."""
        self.steps, self._windows_seen, self._undecided = 1, 0, (0, 0, 0)

    def see(self, samples: int, masked_samples: int) -> None:
        """Add the counts of a window, and decide if enough windows have been seen."""
        self._windows_seen += 1
        if self._windows_seen <= self.warmup_windows - self.update_every:
            return
        windows, samples_before, masked_before = self._undecided
        self._undecided = (windows + 1, samples_before + samples, masked_before + masked_samples)
        windows, samples, masked_samples = self._undecided
        if windows < self.update_every:
            return
        self._undecided = (0, 0, 0)
        self.steps = accumulation_steps(
            samples,
            masked_samples,
            scale=self.scale,
            max_steps=self.max_steps,
            previous=self.steps,
            monotone=self.monotone,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "windows_seen": self._windows_seen, "undecided": self._undecided}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state. If the run is resumed with a smaller ``max_steps``, that limit applies at once."""
        self.steps = min(state_dict["steps"], self.max_steps)
        self._windows_seen, self._undecided = state_dict["windows_seen"], tuple(state_dict["undecided"])
