"""A sweep's runs as comparisons: the runs of each differ in method, seed and the method's own
settings alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.settings import SettingError, nearest
from as_lightning.report.record import BASELINES, ComparisonRecord

UNTUNED = "One setting for all, not tuned: no advice."
PAIRED = ("seed", "name")  # by which a table pairs and names its runs
OF_JOB = re.compile(
    r"[+~]*(method|seed|test|hydra|hparams_search)\b"
)  # overrides that a comparison does not take


def sweep_records(
    results: Sequence[Result], baseline: str | None = None, **design: Any
) -> tuple[list[ComparisonRecord], list[str]]:
    """A sweep's runs as comparisons of a fixed design and without tuning, and notes
    on them.

    * Runs of one experiment that differ in more than method, seed and the method's settings, as in
      their data, encoder or checkpoint, get a record each: ``digits (trainer.max_epochs=1)``.
    * Runs of one method that differ in its settings are a candidate each: ``as_softmax
      (delta=0.2)``.
    * The same run twice, from two sweeps, counts once; runs without test metrics are left out.
    """
    runs = [run for run in results if run.metrics]
    untested = [f"{run.candidate}, seed {run.seed}" for run in results if not run.metrics]
    notes = (
        [f"Without test metrics, as made with test=false, and left out: {'; '.join(untested)}."]
        if untested
        else []
    )
    table, titles = _settings(runs), pd.Series([run.name for run in runs], dtype=object)
    methods, scores = (
        pd.Series([run.candidate for run in runs], dtype=object),
        [str(run.metrics) for run in runs],
    )
    table = table[
        ~table.assign(
            name=titles, of=methods, seed=[run.seed for run in runs], found=scores
        ).duplicated()
    ]
    records = []
    for name, name_rows in table.groupby(titles[table.index], sort=False):
        apart = name_rows[_separating(name_rows.filter(regex=r"^(?!method\.)"))]
        if not apart.columns.empty:
            notes.append(_separation_note(name, apart))
        for number, (title, title_rows) in enumerate(
            name_rows.groupby(_titled(name, apart), sort=False), 1
        ):
            candidate_runs = []
            for method, method_rows in title_rows.groupby(methods[title_rows.index], sort=False):
                knobs = method_rows[_varying(method_rows.filter(regex=r"^method\."))]
                labels = _titled(method, knobs.rename(columns=lambda key: key.rpartition(".")[2]))
                for row, label in labels.items():
                    fields: dict[str, Any] = {
                        "name": title,
                        "candidate": label,
                        "settings": {},
                    }
                    candidate_runs.append(
                        replace(runs[row], epochs=len(runs[row].epoch_seconds) or None, **fields)
                    )
            labels = [run.candidate for run in candidate_runs]
            base = next(
                (str(default) for default in (baseline, *BASELINES) if default in labels), labels[0]
            )
            folder = (str(name) if apart.columns.empty else f"{name}-{number}").replace("/", "-")
            command = _tuned(runs[title_rows.index[0]], folder, methods[title_rows.index].unique())
            untuned = f"{UNTUNED} For advice: {command}" if command else UNTUNED
            records.append(
                ComparisonRecord.from_runs(candidate_runs, base, untuned=untuned, **design)
            )
    present = {name for record in records for name in record.candidates}
    if baseline is not None and present and baseline not in present:
        raise SettingError(f"no run is of the candidate {baseline}: {nearest(baseline, present)}")
    return records, notes


def _settings(runs: Sequence[Result]) -> pd.DataFrame:
    """The settings and inputs of runs as text, a row for each run, ``null`` where absent; short
    names come first.
    """
    identities = [RunIdentity.of(run.config, run.inputs) for run in runs]
    inputs = [
        {n if "." in n else f"inputs.{n}": digest for n, digest in run.inputs.items()}
        for run in identities
    ]
    rows = [{**run.config, **digests} for run, digests in zip(identities, inputs, strict=True)]
    table = pd.DataFrame(rows, index=range(len(rows)), dtype=object).fillna("null")
    return table[
        sorted((key for key in table if key not in PAIRED), key=lambda key: (len(key), key))
    ]


def _separating(table: pd.DataFrame) -> list[str]:
    """The columns in which runs differ, without digests that differ with a path alone."""
    differ = _varying(table)
    # digests of other files, and of no file that has changed
    paths = [key for key in differ if key.endswith(("path", ".name", ".tokenizer"))]
    explained = [key for key in differ if paths and key.startswith("inputs.") and key not in paths]
    explained = [key for key in explained if table.groupby(paths)[key].nunique().max() == 1]
    return [key for key in differ if key not in explained]


def _varying(table: pd.DataFrame) -> list[str]:
    """The settings whose values are not all the same; of those with equal values the first."""
    return list(table.loc[:, table.nunique() > 1].T.drop_duplicates().index)


def _titled(name: str, settings: pd.DataFrame) -> pd.Series:
    """The name with the settings of each row in brackets, their numbers rounded where that keeps
    all rows apart.
    """
    short = settings.map(_rounded)
    settings = (
        short if len(short.drop_duplicates()) == len(settings.drop_duplicates()) else settings
    )
    rows = [
        ", ".join(f"{key}={value}" for key, value in row.items()) for _, row in settings.iterrows()
    ]
    return pd.Series(
        [f"{name} ({row})" if row else name for row in rows], index=settings.index, dtype=object
    )


def _rounded(value: str) -> str:
    return f"{float(value):.4g}" if re.fullmatch(r"-?\d*\.\d{2,}(e-?\d+)?", value) else value


def _separation_note(name: str, apart: pd.DataFrame) -> str:
    columns = "; ".join(f"{key} ({', '.join(sorted(set(apart[key])))})" for key in apart)
    changed = (
        "What they have read has changed between them. "
        if any(k.startswith("inputs.") for k in apart)
        else ""
    )
    return f"The runs of {name} differ in {columns}. {changed}Runs are compared with their like alone: a table each."


def _tuned(run: Result, folder: str, methods: Sequence[str]) -> str:
    """The command that compares the methods of a table, each of them tuned, in a folder of its own;
    empty for a run without overrides, as older versions wrote it.
    """
    if not run.overrides:
        return ""
    overrides = [override for override in run.overrides if not OF_JOB.match(override)]
    if folder != run.name:
        overrides = [
            *(word for word in overrides if not word.startswith("name=")),
            f"name={folder}",
        ]
    return shlex.join(["as-lightning-compare", *overrides, f"methods={','.join(methods)}"])
