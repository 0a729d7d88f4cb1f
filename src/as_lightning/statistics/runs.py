"""The runs of a table: what a user names is read, and what makes rows no replicates is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from as_lightning.statistics.score_names import known_direction
from as_lightning.statistics.score_table import numbers, texts

CANDIDATE = ("candidate", "method")
FOLDS = ("fold", "split", "repeat")  # parts of one set of examples, no independent runs
STATUS = ("status", "state")
FINISHED = ("finished", "completed", "complete", "success", "done", "ok", "keep", "discard")
UNFINISHED = ("crash", "crashed", "failed", "error", "killed", "oom", "running", "preempted")
# what may differ between runs of one candidate without making two of it
ASIDE = ("seconds", "train_seconds", "time", "runtime", "duration", "memory_gb", "description")
MEASURED = ("metrics.", "summary.", "_")  # as MLflow and W&B begin the names of what they measure
OF_COMPARISONS = {"candidate", "phase", "trial"}  # columns of a comparison's ``runs.csv``
KEYS = ["dataset", "candidate", "seed"]


class Unnamed(ValueError):
    """What a user must name; ``hint`` has the words of the command that are missing."""

    def __init__(self, sentence: str, hint: Sequence[str], frame: pd.DataFrame | None = None):
        if frame is not None:
            sentence = f"{sentence}; the columns are: {', '.join(frame)}"
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
        score = columns.score or "score"
        frame = _melted(frame, [*seeds, *datasets], score, notes)
        columns = replace(columns, candidate=["candidate"], score=score)
    candidates = _candidate_columns(frame, columns)
    score = _score_column(frame, columns)
    runs = pd.DataFrame({"candidate": _joined(frame, candidates, "candidate"), "dataset": ""})
    for name in datasets:
        runs["dataset"] = texts(frame[name])
    runs["score"], said = numbers(frame[score])
    notes += said
    _leave_out_unfinished(frame, runs, notes)
    roles = [*seeds, *datasets, *candidates, score]
    others = frame.drop(columns=roles)
    _refuse_settings(others, runs, candidates)
    known = [name for name in others if known_direction(name)]
    if known:
        notes.append(f"Left aside: {', '.join(known)}.")
    runs["seed"] = _joined(frame, seeds, "seed") if seeds else range(len(runs))
    averaged = runs.groupby(KEYS, sort=False)["score"].agg(lambda of_run: of_run.mean(skipna=False))
    if len(averaged) < len(runs):
        notes.append(
            f"Rows that share candidate and seed were averaged, {len(runs)} rows to "
            f"{len(averaged)} runs."
        )
    return Runs(averaged.reset_index(), score, notes)


def _plain(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The table without the columns aside, their names as text; rows are counted from 1."""
    if any(frame.index.names):
        frame = frame.reset_index()
    frame = frame.set_axis(range(1, len(frame) + 1))
    frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"two columns are named {twice[0]!r}: rename one of them")
    asked = [*columns.candidate, *columns.seed, columns.dataset, *columns.aside]
    if not columns.wide:
        asked.append(columns.score)
    for name in filter(None, asked):
        if name not in frame:
            raise Unnamed(f"there is no column {name!r}", [], frame)
    if frame.empty:
        raise ValueError("the table has no row")
    if set(frame) >= OF_COMPARISONS:
        raise ValueError(
            "these are runs of a comparison, which adds seeds until it knows enough: give its "
            "folder, in the place of a table"
        )
    frame = frame.drop(columns=list(columns.aside))
    for name in _called(frame, FOLDS):
        raise ValueError(
            f"{name} is no seed: runs on folds or splits of the same examples share most of what "
            "they train on, so that no interval from them is right. Train each candidate with "
            f"several seeds on one split; if the column is none of this, --aside {name}"
        )
    return frame


