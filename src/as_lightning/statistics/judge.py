"""Verdicts on the scores of a table: each candidate against a baseline, or against a target."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd
from scipy import special

from as_lightning.statistics.example_spread import ExampleSpread
from as_lightning.statistics.pairing import are_paired, differences
from as_lightning.statistics.runs import Columns, Runs, Unnamed, runs_of
from as_lightning.statistics.score_names import known_direction, known_unit
from as_lightning.statistics.verdicts import (
    KNOWN,
    MIN_PAIRS,
    UNKNOWN,
    Design,
    Spreads,
    Verdict,
    detectable_difference,
    limit_levels,
)
from as_lightning.statistics.verdicts import verdicts as verdicts_on

MOST_SEEDS = 50  # more of them are not suggested
ACTIONS = ("keep", "more_seeds", "rerun", "inspect", "discard")
# the columns of a table of verdicts
OF_VERDICT = ["dataset", "candidate", "difference", "low", "high", "word", "reason"]
OF_RUNS = ["pairs", "runs", "mean", "std", "missing", "next_seeds", "action"]


@dataclass(frozen=True)
class Question(Columns):
    baseline: str = ""
    higher_is_better: bool | None = None  # None: as the score's name says
    unit: str = ""  # "points" or "raw"; empty: points of a share, else raw
    equal_within: float | None = None
    target: float | None = None  # in place of a baseline
    tried: int = 0  # candidates that were tried before and are not in the table
    only: Sequence[str] = ()  # the candidates to judge; the others count as tried
    test_examples: int = 0  # shared by all runs: intervals are for new ones; 0: not known


@dataclass(frozen=True)
class Judged(Verdict):
    """A candidate's verdict and its scores, in the unit of the answer."""

    runs: int = 0
    mean: float = math.nan
    std: float = math.nan
    baseline_mean: float = math.nan  # of the runs that it is compared with
    missing: int = 0  # of its runs
    pairs: int = 0  # 0: compared as independent samples
    next_seeds: int = 0  # that would decide ``next_difference``
    next_difference: float = math.nan

    @property
    def action(self) -> str:
        """What to do with the candidate, one of `ACTIONS`."""
        if self.next_seeds:
            return "more_seeds"
        if not self.judged:
            return "inspect"
        if self.word != "better":
            return "discard"
        return "rerun" if self.missing else "keep"


@dataclass(frozen=True)
class Reading:
    """How the scores of a table are read."""

    score: str
    higher_is_better: bool
    unit: str
    factor: float = 1.0  # 100 for shares that are read as points
    equal_within: float = 0.0  # 0: nothing is called equal


@dataclass
class Answer:
    """The verdicts of one table, or of one of its data sets."""

    reading: Reading
    baseline: Judged
    candidates: list[Judged]
    title: str = ""  # the data set
    notes: list[str] = field(default_factory=list)  # on what was read


def answers_of(runs: Runs, question: Question) -> list[Answer]:
    """Return the answer of each data set; with one score on each these are the replicates."""
    table, question = _asked(runs.table, question)
    reading = _reading(table, runs.score, question)
    table = table.assign(score=reading.factor * table["score"])
    several = table["dataset"].nunique() > 1
    if several and not table.duplicated(["dataset", "candidate"]).any():
        table = table.assign(seed=table["dataset"], dataset="")
        question = replace(question, test_examples=0)
    found = []
    for name, of_one in table.groupby("dataset", sort=False):
        if set(of_one["candidate"]) == {question.baseline}:
            runs.notes.append(f"{name} has no run of a candidate.")
            continue
        found.append(_judged(reading, of_one, question, str(name)))
    if not found:
        raise ValueError("there is no run of a candidate beside the baseline")
    found[0].notes = [*runs.notes]
    if question.test_examples:
        found[0].notes.append(
            f"Intervals: for new data like these {question.test_examples} test examples, as if "
            "candidates erred independently (stored predictions would narrow them)."
        )
    return found


