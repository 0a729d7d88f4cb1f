"""The runs of a table: what a user names is read, and what makes rows no replicates is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from as_lightning.statistics.score_names import known_direction
from as_lightning.statistics.score_table import numbers, texts

CANDIDATE = ("candidate", "method")
FOLDS = ("fold", "split", "repeat")  # parts of one set of examples, no independent runs
STATUS = ("status", "state")
FINISHED = ("finished", "completed", "complete", "success", "done", "ok", "keep", "discard")
# what may differ between runs of one candidate without making two of it
ASIDE = ("seconds", "train_seconds", "time", "runtime", "duration", "memory_gb", "description")
MEASURED = ("metrics.", "summary.", "_")  # as MLflow and W&B begin the names of what they measure
OF_COMPARISONS = {"candidate", "phase", "trial"}  # columns of a comparison's ``runs.csv``
KEYS = ["dataset", "candidate", "seed"]


class Unnamed(ValueError):
    """What a user must name; ``hint`` has the words of the command that are missing."""

    def __init__(self, sentence: str, *hint: str):
        super().__init__(sentence)
        self.hint = hint


@dataclass(frozen=True)
class Columns:
    """The columns that a user has named."""

    candidate: Sequence[str] = ()  # several name a candidate together
    seed: Sequence[str] = ()
    score: str = ""
    dataset: str = ""
    aside: Sequence[str] = ()  # that make no two candidates of one
    wide: bool = False  # whether each column but seed, data set and those aside is a candidate


@dataclass
class Runs:
    """The runs of a table: ``dataset``, ``candidate``, ``seed`` and ``score``, NaN without one."""

    table: pd.DataFrame
    score: str
    notes: list[str] = field(default_factory=list)


def runs_of(frame: pd.DataFrame, columns: Columns) -> Runs:
    """Return the runs of a table; rows of one candidate and seed are averaged.

    A ValueError refuses rows that are no replicates; `Unnamed` asks for columns.
    """
    frame = _plain(frame, columns)
    notes: list[str] = []
    seeds = list(columns.seed) or _called(frame, ["seed"])
    datasets = [columns.dataset] if columns.dataset else _called(frame, ["dataset"])[:1]
    if columns.wide:
        candidates, score = ["candidate"], columns.score or "score"
        names = frame.columns.difference([*seeds, *datasets], sort=False)
        frame[names] = frame[names].apply(numbers, args=(notes,))
        frame = frame.melt([*seeds, *datasets], names, "candidate", score)
    else:
        candidates, score = _candidates_and_score(frame, columns)
    if frame.empty:
        raise ValueError("the table has no row, or no column, of scores")
    runs = pd.DataFrame({"dataset": "", "seed": range(len(frame))}, frame.index)
    for role, named in (("candidate", candidates), ("dataset", datasets), ("seed", seeds)):
        if named:
            runs[role] = _joined(frame, named, role)
    runs["score"] = numbers(frame[score], notes)
    _leave_out_unfinished(frame, runs, notes)
    others = frame.drop(columns=[*seeds, *datasets, *candidates, score])
    _refuse_settings(others, runs, candidates)
    known = list(filter(known_direction, others))
    if known:
        notes.append(f"Left aside: {', '.join(known)}.")
    averaged = runs.groupby(KEYS, sort=False)["score"].agg(lambda of_run: of_run.mean(skipna=False))
    if len(averaged) < len(runs):
        rows = f"{len(runs)} rows to {len(averaged)} runs"
        notes.append(f"Rows that share candidate and seed were averaged, {rows}.")
    return Runs(averaged.reset_index(), score, notes)


def _plain(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The table without the columns aside, their names as text; rows are counted from 1."""
    if any(frame.index.names):
        frame = frame.reset_index()
    frame = frame.set_axis(range(1, len(frame) + 1)).rename(columns=str)
    frame.set_flags(allows_duplicate_labels=False)  # a ValueError names a column that comes twice
    asked = [*columns.candidate, *columns.seed, columns.dataset, *columns.aside]
    if not columns.wide:
        asked.append(columns.score)
    for name in filter(None, asked):
        if name not in frame:
            raise ValueError(f"there is no column {name!r}; the columns are: {', '.join(frame)}")
    if set(frame) >= OF_COMPARISONS:
        raise ValueError(
            "these are runs of a comparison, which adds seeds until it knows enough: give its "
            "folder, in the place of a table"
        )
    frame = frame.drop(columns=list(columns.aside))
    for name in [*_called(frame, FOLDS), *(name for name in columns.seed if name == "epoch")]:
        raise ValueError(
            f"{name} is no seed: folds, splits of the same examples and epochs of a run share most "
            "of what they train on, so that no interval is right. Train each candidate with "
            f"several seeds on one split; if the column is none of this, --aside {name}"
        )
    return frame