def _called(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    return [name for name in frame if name.lower() in names]


def _is_text(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(texts(cells), "coerce").isna().all())


def _melted(frame: pd.DataFrame, kept: Sequence[str], score: str, notes: list[str]) -> pd.DataFrame:
    """A table with a row for each run, of one with a column for each candidate."""
    candidates = frame.columns.difference(kept, sort=False)
    if candidates.empty:
        raise Unnamed("no column has the scores of a candidate", [], frame)
    read = frame.copy()
    for name in candidates:
        read[name], said = numbers(frame[name])
        notes += said
    return read.melt(kept, candidates, "candidate", score)


def _candidate_columns(frame: pd.DataFrame, columns: Columns) -> list[str]:
    named = [name for name in CANDIDATE if name in frame]
    if columns.candidate or named:
        return list(columns.candidate) or named[:1]
    likely = "COLUMN"
    for name in reversed(frame.columns):
        if _is_text(frame[name]) and 1 < frame[name].nunique() < len(frame):
            likely = name
    raise Unnamed(
        "name the column of the candidates, or --wide if each has a column; where it is a part of "
        "a run's name, add a column, as by frame['Name'].str.extract('(.+)-seed')",
        ["--candidate", likely],
        frame,
    )


def _score_column(frame: pd.DataFrame, columns: Columns) -> str:
    known = [name for name in frame if known_direction(name)]
    if columns.score or "score" in frame:
        return columns.score or "score"
    if len(known) != 1:
        hint = ["--score", *(known or ["COLUMN"])[:1]]
        raise Unnamed("name the column of the score", hint, frame)
    return known[0]


def _joined(frame: pd.DataFrame, names: Sequence[str], role: str) -> pd.Series:
    """The text of a role's columns, as in ``adamw, lr=0.1``; seeds 1 and 1.0 are one."""
    parts: list[pd.Series] = []
    for name in names:
        text = texts(frame[name])
        wrong = text.eq("")
        if role == "seed":
            text = text.str.removesuffix(".0")
            if not _is_text(text):  # a row of means has another seed than the runs
                wrong = pd.to_numeric(text, "coerce").isna()
        if wrong.any():
            row = wrong.idxmax()
            raise ValueError(f"row {row}: {text[row]!r} in the column {name} is no {role}")
        parts.append(text if not parts else f", {name}=" + text)
    return parts[0].str.cat(parts[1:])


def _leave_out_unfinished(frame: pd.DataFrame, runs: pd.DataFrame, notes: list[str]) -> None:
    """Take the score from runs whose status says that they have not finished."""
    for name in _called(frame, STATUS):
        words = texts(frame[name]).str.lower()
        unknown = words[~words.isin([*FINISHED, *UNFINISHED])]
        if len(unknown):
            raise ValueError(
                f"row {unknown.index[0]}: {name} is {unknown.iloc[0]!r}, which does not say "
                f"whether the run has finished: leave such rows out, or say --aside {name}"
            )
        runs.loc[words.isin(UNFINISHED), "score"] = float("nan")
    lost = runs[runs["score"].isna()]
    if len(lost):
        notes.append(
            f"{len(lost)} runs have no score, as row {lost.index[0]} (of {lost.iloc[0, 0]}). If a "
            "run diverged, give it the score that it deserves, such as chance."
        )


def _refuse_settings(others: pd.DataFrame, runs: pd.DataFrame, candidates: Sequence[str]) -> None:
    """Refuse other columns that differ within a candidate and may be settings of it."""
    varying: dict[str, str] = {}
    for name in others.columns.difference(_called(others, [*ASIDE, *STATUS]), sort=False):
        written = texts(others[name])
        of_run = written.is_unique and _is_text(written)  # its name, or its time
        if of_run or known_direction(name) or name.startswith(MEASURED):
            continue
        values = written.groupby([runs["dataset"], runs["candidate"]]).nunique()
        if values.max() > 1:
            varying[name] = values.idxmax()[1]
    for name, candidate in varying.items():
        named = ",".join([*candidates, name])
        raise Unnamed(
            f"{(runs['candidate'] == candidate).sum()} runs of {candidate} differ in "
            f"{', '.join(varying)}: name what makes a candidate, as in --candidate {named}, or a "
            f"seed, as in --seed {name}; of what makes neither, say --aside {','.join(varying)}",
            ["--candidate", named],
        )
