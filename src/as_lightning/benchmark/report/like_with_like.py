"""A table compares runs that differ in nothing but method, seed and the method's own settings."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from as_lightning.benchmark.report.record import ComparisonRecord
from as_lightning.benchmark.report.verdicts import Design
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.settings import SettingError, nearest

BASELINES = ("softmax", "multilabel_softmax")
UNTUNED = "A sweep gives all methods the settings of the command; as-lightning-compare tunes each of them."
# what changes nothing that is compared
WITHOUT_EFFECT = re.compile(
    r"seed|name|data_dir|output_dir|logger\..*|data\.(num_workers|pin_memory)"
    r"|callbacks\.(learning_rate_monitor|temperature_scaling|margin_histogram)\..*"
    r"|callbacks\.model_checkpoint\.(dirpath|save_last|enable_version_counter)"
    r"|method\.callbacks\.masking_monitor\.step"
    r"|trainer\.(enable_progress_bar|enable_model_summary|log_every_n_steps)"
)
INPUT_DATA = "inputs.data"  # the checksum of the user's files, as if it were a setting
# what is tuned for each method apart: in one table as long as no method has several of them
TUNED = re.compile(r"optimizer\.lr|lr_scheduler\.max_lr")


def settings_table(results: Sequence[Result]) -> pd.DataFrame:
    """The configurations as text, a row a run, ``null`` where it has no such setting; the shortest names come first."""
    rows = [_flat(run.config) | ({INPUT_DATA: run.inputs["data"]} if run.inputs.get("data") else {}) for run in results]
    table = pd.DataFrame(rows, index=range(len(rows)), dtype=object).fillna("null")
    return table[sorted(table, key=lambda name: (len(name), name))]


def chosen(results: Sequence[Result], where: Sequence[str]) -> list[Result]:
    """The results whose settings are those of ``where``, each ``setting=value``; a `SettingError` if none is left."""
    table = settings_table(results)
    for entry in where:
        setting, equals, value = entry.partition("=")
        if not equals:
            raise SettingError(f"--where takes setting=value, got {entry!r}")
        if setting not in table:
            raise SettingError(f"no run has a setting {setting}: {nearest(setting, set(table))}")
        known, table = sorted(set(table[setting])), table[table[setting] == value]
        if table.empty:
            raise SettingError(f"no run has {entry}: there are {', '.join(known)}")
    return [results[place] for place in table.index]


def differing_settings(results: Sequence[Result]) -> dict[str, list[str]]:
    """In what the runs of one experiment differ beside method, seed and the method's settings: setting and values."""
    table, methods = settings_table(results), [result.method for result in results]

    def matters(key: str) -> bool:
        if WITHOUT_EFFECT.fullmatch(key) or key.startswith("method."):
            return False
        return not TUNED.fullmatch(key) or bool(table[key].groupby(methods).nunique().max() > 1)

    return {key: sorted(set(table[key])) for key in _varying(table[[key for key in table if matters(key)]])}


def comparable_results(results: Sequence[Result]) -> tuple[list[Result], list[str]]:
    """The results, named so that those of one ``name`` can be compared, and notes on what was kept apart.

    * Runs of one experiment that differ in more than method, seed and the method's settings get a ``name`` each:
      ``digits (trainer.max_epochs=1)``.
    * Runs of one method that differ in its settings get a ``method`` each: ``as_softmax (delta=0.2)``.
    * The same run twice, from two sweeps, counts once.
    * Runs without test metrics are left out.

    Raises:
        ValueError: if two runs do not differ in any setting, but in what they have found.
    """
    notes = []
    if untested := [f"{run.method}, seed {run.seed}" for run in results if not run.metrics]:
        notes = [f"Without test metrics, as made with test=false, and left out: {'; '.join(untested)}."]
    tested: dict[str, Result] = {}
    for run in results:
        found = [run.name, run.method, run.seed, run.config, run.metrics]
        if run.metrics:
            tested.setdefault(json.dumps(found, sort_keys=True), run)
    named: dict[tuple[str, str, int], Result] = {}
    for name in dict.fromkeys(run.name for run in tested.values()):
        runs = [run for run in tested.values() if run.name == name]
        table, differing = settings_table(runs), differing_settings(runs)
        if differing:
            notes.append(_kept_apart(name, differing))
        titles = [_titled(name, {key: table.at[place, key] for key in differing}) for place in table.index]
        for (title, method), alike in table.groupby([titles, [run.method for run in runs]], sort=False):
            knobs = _varying(alike[[key for key in alike if key.startswith("method.")]])
            for place in alike.index:
                label = _titled(method, {key.rpartition(".")[2]: alike.at[place, key] for key in knobs})
                seed = runs[place].seed
                if (title, label, seed) in named:
                    raise ValueError(
                        f"two results are of {title}, {label}, seed {seed}, with the same settings: a report compares "
                        "one run of each; leave one of their folders out"
                    )
                named[title, label, seed] = replace(runs[place], name=title, method=label)
    return list(named.values()), notes


def sweep_records(results: Sequence[Result], baseline: str | None = None) -> tuple[list[ComparisonRecord], list[str]]:
    """A sweep's runs as comparisons of a fixed design, one for each experiment, at one budget and without tuning.

    The notes of `comparable_results` are returned as well.

    Raises:
        SettingError: if no run is of the method ``baseline``.
    """
    named, notes = comparable_results(results)
    methods = {run.method for run in named}
    if baseline is not None and named and baseline not in methods:
        raise SettingError(f"no run is of the method {baseline}: {nearest(baseline, methods)}")
    records = []
    for name in dict.fromkeys(run.name for run in named):
        runs = [run for run in named if run.name == name]
        present = list(dict.fromkeys(run.method for run in runs))
        base = next((known for known in (baseline, *BASELINES) if known in present), present[0])
        design = Design.fixed(sum(run.method == base for run in runs))
        record = ComparisonRecord(name, runs[0].score, base, sorted(present, key=lambda method: method != base), design)
        for run in runs:
            about: dict[str, Any] = {"budget": 1.0, "epochs": len(run.epoch_seconds) or math.nan, "settings": {}}
            record.results.append(replace(run, config=run.config | {"comparison": about}))
        made, seeds = {(run.method, run.seed) for run in runs}, sorted({run.seed for run in runs})
        record.missing = [(m, 1.0, seed) for m, seed in itertools.product(present, seeds) if (m, seed) not in made]
        record.commands = list(dict.fromkeys(" ".join(run.command.split()) for run in runs if run.command))
        records.append(record)
    return records, [*notes, UNTUNED]


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """A configuration as one level, and as text: ``{"method.delta": "0.1"}``."""
    settings: dict[str, str] = {}
    for key, value in config.items():
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        settings |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": text}
    return settings


def _varying(table: pd.DataFrame) -> list[str]:
    """The settings whose values are not all the same; of those that always vary together the first."""
    return list(table.loc[:, table.nunique() > 1].T.drop_duplicates().index)


def _titled(name: str, settings: dict[str, str]) -> str:
    return f"{name} ({', '.join(f'{key}={value}' for key, value in settings.items())})" if settings else name


def _kept_apart(name: str, differing: dict[str, list[str]]) -> str:
    found = "; ".join(f"{key} ({', '.join(values)})" for key, values in differing.items())
    choice = " ".join(f"--where {key}={values[0]}" for key, values in differing.items())
    changed = "Files of the data have changed between them. " if INPUT_DATA in differing else ""
    return (
        f"The runs of {name} differ in {found}. {changed}Runs are compared with their like alone: a table each. "
        f"as-lightning-report {choice} reports one of them."
    )
