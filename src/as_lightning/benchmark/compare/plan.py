"""Which runs a comparison makes: trials to tune every method, then each tuned method at each budget and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from as_lightning.benchmark.report.old_verdicts import MARGIN_POINTS, MIN_PAIRS, check_seeds
from as_lightning.benchmark.report.table_cells import short

FIRST_TUNING_SEED = 1000
MAX_BUDGET = 2.0


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        phase: ``tuning`` reads no test data, ``final`` does.
        method: the method's name.
        settings: the values of what is tuned, e.g. ``{"lr": 0.001, "delta": 0.1}``.
        budget: the share of the full training.
        seed: of the run.
        trial: the number of the trial; 0 in the final runs.
    """

    phase: Literal["tuning", "final"]
    method: str
    settings: Mapping[str, Any] = field(hash=False)
    budget: float
    seed: int
    trial: int = 0

    @property
    def folder(self) -> str:
        """Where the run's files lie, below the comparison's folder."""
        if self.phase == "tuning":
            return f"tuning/{self.method}/trial={self.trial},seed={self.seed}"
        return f"runs/{self.method}/budget={self.budget:g},seed={self.seed}"

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={short(value)}" for name, value in self.settings.items())
        return f"{self.method}, {self.phase}, budget {self.budget:g}, seed {self.seed}" + (f", {chosen}" * bool(chosen))


def default_baseline(methods: Sequence[str]) -> str:
    """What the methods are compared with: for methods of several labels alone, softmax over one label and the others.

    >>> default_baseline(["multilabel_as_softmax", "bce"]), default_baseline(["as_softmax", "bce"])
    ('multilabel_softmax', 'softmax')
    """
    return "multilabel_softmax" if all(name.startswith(("multilabel_", "bce")) for name in methods) else "softmax"


@dataclass(frozen=True)
class ComparisonPlan:
    """What is compared, and how thoroughly.

    Args:
        methods: their names; the baseline is put first, and added where it is missing.
        baseline: what the others are compared with.
        budgets: shares of the full training, in (0, 2]; the largest is the full budget of the comparison.
        trials: settings that are tried for each method, at least 1; the first are the defaults.
        seeds: of the final runs: how many (0, 1, ...), or which.
        tuning_seeds: of each trial: how many (1000, 1001, ...), or which; none of them may be in ``seeds``.
        margin: in points (hundredths of the score), what counts as equal.

    Raises:
        ValueError: if one of these is not as said.

    >>> ComparisonPlan(["as_softmax"], trials=1, seeds=3).methods
    ('softmax', 'as_softmax')
    """

    methods: Sequence[str]
    baseline: str = "softmax"
    budgets: Sequence[float] = (0.25, 0.5, 1.0)
    trials: int = 6
    seeds: int | Sequence[int] = 5
    tuning_seeds: int | Sequence[int] = 2
    margin: float = MARGIN_POINTS

    def __post_init__(self) -> None:
        if isinstance(self.methods, str) or not self.methods:
            raise ValueError(f"methods must be a list of at least one name, got {self.methods!r}")
        set_ = object.__setattr__
        set_(self, "methods", tuple(dict.fromkeys([self.baseline, *self.methods])))
        if isinstance(self.budgets, str) or not isinstance(self.budgets, (int, float, Sequence)):
            raise ValueError(f"budgets must be a share of the training or a list of shares, got {self.budgets!r}")
        budgets = [self.budgets] if isinstance(self.budgets, (int, float)) else list(self.budgets)
        for budget in budgets:
            number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
            if not number or not 0 < budget <= MAX_BUDGET:
                raise ValueError(f"a budget is a share of the training, in (0, {MAX_BUDGET:g}], got {budget!r}")
        if not budgets:
            raise ValueError("budgets must hold at least one share of the training, e.g. 1")
        set_(self, "budgets", tuple(sorted({float(budget) for budget in budgets})))
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise ValueError(f"trials must be a whole number of at least 1, got {self.trials!r}")
        set_(self, "seeds", _seeds(self.seeds, "seeds", first=0))
        set_(self, "tuning_seeds", _seeds(self.tuning_seeds, "tuning_seeds", first=FIRST_TUNING_SEED))
        shared = set(self._seed_list) & set(self._tuning_seed_list)
        if shared:
            raise ValueError(
                f"seeds {sorted(shared)} are in seeds and in tuning_seeds: settings must be chosen by other runs than "
                "those that judge them"
            )
        number = isinstance(self.margin, (int, float)) and not isinstance(self.margin, bool)
        if not (number and math.isfinite(self.margin) and self.margin > 0):
            raise ValueError(f"margin must be a positive number of points, got {self.margin!r}")

    @property
    def _seed_list(self) -> tuple[int, ...]:
        assert isinstance(self.seeds, tuple)
        return self.seeds

    @property
    def _tuning_seed_list(self) -> tuple[int, ...]:
        assert isinstance(self.tuning_seeds, tuple)
        return self.tuning_seeds

    @property
    def too_few_seeds(self) -> str | None:
        """What a comparison of so few seeds cannot give; None where there are enough."""
        if len(self._seed_list) >= MIN_PAIRS:
            return None
        seeds = f"{len(self._seed_list)} seed{'s' if len(self._seed_list) > 1 else ''}"
        return (
            f"{seeds}: at least {MIN_PAIRS} are needed for verdicts and advice, so this comparison ends without them."
        )

    @property
    def full_budget(self) -> float:
        """The largest budget: methods are tuned at it, and the baseline's runs at it are the reference."""
        return self.budgets[-1]

    def tuning_runs(self, trials: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Run]:
        """The runs that choose the settings, methods taking turns.

        Args:
            trials: the settings to try, per method. A method with only one is not tuned: nothing is to be chosen.
        """
        return [
            Run("tuning", method, trials[method][trial], self.full_budget, seed, trial)
            for trial in range(max((len(tried) for tried in trials.values()), default=0))
            for seed in self._tuning_seed_list
            for method in self.methods
            if method in trials and trial < len(trials[method]) > 1
        ]

    def final_runs(self, settings: Mapping[str, Mapping[str, Any]]) -> list[Run]:
        """The runs that are judged, seeds taking turns: a comparison that is stopped has whole seeds."""
        return [
            Run("final", method, settings[method], budget, seed)
            for seed in self._seed_list
            for budget in reversed(self.budgets)
            for method in self.methods
            if method in settings
        ]


def _seeds(seeds: int | Sequence[int], name: str, first: int) -> tuple[int, ...]:
    if isinstance(seeds, bool) or not isinstance(seeds, (int, Sequence)) or isinstance(seeds, str):
        raise ValueError(f"{name} must be a number of seeds or a list of them, got {seeds!r}")
    if isinstance(seeds, int):
        if seeds < 1:
            raise ValueError(f"{name} must be at least 1, got {seeds}")
        return tuple(range(first, first + seeds))
    if not seeds:
        raise ValueError(f"{name} must be at least one seed, got none")
    return tuple(check_seeds(seeds))
