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
PAIRED = ["seed", "name"]  # by which a table pairs and names its runs
RUN = "run."  # before what is known of a run beside its settings
# overrides that a comparison does not take
OF_JOB = re.compile(r"[+~]*(method|seed|test|hydra|hparams_search)\b")


def sweep_records(
    results: Sequence[Result], baseline: str | None = None, **design: Any
) -> tuple[list[ComparisonRecord], list[str]]:
    """Return a sweep's runs as comparisons of a fixed design and without tuning, and notes on them.

    * Runs of one experiment that differ in more than method, seed and the method's settings, as in
      their data, encoder or checkpoint, get a record each: ``digits (trainer.max_epochs=1)``.
    * Runs of one method that differ in its settings are a candidate each: ``as_softmax
      (delta=0.2)``.
    * The same run twice, from two sweeps, counts once; runs without test metrics are left out.
    """
    runs = [run for run in results if run.metrics]
    notes = []
    if len(runs) < len(results):
        untested = [f"{run.candidate}, seed {run.seed}" for run in results if not run.metrics]
        left_out = "Without test metrics, as made with test=false, and left out"
        notes.append(f"{left_out}: {'; '.join(untested)}.")
    if not runs:
        return [], notes
    records = []
    for name, of_name in _settings(runs).groupby(f"{RUN}name", sort=False):
        shared = of_name.filter(regex=r"^(?!method\.|run\.)")
        apart = of_name[_separating(shared)]
        if not apart.columns.empty:
            notes.append(_separation_note(name, apart))
        groups = of_name.groupby(_titled(name, apart), sort=False)
        for number, (title, rows) in enumerate(groups, start=1):
            folder = name if apart.columns.empty else f"{name}-{number}"
            record = _record(runs, rows, title, baseline, design)
            methods = rows[f"{RUN}candidate"].unique()
            if command := _tuned(runs[rows.index[0]], folder.replace("/", "-"), methods):
                record.untuned += f" For advice: {command}"
            records.append(record)
    present = {name for record in records for name in record.candidates}
    if baseline is not None and present and baseline not in present:
        raise SettingError(f"no run is of the candidate {baseline}: {nearest(baseline, present)}")
    return records, notes


def _record(
    runs: Sequence[Result],
    rows: pd.DataFrame,
    title: str,
    baseline: str | None,
    design: dict[str, Any],
) -> ComparisonRecord:
    """Return the comparison of these rows, a candidate for each method and its settings."""
    made = []
    for method, of_method in rows.groupby(f"{RUN}candidate", sort=False):
        knobs = of_method[_varying(of_method.filter(regex=r"^method\."))]
        labels = _titled(method, knobs.rename(columns=lambda key: key.rpartition(".")[2]))
        for number, label in labels.items():
            epochs = len(runs[number].epoch_seconds) or None
            run = replace(runs[number], name=title, candidate=label, epochs=epochs, settings={})
            made.append(run)
    labels = [run.candidate for run in made]
    base = next((name for name in (baseline, *BASELINES) if name in labels), None) or labels[0]
    return ComparisonRecord.from_runs(made, base, untuned=UNTUNED, **design)


def _settings(runs: Sequence[Result]) -> pd.DataFrame:
    """Return the settings and inputs of runs as text, a row for each run, ``null`` where absent,
    and what is known of them; short names come first, and the same run counts once.
    """
    rows = []
    for run in runs:
        identity = RunIdentity.of(run.config, run.inputs)
        row: dict[str, Any] = dict(identity.config)
        for name, digest in identity.inputs.items():
            row[name if "." in name else f"inputs.{name}"] = digest
        row |= {f"{RUN}name": run.name, f"{RUN}candidate": run.candidate}
        row |= {f"{RUN}seed": run.seed, f"{RUN}metrics": str(run.metrics)}
        rows.append(row)
    table = pd.DataFrame(rows, dtype=object).fillna("null")
    table = table.drop(columns=PAIRED, errors="ignore")
    columns = sorted(table, key=lambda key: (len(key), key))
    return table.loc[~table.duplicated(), columns]


def _separating(table: pd.DataFrame) -> list[str]:
    """Return the columns in which runs differ, without digests that differ with a path alone."""
    differ = _varying(table)
    paths = [key for key in differ if key.endswith(("path", ".name", ".tokenizer"))]
    explained = []
    for key in differ:
        digest = paths and key.startswith("inputs.") and key not in paths
        if digest and table.groupby(paths)[key].nunique().max() == 1:
            explained.append(key)
    return [key for key in differ if key not in explained]


def _varying(table: pd.DataFrame) -> list[str]:
    """Return the settings whose values are not all the same; of those with equal values the
    first.
    """
    return list(table.loc[:, table.nunique() > 1].T.drop_duplicates().index)


def _titled(name: str, settings: pd.DataFrame) -> pd.Series:
    """Return the name with the settings of each row in brackets, their numbers rounded where that
    keeps all rows apart.
    """
    short = settings.map(_rounded)
    if len(short.drop_duplicates()) == len(settings.drop_duplicates()):
        settings = short
    titles = []
    for row in settings.to_dict("records"):
        shown = ", ".join(f"{key}={value}" for key, value in row.items())
        titles.append(f"{name} ({shown})" if shown else name)
    return pd.Series(titles, index=settings.index, dtype=object)


def _rounded(value: str) -> str:
    return f"{float(value):.4g}" if re.fullmatch(r"-?\d*\.\d{2,}(e-?\d+)?", value) else value


def _separation_note(name: str, apart: pd.DataFrame) -> str:
    columns = []
    for key, values in apart.items():
        columns.append(f"{key} ({', '.join(sorted(values.unique()))})")
    note = f"The runs of {name} differ in {'; '.join(columns)}. "
    if any(apart.columns.str.startswith("inputs.")):
        note += "What they have read has changed between them. "
    return f"{note}Runs are compared with their like alone: a table each."


def _tuned(run: Result, folder: str, methods: Sequence[str]) -> str:
    """Return the command that compares the methods of a table, each of them tuned, in a folder of
    its own; empty for a run without overrides.
    """
    if not run.overrides:
        return ""
    overrides = [override for override in run.overrides if not OF_JOB.match(override)]
    if folder != run.name:
        overrides = [word for word in overrides if not word.startswith("name=")]
        overrides.append(f"name={folder}")
    return shlex.join(["as-lightning-compare", *overrides, f"methods={','.join(methods)}"])
