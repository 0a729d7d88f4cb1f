"""A sweep's runs as comparisons: runs of one table differ in nothing but method, seed and the method's own settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from as_lightning.benchmark.report.record import BASELINES, ComparisonRecord
from as_lightning.benchmark.run.identity import RunIdentity
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.settings import SettingError, nearest

UNTUNED = "One setting for all, not tuned: no advice."
PAIRED = ("seed", "name")  # by which a table pairs and names its runs
OF_JOB = re.compile(r"[+~]*(method|seed|test|hydra|hparams_search)\b")  # words that no comparison shares


def sweep_records(
    results: Sequence[Result], baseline: str | None = None, **design: Any
) -> tuple[list[ComparisonRecord], list[str]]:
    """A sweep's runs as comparisons of a fixed design, at one budget and without tuning, and notes on them.

    * Runs of one experiment that differ in more than method, seed and the method's settings, as in their data, encoder
      or checkpoint, get a record each: ``digits (trainer.max_epochs=1)``.
    * Runs of one method that differ in its settings are a candidate each: ``as_softmax (delta=0.2)``.
    * The same run twice, from two sweeps, counts once; runs without test metrics are left out.
    """
    runs = [run for run in results if run.metrics]
    untested = [f"{run.candidate}, seed {run.seed}" for run in results if not run.metrics]
    notes = [f"Without test metrics, as made with test=false, and left out: {'; '.join(untested)}."] if untested else []
    table, titles = _settings(runs), pd.Series([run.name for run in runs], dtype=object)
    methods, scores = pd.Series([run.candidate for run in runs], dtype=object), [str(run.metrics) for run in runs]
    table = table[~table.assign(name=titles, of=methods, seed=[run.seed for run in runs], found=scores).duplicated()]
    records = []
    for name, of_name in table.groupby(titles[table.index], sort=False):
        apart = of_name[_apart(of_name.filter(regex=r"^(?!method\.)"))]
        if not apart.columns.empty:
            notes.append(_kept_apart(name, apart))
        for number, (title, alike) in enumerate(of_name.groupby(_titled(name, apart), sort=False), 1):
            of_record = []
            for method, own in alike.groupby(methods[alike.index], sort=False):
                knobs = own[_varying(own.filter(regex=r"^method\."))]
                labels = _titled(method, knobs.rename(columns=lambda key: key.rpartition(".")[2]))
                for place, label in labels.items():
                    about: dict[str, Any] = {"name": title, "candidate": label, "budget": 1.0, "settings": {}}
                    of_record.append(replace(runs[place], epochs=len(runs[place].epoch_seconds) or None, **about))
            labels = [run.candidate for run in of_record]
            base = next((str(known) for known in (baseline, *BASELINES) if known in labels), labels[0])
            folder = (str(name) if apart.columns.empty else f"{name}-{number}").replace("/", "-")
            words = _tuned(runs[alike.index[0]], folder, methods[alike.index].unique())
            untuned = f"{UNTUNED} For advice: {words}" if words else UNTUNED
            records.append(ComparisonRecord.of_runs(of_record, base, untuned=untuned, **design))
    present = {name for record in records for name in record.candidates}
    if baseline is not None and present and baseline not in present:
        raise SettingError(f"no run is of the candidate {baseline}: {nearest(baseline, present)}")
    return records, notes


def _settings(runs: Sequence[Result]) -> pd.DataFrame:
    """Settings and inputs as text, a row a run, ``null`` where there is none; the shortest names come first."""
    identities = [RunIdentity.of(run.config, run.inputs) for run in runs]
    inputs = [{n if "." in n else f"inputs.{n}": found for n, found in each.inputs.items()} for each in identities]
    rows = [{**each.config, **read} for each, read in zip(identities, inputs, strict=True)]
    table = pd.DataFrame(rows, index=range(len(rows)), dtype=object).fillna("null")
    return table[sorted((key for key in table if key not in PAIRED), key=lambda key: (len(key), key))]


def _apart(table: pd.DataFrame) -> list[str]:
    """In what runs differ beside method, seed and the method's settings."""
    differ = _varying(table)
    # other files, and none that has changed
    paths = [key for key in differ if key.endswith(("path", ".name", ".tokenizer"))]
    explained = [key for key in differ if paths and key.startswith("inputs.") and key not in paths]
    explained = [key for key in explained if table.groupby(paths)[key].nunique().max() == 1]
    return [key for key in differ if key not in explained]


def _varying(table: pd.DataFrame) -> list[str]:
    """The settings whose values are not all the same; of those with equal values the first."""
    return list(table.loc[:, table.nunique() > 1].T.drop_duplicates().index)


def _titled(name: str, settings: pd.DataFrame) -> pd.Series:
    """The name with the settings of each row in brackets, their numbers rounded where that keeps all rows apart."""
    short = settings.map(_rounded)
    settings = short if len(short.drop_duplicates()) == len(settings.drop_duplicates()) else settings
    rows = [", ".join(f"{key}={value}" for key, value in row.items()) for _, row in settings.iterrows()]
    return pd.Series([f"{name} ({row})" if row else name for row in rows], index=settings.index, dtype=object)


def _rounded(value: str) -> str:
    return f"{float(value):.4g}" if re.fullmatch(r"-?\d*\.\d{2,}(e-?\d+)?", value) else value


def _kept_apart(name: str, apart: pd.DataFrame) -> str:
    found = "; ".join(f"{key} ({', '.join(sorted(set(apart[key])))})" for key in apart)
    changed = "What they have read has changed between them. " if any(k.startswith("inputs.") for k in apart) else ""
    return f"The runs of {name} differ in {found}. {changed}Runs are compared with their like alone: a table each."


def _tuned(run: Result, folder: str, methods: Sequence[str]) -> str:
    """The command that compares the methods of a table, each of them tuned, in a folder of its own; none is known of a
    run that has not kept its words, as in older versions.
    """
    if not run.overrides:
        return ""
    words = [word for word in run.overrides if not OF_JOB.match(word)]
    if folder != run.name:
        words = [*(word for word in words if not word.startswith("name=")), f"name={folder}"]
    return shlex.join(["as-lightning-compare", *words, f"methods={','.join(methods)}"])
