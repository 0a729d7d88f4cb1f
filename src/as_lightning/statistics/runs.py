"""The runs of a table: what a user names is read, and what makes rows no replicates is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from as_lightning.statistics.score_names import known_direction
from as_lightning.statistics.score_table import named_rows, numbers, texts

CANDIDATE = ("candidate", "method")
FOLDS = ("fold", "split", "repeat")  # parts of one set of examples, no independent runs
STATUS = ("status", "state")
FINISHED = ("finished", "completed", "complete", "success", "done", "ok", "keep", "discard")
UNFINISHED = (
    "crash",
    "crashed",
    "failed",
    "fail",
    "error",
    "killed",
    "oom",
    "timeout",
    "running",
    "preempted",
)
# what may differ between runs of one candidate without making two of it
ASIDE = ("seconds", "train_seconds", "time", "runtime", "duration", "memory_gb", "description")
MEASURED = ("metrics.", "summary.", "_")  # as MLflow and W&B begin the names of what they measure
OF_COMPARISONS = ("phase", "trial", "candidate")  # columns of a comparison's ``runs.csv``
RUN_NAMES = ("name", "run", "run_name")


class Unnamed(ValueError):
    """What a user must name; ``options`` are those that are missing, as far as they can be told."""

    def __init__(self, sentence: str, columns: Sequence[str] = (), **options: str) -> None:
        if len(columns):
            sentence = f"{sentence}; the columns are: {', '.join(map(str, columns))}"
        super().__init__(sentence)
        self.options = options


@dataclass(frozen=True)
class Columns:
    """The columns that a user has named."""

    candidate: Sequence[str] = ()  # several name a candidate together
    seed: Sequence[str] = ()
    score: str = ""
    dataset: str = ""
    aside: Sequence[str] = ()  # that make no two candidates of one
    wide: bool = False  # whether each candidate has a column
    candidate_from: str = ""  # COLUMN=PATTERN, whose first group is the candidate
    splits: str = ""  # "repeated" if a run is of another random split of the same examples


@dataclass
class Runs:
    """The runs of a table: ``dataset``, ``candidate``, ``seed`` and ``score``, NaN without one."""

    table: pd.DataFrame
    score: str
    paired: bool  # whether the table says which runs share a seed
    notes: list[str] = field(default_factory=list)


def runs_of(frame: pd.DataFrame, columns: Columns) -> Runs:
    """Return the runs of a table.

    Rows of one candidate and seed are averaged. A ValueError refuses rows that are no replicates;
    `Unnamed` asks for columns.
    """
    frame = _plain(frame, columns)
    notes: list[str] = []
    frame = _final(frame, notes)
    seeds = _seed_columns(frame, columns)
    dataset = _dataset_column(frame, columns)
    if columns.wide:
        frame = _melted(frame, [*seeds, *dataset, *columns.aside], columns.score, notes)
        columns = replace(columns, candidate=["candidate"], score=columns.score or "score")
    candidates = _candidate_columns(frame, columns)
    score = _score_column(frame, columns, candidates)
    roles = [*seeds, *dataset, *candidates, score]
    runs = pd.DataFrame({"candidate": _candidates(frame, candidates, columns)})
    runs["dataset"] = texts(frame[dataset[0]]) if dataset else ""
    runs["score"], said = numbers(frame[score])
    notes += said
    _leave_out_unfinished(frame, runs, columns, notes)
    _refuse_settings(frame, runs, [*roles, *columns.aside], columns)
    known = [str(name) for name in frame if known_direction(name) and name not in roles]
    if known:
        notes.append(f"Left aside: {', '.join(known)}.")
    if not seeds:
        notes.append("No column is the seed: runs are not paired (Welch's t-test).")
        runs["seed"] = range(len(runs))
        return Runs(runs, score, False, notes)
    runs["seed"] = _joined(frame, seeds, "seed")
    return Runs(_averaged(runs, frame, roles, notes), score, True, notes)


def _plain(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The table with text as names of columns, each once, and one label for each row."""
    levels = [name for name in frame.index.names if name is not None]
    if levels:
        frame = frame.reset_index(levels)
    if not frame.index.is_unique:
        frame = frame.reset_index(drop=True)
    frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"two columns are named {twice[0]!r}: rename one of them")
    source = columns.candidate_from.partition("=")[0]
    asked = [*columns.candidate, *columns.seed, columns.score, columns.dataset, *columns.aside]
    for name in filter(None, [*asked, source]):
        if name not in frame and not (columns.wide and name == columns.score):
            raise Unnamed(f"there is no column {name!r}", list(frame))
    if frame.empty:
        raise ValueError("the table has no row")
    return frame


