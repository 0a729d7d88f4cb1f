"""Which samples sleep in an epoch: a state of three bytes per sample, and the rule that changes it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.counts import masking_ratio


class Outcome(IntEnum):
    """What an epoch found of a sample. Of several visits in one epoch the largest value counts."""

    NOT_VISITED = -1
    MASKED = 0
    LIVE = 1


class VisitCounts(NamedTuple):
    """What the visits of an epoch found.

    Attributes:
        visited: samples that were visited.
        masked: visited samples that were masked.
        revisited: visited samples that had been put to sleep since they were last found live.
        woken: revisited samples that were live.
    """

    visited: int
    masked: int
    revisited: int
    woken: int


class SleepPlan:
    """Decides after each epoch which samples the next one leaves out.

    A sample that a visit finds masked for the ``patience``-th time in a row sleeps 1 epoch. When its next visit finds
    it masked again, it sleeps 2 epochs, then 4, up to ``max_sleep``. A visit that finds it live ends this.

    Args:
        samples: the number of samples ``N``.
        max_sleep: the longest sleep in epochs, from 0 (nothing sleeps) to 255.
        patience: how many visits in a row find a sample masked before it sleeps for the first time, from 1 to 255.
        min_masked: nothing sleeps unless at least this share of the ``N`` samples was masked when last visited; 0
            switches this off.
        max_woken: when more than this share of an epoch's revisited samples were live, the longest sleep is halved (not
            below 1); 1 switches this off.
        class_floor: the share of each class that stays awake; 0 switches this off. The samples of a class that have the
            fewest epochs left to sleep stay awake first, of these the ones with the lowest numbers.
        classes: the class of each sample, integers from 0 of shape ``(N,)``; None where there is no floor.

    Attributes:
        longest_sleep: the longest sleep at present.

    Raises:
        ValueError: if an argument is out of range, or ``classes`` has another shape.
        TypeError: if a number of epochs or visits is no integer, or ``classes`` holds no integers.

    Example:
        >>> plan = SleepPlan(4, max_sleep=4, patience=1, min_masked=0.0, max_woken=1.0, class_floor=0.0)
        >>> plan.end_epoch(torch.tensor([Outcome.MASKED, Outcome.MASKED, Outcome.LIVE, Outcome.LIVE]))
        VisitCounts(visited=4, masked=2, revisited=0, woken=0)
        >>> plan.awake()
        tensor([False, False,  True,  True])
    """

    def __init__(
        self,
        samples: int,
        max_sleep: int,
        *,
        patience: int,
        min_masked: float,
        max_woken: float,
        class_floor: float,
        classes: Tensor | None = None,
    ) -> None:
        self.samples = samples
        self.max_sleep = check_epochs("max_sleep", max_sleep, lowest=0)
        self.patience = check_epochs("patience", patience, lowest=1)
        self.min_masked = check_share("min_masked", min_masked)
        self.max_woken = check_share("max_woken", max_woken)
        self.class_floor = check_share("class_floor", class_floor)
        if classes is not None and classes.is_floating_point():
            raise TypeError(f"classes must hold class indices, got {classes.dtype}")
        if classes is not None and classes.shape != (samples,):
            raise ValueError(f"classes must have shape {(samples,)}, one class per sample, got {tuple(classes.shape)}")
        if classes is not None and classes.dtype.itemsize < 4:  # narrower types neither index nor multiply
            classes = classes.int()
        self._classes = classes
        self.longest_sleep = self.max_sleep
        self._sleeping = False  # whether the next epoch leaves anything out
        self._masked_visits = torch.zeros(samples, dtype=torch.uint8)  # in a row, at most `patience`
        self._last_sleep = torch.zeros(samples, dtype=torch.uint8)  # epochs; 0: none since it was live
        self._asleep = torch.zeros(samples, dtype=torch.uint8)  # epochs left to sleep

    def awake(self) -> Tensor:
        """The plan of the next epoch: boolean, shape ``(N,)``, true for a sample that takes part."""
        if not self._sleeping:
            return torch.ones(self.samples, dtype=torch.bool)
        awake = self._asleep == 0
        if self._classes is not None and self.class_floor > 0:
            self._keep_floor(awake, self._classes)
        return awake

    def end_epoch(self, outcomes: Tensor, *, may_sleep: bool = True) -> VisitCounts:
        """Take in what an epoch found, and decide what the next one leaves out.

        Args:
            outcomes: an :class:`Outcome` for each sample, integers of shape ``(N,)``.
            may_sleep: whether the next epoch may leave out samples; with False it takes all.
        """
        visited, live = outcomes != Outcome.NOT_VISITED, outcomes == Outcome.LIVE
        revisited = visited & (self._last_sleep > 0)
        counts = VisitCounts(
            visited=count_true(visited),
            masked=count_true(visited) - count_true(live),
            revisited=count_true(revisited),
            woken=count_true(revisited.logical_and_(live)),
        )
        if masking_ratio(counts.woken, counts.revisited) > self.max_woken:
            self.longest_sleep = max(self.longest_sleep // 2, min(1, self.max_sleep))

        self._asleep -= (self._asleep > 0).byte()
        self._asleep.masked_fill_(visited, 0)
        self._masked_visits.masked_fill_(live, 0)
        self._last_sleep.masked_fill_(live, 0)
        masked = visited.logical_and_(live.logical_not_())
        self._masked_visits += (masked & (self._masked_visits < self.patience)).byte()

        masked_share = float(masking_ratio(count_true(self._masked_visits), self.samples))
        self._sleeping = may_sleep and self.longest_sleep > 0 and masked_share >= self.min_masked
        if self._sleeping:
            due = masked.logical_and_(self._masked_visits >= self.patience)
            self._last_sleep = torch.where(due, self._next_sleep(), self._last_sleep)
            self._asleep = torch.where(due, self._last_sleep, self._asleep)
        self._asleep.clamp_(max=self.longest_sleep)
        return counts

    def _next_sleep(self) -> Tensor:
        """Twice the last sleep, from 1 to the longest (in bytes: twice 128 would be 0)."""
        doubled = self._last_sleep.clamp(max=self.longest_sleep // 2).mul_(2).clamp_(min=1)
        return doubled.masked_fill_(self._last_sleep > self.longest_sleep // 2, self.longest_sleep)

    def _keep_floor(self, awake: Tensor, classes: Tensor) -> None:
        """Wake samples of the classes that miss their floor, block by block to bound the memory."""
        levels = self.longest_sleep + 1  # epochs left to sleep: 0 is awake
        blocks = list(zip(*(tensor.split(2**20) for tensor in (classes, self._asleep, awake)), strict=True))
        sizes = torch.zeros((int(classes.max()) + 1) * levels, dtype=torch.int64)
        for class_of, asleep, _ in blocks:
            sizes += torch.bincount(class_of * levels + asleep, minlength=len(sizes))
        sizes = sizes.view(-1, levels)  # of each class, at each level
        missing = (torch.ceil(self.class_floor * sizes.sum(1)).long() - sizes[:, 0]).clamp(min=0)
        if not missing.any():
            return
        up_to_level = sizes[:, 1:].cumsum(1)
        whole_levels = (up_to_level <= missing[:, None]).sum(1)  # levels that wake with all their samples
        missing -= torch.where(up_to_level <= missing[:, None], sizes[:, 1:], 0).sum(1)
        for class_of, asleep, awake_here in blocks:
            awake_here |= asleep <= whole_levels[class_of]
            next_level = ((asleep == whole_levels[class_of] + 1) & (missing[class_of] > 0)).nonzero().squeeze(-1)
            grouped, order = torch.sort(class_of[next_level], stable=True)  # in the order of the numbers
            rank = torch.arange(len(grouped)) - torch.searchsorted(grouped, grouped)
            chosen = rank < missing[grouped]
            awake_here[next_level[order[chosen]]] = True
            missing -= torch.bincount(grouped[chosen], minlength=len(missing))

    def state_dict(self) -> dict[str, Any]:
        """Three bytes per sample, the longest sleep, and whether samples sleep at all."""
        return {
            "masked_visits": self._masked_visits.clone(),
            "last_sleep": self._last_sleep.clone(),
            "asleep": self._asleep.clone(),
            "longest_sleep": self.longest_sleep,
            "sleeping": self._sleeping,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: if it is that of another number of samples.
        """
        if len(state_dict["asleep"]) != self.samples:
            raise ValueError(
                f"the saved plan is of {len(state_dict['asleep'])} samples, but the data set has {self.samples}: "
                "resume with the data set that the checkpoint was trained on"
            )
        self._masked_visits = state_dict["masked_visits"].clone()
        self._last_sleep = state_dict["last_sleep"].clone()
        self._asleep = state_dict["asleep"].clone()
        self.longest_sleep = state_dict["longest_sleep"]
        self._sleeping = state_dict["sleeping"]


def count_true(flags: Tensor) -> int:
    """How many elements are not 0. (``sum`` would widen them to eight bytes each.)"""
    return int(torch.count_nonzero(flags))


def check_epochs(name: str, number: int, *, lowest: int) -> int:
    """Return ``number`` where it is an integer from ``lowest`` to 255, or raise."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be an integer from {lowest} to 255, got {number!r}")
    if not lowest <= number <= 255:
        raise ValueError(f"{name} must be an integer from {lowest} to 255, got {number}")
    return number


def check_share(name: str, share: float) -> float:
    """Return ``share`` as a float where it is a number in [0, 1], or raise."""
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise TypeError(f"{name} must be a share in [0, 1], got {share!r}")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{name} must be a share in [0, 1], got {share}")
    return float(share)