def verdicts(
    frame: pd.DataFrame,
    *,
    baseline: str = "",
    candidate: str | Sequence[str] = (),
    seed: str | Sequence[str] = (),
    score: str = "",
    dataset: str = "",
    aside: str | Sequence[str] = (),
    wide: bool = False,
    higher_is_better: bool | None = None,
    unit: Literal["points", "raw", ""] = "",
    equal_within: float | None = None,
    target: float | None = None,
    tried: int = 0,
    test_examples: int = 0,
) -> pd.DataFrame:
    """Judge results that you already have: each candidate against the baseline.

    Runs that share a seed are paired, if the pairs are most of the runs; others are independent
    samples (Welch's t-test, its degrees of freedom rounded down).

    Args:
        frame: a row for each run; with ``wide`` a column for each candidate.
        baseline: the candidate to compare with.
        candidate: the column, or columns, that name a candidate; by default ``candidate``.
        seed: the column, or columns, of the seed; without one nothing is paired.
        score: the column of the score; by default ``score``, or the one whose name is known.
        dataset: the column of the data set.
        aside: columns that may differ between the runs of one candidate.
        wide: whether each candidate has a column of scores.
        higher_is_better: needed unless the score's name is known, such as ``accuracy`` or ``loss``.
        unit: ``"points"`` reads scores in [0, 1] as percents, ``"raw"`` all as they are; by default
            points for an accuracy and the like, else raw.
        equal_within: the difference that counts as none, by default 0.5 points and no raw one.
        target: a constant to compare with, in place of a baseline.
        tried: the number of candidates tried before, outside the table; they share the error.
        test_examples: the number of test examples that all runs share, for verdicts that hold for
            new ones; the candidates count as erring independently.

    Returns:
        A row for each candidate: ``dataset``, ``candidate``, ``difference`` with ``low`` and
        ``high`` (positive is better), ``word``, ``reason`` (why there is no word), ``pairs`` (0:
        independent samples), ``runs``, ``mean``, ``std``, ``missing`` runs, ``next_seeds`` and
        ``action``.

    Raises:
        ValueError: for what cannot be read, or would mislead.

    Examples:
        >>> scores = {"seed": [0, 1, 2], "sgd": [90.1, 90.4, 89.9], "adamw": [93.2, 93.3, 93.1]}
        >>> found = verdicts(pd.DataFrame(scores), baseline="sgd", wide=True, score="accuracy")
        >>> found[["candidate", "word", "pairs", "action"]].values.tolist()
        [['adamw', 'better', 3, 'keep']]
    """
    columns = _names(candidate), _names(seed), score, dataset, _names(aside), wide
    asked = baseline, higher_is_better, unit, equal_within, target, tried
    question = Question(*columns, *asked, test_examples=test_examples)
    return verdict_table(answers_of(runs_of(frame, question), question))


def _names(columns: str | Sequence[str]) -> Sequence[str]:
    if isinstance(columns, str):
        return [columns] * bool(columns)
    return columns


def verdict_table(answers: Sequence[Answer]) -> pd.DataFrame:
    rows = []
    for answer in answers:
        for row in answer.candidates:
            about = {"dataset": answer.title, "candidate": row.arm, "action": row.action}
            rows.append(about | vars(row))
    return pd.DataFrame(rows)[OF_VERDICT + OF_RUNS]


def _asked(table: pd.DataFrame, question: Question) -> tuple[pd.DataFrame, Question]:
    names = list(table["candidate"].unique())
    there = f"the candidates are: {', '.join(names)}"
    if (joined := ", ".join(question.only)) in names:  # a name of several columns, as a, lr=0.1
        question = replace(question, only=[joined])
    for name in filter(None, [question.baseline, *question.only]):
        if name not in names:
            raise ValueError(f"no run is of the candidate {name!r}; {there}")
    if question.target is not None:
        if question.baseline:
            raise ValueError("target is in place of a baseline: give one of them")
        baseline = f"target {question.target:g}"
        constant = table.drop_duplicates(["dataset", "seed"])
        constant = constant.assign(candidate=baseline, score=question.target)
        table = pd.concat([constant, table], ignore_index=True)
        question = replace(question, baseline=baseline)
    elif len(names) == 1:
        raise ValueError(f"all runs are of {names[0]}: add those of another, or give a --target")
    elif not question.baseline:
        asked = f"name the baseline, or a --target, for another candidate; {there}"
        raise Unnamed(asked, "--baseline", names[0])
    if question.only:
        table = table[table["candidate"].isin([question.baseline, *question.only])]
        others = set(names) - {question.baseline, *question.only}
        question = replace(question, tried=question.tried + len(others))
    return table, question


def _reading(table: pd.DataFrame, score: str, question: Question) -> Reading:
    higher = question.higher_is_better
    if higher is None:
        known = known_direction(score)
        if known is None:
            raise Unnamed(
                f"say whether more or less of {score} is better, --higher-is-better or "
                "--lower-is-better",
                "--higher-is-better",
            )
        higher = known == "max"
    unit, within = question.unit or known_unit(score), question.equal_within
    if unit not in ("points", "raw"):
        raise ValueError(f"unit must be points or raw, got {unit!r}")
    if question.test_examples < 0 or (question.test_examples and unit == "raw"):
        raise ValueError(
            "test_examples must be the number of examples of which a score in points is a "
            f"share, got {question.test_examples} examples and {score}"
        )
    if unit == "raw":
        return Reading(score, higher, unit, equal_within=within or 0.0)
    within = 0.5 if within is None else within
    highest = table.groupby("candidate")["score"].max()
    if not question.unit and highest.min() <= 1 < highest.max():
        raise ValueError(
            f"the scores of {highest.idxmin()} look like shares, those of {highest.idxmax()} like "
            "percents: write all alike, or say --unit points or --unit raw"
        )
    factor = 100.0 if table["score"].dropna().between(0, 1).all() else 1.0
    return Reading(score, higher, unit, factor, within)