def _final(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The final runs of a comparison's own ``runs.csv``, all rows of another table."""
    if not set(OF_COMPARISONS) <= set(frame):
        return frame
    final = texts(frame["phase"]).eq("final")
    notes.append(f"Left out: {(~final).sum()} runs of tuning.")
    return frame[final]


def _seed_columns(frame: pd.DataFrame, columns: Columns) -> list[str]:
    free = [name for name in frame if name not in columns.aside]
    named = list(columns.seed) or [name for name in free if name.lower() == "seed"]
    folds = [name for name in free if name.lower() in FOLDS]
    if columns.splits == "repeated":
        return list(dict.fromkeys([*named, *folds]))
    if folds:
        share = 1 / max(frame[folds[0]].nunique(), 2)
        raise ValueError(
            f"{folds[0]} is no seed: runs on the folds or splits of one set of examples share most "
            "of what they train on. If each is another random split, say --splits repeated with "
            f"the share that is tested, as in --test-share {share:.2g}; if it is none of this, "
            f"--aside {folds[0]}, or rename the column"
        )
    return named


def _dataset_column(frame: pd.DataFrame, columns: Columns) -> list[str]:
    if columns.dataset:
        return [columns.dataset]
    return [name for name in frame if name.lower() == "dataset" and name not in columns.aside]


def _melted(frame: pd.DataFrame, kept: Sequence[str], score: str, notes: list[str]) -> pd.DataFrame:
    """A table with a row for each run, of one with a column for each candidate."""
    candidates: list[str] = []
    aside: list[str] = []
    for name in frame:
        if name not in kept:
            read = pd.to_numeric(texts(frame[name]).str.strip("%").str.replace(",", "."), "coerce")
            (candidates if name and read.notna().any() else aside).append(name)
    named = list(filter(None, aside))
    if named:
        notes.append(f"Left aside, without a number: {', '.join(named)}.")
    if not candidates:
        raise Unnamed("no column has the scores of a candidate", list(frame))
    values = {name: numbers(frame[name]) for name in candidates}
    for name, (value, _) in values.items():
        if len(value) > 1 and set(value) in (set(range(len(value))), set(range(1, len(value) + 1))):
            raise Unnamed(f"{name} counts the rows: is it the seed?", list(frame), seed=name)
    for _, said in values.values():
        notes += said
    read = frame.assign(**{name: value for name, (value, _) in values.items()})
    kept = [name for name in kept if name in frame]
    return read.melt(kept, candidates, "candidate", score or "score")


def _candidate_columns(frame: pd.DataFrame, columns: Columns) -> list[str]:
    if columns.candidate_from:
        return [columns.candidate_from.partition("=")[0]]
    if columns.candidate:
        return list(columns.candidate)
    named = [name for name in CANDIDATE if name in frame][:1]
    if named:
        return named
    free = [name for name in frame if name.lower() not in (*ASIDE, *STATUS, "seed")]
    read = {name: pd.to_numeric(texts(frame[name]), "coerce") for name in free}
    numeric = [name for name in free if read[name].notna().any()]
    words = [name for name in free if name not in numeric]
    repeated = [name for name in words if 1 < frame[name].nunique() < len(frame)]
    named = [name for name in words if name.lower() in RUN_NAMES]
    options = {"candidate": "COLUMN"}
    if repeated:
        options = {"candidate": repeated[0]}
    elif named:
        options = {"candidate_from": f"{named[0]}=(.+)-seed"}
    elif not words:
        options = {"wide": ""}
    if words and not columns.score and not any(map(known_direction, frame)):
        options["score"] = numeric[0] if len(numeric) == 1 else "COLUMN"
    question = "name the column of the candidates, or --wide if each has a column"
    raise Unnamed(question, list(frame), **options)


def _score_column(frame: pd.DataFrame, columns: Columns, candidates: Sequence[str]) -> str:
    if columns.score:
        return columns.score
    if "score" in frame:
        return "score"
    known = [name for name in frame if known_direction(name)]
    if len(known) == 1:
        return known[0]
    options = {"score": known[0] if known else "COLUMN"}
    if not columns.candidate and not columns.candidate_from:
        options["candidate"] = ",".join(candidates)
    raise Unnamed("name the column of the score", list(frame), **options)


def _candidates(frame: pd.DataFrame, names: Sequence[str], columns: Columns) -> pd.Series:
    if not columns.candidate_from:
        return _joined(frame, names, "candidate")
    pattern = columns.candidate_from.partition("=")[2]
    if "(" not in pattern:
        pattern = f"({pattern})"
    try:
        found = texts(frame[names[0]]).str.extract(pattern)
    except re.error as error:
        raise ValueError(f"candidate_from: {pattern!r} is no pattern: {error}") from error
    unmatched = found.index[found[0].isna()]
    if len(unmatched):
        cell = frame[names[0]][unmatched[0]]
        raise ValueError(f"candidate_from: {pattern!r} is not in {names[0]} {cell!r}")
    return found[0].str.strip()


def _joined(frame: pd.DataFrame, names: Sequence[str], role: str) -> pd.Series:
    """The text of a role's columns, as in ``adamw, lr=0.1``; seeds 1 and 1.0 are one."""
    joined: pd.Series | None = None
    for name in names:
        text = texts(frame[name])
        empty = text.index[text.eq("").to_numpy()]
        if len(empty):
            raise ValueError(f"row {empty[0]}: nothing is in the column {name}, the {role}")
        values = pd.to_numeric(text, "coerce")
        if role == "seed" and values.notna().any():
            if values.isna().any():
                row = values.index[values.isna().to_numpy()][0]
                raise ValueError(
                    f"row {row}: {text[row]!r} in the column {name} is no seed beside numbers: "
                    "leave the row out"
                )
            text = text.str.removesuffix(".0")
        joined = text if joined is None else joined + f", {name}=" + text
    return joined


def _leave_out_unfinished(
    frame: pd.DataFrame, runs: pd.DataFrame, columns: Columns, notes: list[str]
) -> None:
    """Take the score from runs whose status says that they have not finished."""
    taken = {*columns.candidate, *columns.aside, columns.score, columns.dataset}
    for name in frame:
        if name.lower() in STATUS and name not in taken:
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
        of = ", ".join(lost["candidate"].unique()[:3])
        notes.append(
            f"Without a score: {named_rows(lost.index)} (of {of}). If a run diverged, give it the "
            "score that it deserves, such as chance."
        )


def _refuse_settings(
    frame: pd.DataFrame, runs: pd.DataFrame, used: Sequence[str], columns: Columns
) -> None:
    """Refuse columns that differ within a candidate and may be settings of it."""
    groups = [runs["dataset"], runs["candidate"]]
    varying: dict[str, Any] = {}
    names = list(frame)
    if set(OF_COMPARISONS) <= set(frame):  # the rest are metrics
        names = [name for name in frame if name.startswith("setting.")]
    for name in names:
        aside = name.lower() in (*ASIDE, *STATUS) or name.startswith(MEASURED)
        if not name or name in used or aside or known_direction(name):
            continue
        written = texts(frame[name])
        words = pd.to_numeric(written, "coerce").isna().all()
        if words and written.nunique() == len(written):  # names and times of runs
            continue
        most = written.groupby(groups).nunique()
        if most.max() > 1:
            varying[name] = most.idxmax()[1]
    if not varying:
        return
    name, candidate = next(iter(varying.items()))
    count = (runs["candidate"] == candidate).sum()
    named = ",".join([*(columns.candidate or CANDIDATE[:1]), name])
    options = {"candidate": named}
    again = runs.assign(value=texts(frame[name])).duplicated(["dataset", "candidate", "value"])
    whole = texts(frame[name]).str.isdecimal().all()
    if whole and not again.any() and not any(column.lower() == "seed" for column in used):
        options = {"seed": name}
    raise Unnamed(
        f"{count} runs of {candidate} differ in {', '.join(varying)}: name what makes a candidate, "
        f"as in --candidate {named}, or a seed, as in --seed {name}; of what makes neither, say "
        f"--aside {','.join(varying)}",
        list(frame),
        **options,
    )


def _averaged(
    runs: pd.DataFrame, frame: pd.DataFrame, roles: Sequence[str], notes: list[str]
) -> pd.DataFrame:
    """The runs, with one row for all rows of a candidate and seed: their mean."""
    keys = ["dataset", "candidate", "seed"]
    shared = runs.duplicated(keys, keep=False)
    if not shared.any():
        return runs
    first = runs[shared].iloc[0]
    rows = frame[(runs[keys] == first[keys]).all(axis=1)]
    differing = [str(name) for name in rows if name not in roles and rows[name].nunique() > 1]
    because = f", which differ in {', '.join(differing)}" if differing else ""
    scores = runs.groupby(keys, sort=False)["score"]
    averaged = scores.agg(lambda of_run: of_run.mean(skipna=False)).reset_index()
    notes.append(
        f"{shared.sum()} rows share candidate and seed with others{because}: they were averaged, "
        f"{len(runs)} rows to {len(averaged)} runs."
    )
    return averaged