def _called(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    return [name for name in frame if name.lower() in names]


def _candidates_and_score(frame: pd.DataFrame, columns: Columns) -> tuple[list[str], str]:
    there = f"the columns are: {', '.join(frame)}"
    candidates = list(columns.candidate) or [name for name in CANDIDATE if name in frame][:1]
    if not candidates:
        raise Unnamed(
            "name the column of the candidates, or --wide if each has a column; where it is a part "
            f"of a run's name, add a column, as by frame['Name'].str.extract('(.+)-seed'); {there}",
            *("--candidate", "COLUMN"),
        )
    known = [columns.score] if columns.score else [name for name in frame if name == "score"]
    known = known or list(filter(known_direction, frame))
    if len(known) != 1:
        raise Unnamed(f"name the column of the score; {there}", "--score", "COLUMN")
    return candidates, known[0]


def _joined(frame: pd.DataFrame, names: Sequence[str], role: str) -> pd.Series:
    """The text of a role's columns, as in ``adamw, lr=0.1``."""
    parts: list[pd.Series] = []
    for name in names:
        text = texts(frame[name])
        wrong, number = text.eq(""), pd.to_numeric(text, "coerce")
        if role == "seed" and number.notna().any():
            wrong = number.isna()  # a row of means has another seed than the runs
        if wrong.any():
            row = wrong.idxmax()
            raise ValueError(f"row {row}: {text[row]!r} in the column {name} is no {role}")
        parts.append(text if not parts else f", {name}=" + text)
    return parts[0].str.cat(parts[1:])


def _leave_out_unfinished(frame: pd.DataFrame, runs: pd.DataFrame, notes: list[str]) -> None:
    """Take the score from runs whose status does not say that they have finished."""
    for name in _called(frame, STATUS):
        finished = texts(frame[name]).str.lower().isin(FINISHED)
        runs["score"] = runs["score"].where(finished)
        if not finished.all():
            words = ", ".join(FINISHED)
            notes.append(f"Runs whose {name} is none of {words} count as missing.")
    lost = runs[runs["score"].isna()]
    if len(lost):
        which = f"row {lost.index[0]} (of {lost['candidate'].iloc[0]})"
        score = "If a run diverged, give it the score that it deserves, such as chance."
        notes.append(f"{len(lost)} runs have no score, as {which}. {score}")


def _refuse_settings(others: pd.DataFrame, runs: pd.DataFrame, candidates: Sequence[str]) -> None:
    """Refuse other columns that differ within a candidate and may be settings of it."""
    varying = []
    for name in others.columns.difference(_called(others, [*ASIDE, *STATUS]), sort=False):
        written = texts(others[name])
        words = pd.to_numeric(written, "coerce").isna().all()
        of_run = written.is_unique if words else known_direction(name)  # a name or time; a score
        if of_run or name.startswith(MEASURED):
            continue
        values = written.groupby([runs["dataset"], runs["candidate"]]).nunique()
        if values.max() > 1:
            varying.append((name, values.idxmax()[1]))
    if varying:
        name, candidate = varying[0]
        every = ",".join(of for of, _ in varying)
        named = ",".join([*candidates, name])
        raise Unnamed(
            f"{(runs['candidate'] == candidate).sum()} runs of {candidate} differ in {every}: name "
            f"what makes a candidate, as in --candidate {named}, or a seed, as in --seed {name}; "
            f"of what makes neither, say --aside {every}",
            *("--candidate", named),
        )