def _judged(reading: Reading, table: pd.DataFrame, question: Question, title: str) -> Answer:
    baseline = question.baseline
    runs = {baseline: pd.Series(dtype=float)}
    for name, of_one in table.groupby("candidate", sort=False):
        runs[str(name)] = of_one.set_index("seed")["score"]
    base = runs[baseline].dropna()
    sign = 1.0 if reading.higher_is_better else -1.0
    found = {}
    for name, own in runs.items():
        found[name] = pd.Series(differences(own.dropna(), base), dtype=float)
    scores = sign * (base.mean() + pd.DataFrame(found))
    scores[baseline] = sign * base.mean()
    # without a zone of equality no interval lies in it
    within = reading.equal_within or sys.float_info.min
    design = Design(equal_within=within, looks=(max(len(scores), 1),))
    level = float(limit_levels(design, len(runs) - 1 + question.tried)[0, 0])
    spreads = _example_spreads(runs, question)
    tried = question.tried
    rows = [_row(Verdict(baseline, baseline, len(base), 1, 0.0), base, runs[baseline])]
    for verdict in verdicts_on(
        scores.to_dict(), reference=baseline, design=design, spreads=spreads, tried=tried
    ):
        own, other = runs[verdict.arm], runs[baseline]
        if question.target is not None:
            other = other[own.index]  # a constant has no runs that others lack
        row = _row(verdict, own, other)
        error = spreads.get((row.arm, baseline), UNKNOWN).error
        rows.append(_with_next_seeds(row, level, reading.equal_within, error))
    return Answer(reading, rows[0], rows[1:], title)


def _row(verdict: Verdict, own: pd.Series, base: pd.Series) -> Judged:
    """A candidate with its numbers: means are of the runs that the difference is of."""
    finished, base_finished = own.dropna(), base.dropna()
    shared = finished.index.intersection(base_finished.index)
    missing, pairs = len(own) - len(finished), 0
    if len(shared):  # a seed that only the baseline has is a run that was lost
        missing = len(base.index.union(own.index)) - len(finished)
    usable = min(len(finished), len(base_finished))
    if are_paired(finished, base_finished):
        own, base = own[shared], base[shared]
        usable = pairs = len(shared)
    return Judged(
        **vars(verdict),
        runs=len(finished),
        mean=float(own.mean()),
        std=float(own.std()),
        baseline_mean=float(base.mean()),
        missing=missing,
        pairs=pairs,
        next_seeds=max(MIN_PAIRS - usable, 0),
    )


def _example_spreads(runs: Mapping[str, pd.Series], question: Question) -> Spreads:
    """The errors that the choice of the test examples makes, if candidates err independently."""
    spreads: dict[tuple[str, str], ExampleSpread] = {}
    if not question.test_examples:
        return spreads
    variances = {name: of.mean() * (100 - of.mean()) for name, of in runs.items()}
    if question.target is not None:
        variances[question.baseline] = 0.0
    for name, variance in variances.items():
        both = (variance + variances[question.baseline]) / question.test_examples
        spreads[name, question.baseline] = ExampleSpread(error=math.sqrt(both))
    return spreads


def _with_next_seeds(row: Judged, level: float, within: float, of_examples: float) -> Judged:
    """The row with the seeds that would decide a difference as large as the one that was found."""
    if row.reason or row.word not in ("undecided", "not worse"):
        return row
    low = row.same_low if of_examples else row.low
    error = (row.difference - low) / float(special.stdtrit(row.seeds - 1, 1 - level))
    floor = detectable_difference(of_examples, KNOWN, level)
    difference = max(abs(row.difference), within)
    seeds = row.seeds + np.arange(1, MOST_SEEDS + 1)
    of_seeds = detectable_difference(error * np.sqrt(row.seeds / seeds), seeds - 1, level)
    enough = np.hypot(of_seeds, floor) <= difference
    more = int(enough.argmax() + 1) * bool(enough.any())
    return replace(row, next_seeds=more, next_difference=difference)
