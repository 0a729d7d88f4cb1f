"""A sweep's runs as comparisons: runs of one table differ in nothing but method, seed and the method's own settings."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
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
    r"|method\..*"  # each of them is a method of its own
    r"|trainer\.(enable_progress_bar|enable_model_summary|log_every_n_steps)"
)
INPUT_DATA = "inputs.data"  # the checksum of the user's files, as if it were a setting
# what is tuned for each method apart: in one table as long as no method has several of them
TUNED = re.compile(r"optimizer\.lr|lr_scheduler\.max_lr")


def settings_table(results: Sequence[Result]) -> pd.DataFrame:
    """The configurations as text, a row a run, ``null`` where it has no such setting; the shortest names come first."""
    rows = [flat(run.config) | ({INPUT_DATA: run.inputs["data"]} if run.inputs.get("data") else {}) for run in results]
    table = pd.DataFrame(rows, index=range(len(rows)), dtype=object).fillna("null")
    return table[sorted(table, key=lambda name: (len(name), name))]


def sweep_records(results: Sequence[Result], baseline: str | None = None) -> tuple[list[ComparisonRecord], list[str]]:
    """A sweep's runs as comparisons of a fixed design, at one budget and without tuning, and notes on them.

    * Runs of one experiment that differ in more than method, seed and the method's settings get a record each:
      ``digits (trainer.max_epochs=1)``.
    * Runs of one method that differ in its settings get a method each: ``as_softmax (delta=0.2)``.
    * The same run twice, from two sweeps, counts once; runs without test metrics are left out.
    """
    notes = []
    if untested := [f"{run.method}, seed {run.seed}" for run in results if not run.metrics]:
        notes = [f"Without test metrics, as made with test=false, and left out: {'; '.join(untested)}."]
    tested: dict[str, Result] = {}
    for run in results:
        config = {key: value for key, value in flat(run.config).items() if key.startswith("method.") or _matters(key)}
        found = [run.name, run.method, run.seed, config, run.metrics]
        if run.metrics:
            tested.setdefault(json.dumps(found, sort_keys=True), run)
    alike: dict[str, list[Result]] = {}
    for name in dict.fromkeys(run.name for run in tested.values()):
        runs = [run for run in tested.values() if run.name == name]
        table, methods = settings_table(runs), [run.method for run in runs]
        differing = table[_differing(table, methods)]
        if not differing.columns.empty:
            notes.append(_kept_apart(name, differing))
        titles = _titled(name, differing)
        for (_, method), own in table.groupby([titles, methods], sort=False):
            knobs = own[_varying(own.filter(regex=r"^method\."))]
            labels = _titled(method, knobs.rename(columns=lambda key: key.rpartition(".")[2]))
            for place, label in zip(own.index, labels, strict=True):
                run = replace(runs[place], name=titles[place], method=label)
                alike.setdefault(run.name, []).append(run)
    present = {run.method for runs in alike.values() for run in runs}
    if baseline is not None and present and baseline not in present:
        raise SettingError(f"no run is of the method {baseline}: {nearest(baseline, present)}")
    return [_record(runs, baseline) for runs in alike.values()], [*notes, UNTUNED]


def _record(runs: Sequence[Result], baseline: str | None) -> ComparisonRecord:
    """The comparison of runs that differ in nothing but method and seed."""
    made = Counter((run.method, run.seed) for run in runs)
    (method, seed), most = made.most_common(1)[0]
    if most > 1:
        raise ValueError(
            f"two results are of {runs[0].name}, {method}, seed {seed}, with the same settings: a report compares one "
            "run of each; leave one of their folders out"
        )
    methods = list(dict.fromkeys(run.method for run in runs))
    base = next((known for known in (baseline, *BASELINES) if known in methods), methods[0])
    methods.sort(key=lambda method: method != base)
    design = Design(looks=(len({run.seed for run in runs}),))
    record = ComparisonRecord(runs[0].name, runs[0].score, base, methods, design)
    for run in runs:
        record.results.append(replace(run, budget=1.0, epochs=len(run.epoch_seconds) or None, settings={}))
    pairs = itertools.product(methods, sorted({run.seed for run in runs}))
    record.missing = [(method, 1.0, seed) for method, seed in pairs if (method, seed) not in made]
    record.commands = list(dict.fromkeys(" ".join(run.command.split()) for run in runs if run.command))
    return record


def _differing(table: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    """In what runs differ beside method, seed and the method's settings."""

    def tuned(key: str) -> bool:
        return bool(TUNED.fullmatch(key)) and table[key].groupby(methods).nunique().max() == 1

    return _varying(table[[key for key in table if _matters(key) and not tuned(key)]])


def _matters(key: str) -> bool:
    return WITHOUT_EFFECT.fullmatch(key) is None


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """A configuration as one level, and as text: ``{"method.delta": "0.1"}``."""
    settings: dict[str, str] = {}
    for key, value in config.items():
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        settings |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": text}
    return settings


def _varying(table: pd.DataFrame) -> list[str]:
    """The settings whose values are not all the same; of those with equal values the first."""
    found = list(table.loc[:, table.nunique() > 1].T.drop_duplicates().index)
    paths = [key for key in found if key.startswith("data.") and key.endswith("path")]
    if paths and INPUT_DATA in found and table.groupby(paths)[INPUT_DATA].nunique().max() == 1:
        found.remove(INPUT_DATA)  # other files, and none that has changed
    return found


def _titled(name: str, settings: pd.DataFrame) -> list[str]:
    """The name with the settings of each row in brackets."""
    rows = [", ".join(f"{key}={value}" for key, value in row.items()) for _, row in settings.iterrows()]
    return [f"{name} ({row})" if row else name for row in rows]


def _kept_apart(name: str, differing: pd.DataFrame) -> str:
    values = {key: sorted(set(differing[key])) for key in differing}
    found = "; ".join(f"{key} ({', '.join(known)})" for key, known in values.items())
    changed = "Files of the data have changed between them. " if INPUT_DATA in values else ""
    return f"The runs of {name} differ in {found}. {changed}Runs are compared with their like alone: a table each."
