"""A table compares runs that differ in nothing but method, seed and the method's own settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.settings import SettingError, nearest
from as_lightning.benchmark.run.summary import counted_runs

NAMED = 5  # of many runs, those that a note names
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


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration as one level: ``{"method.delta": 0.1}``."""
    settings: dict[str, Any] = {}
    for key, value in config.items():
        settings |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return settings


def settings_of(result: Result) -> dict[str, Any]:
    """A run's configuration as one level, with the checksum of the user's files that it has read."""
    checksum = result.inputs.get("data")
    return flat(result.config) | ({} if checksum is None else {INPUT_DATA: checksum})


def chosen(results: Sequence[Result], where: Sequence[str]) -> list[Result]:
    """The results whose settings are those of ``where``, each ``setting=value``; a `SettingError` if none is left."""
    kept = list(results)
    for entry in where:
        setting, equals, value = entry.partition("=")
        known = {key for result in results for key in settings_of(result)}
        if not equals:
            raise SettingError(f"--where takes setting=value, got {entry!r}")
        if setting not in known:
            raise SettingError(f"no run has a setting {setting}: {nearest(setting, known)}")
        values = sorted({_text(settings_of(result).get(setting)) for result in kept})
        kept = [result for result in kept if _text(settings_of(result).get(setting)) == value]
        if not kept:
            raise SettingError(f"no run has {entry}: there are {', '.join(values)}")
    return kept


def differing_settings(results: Sequence[Result]) -> dict[str, list[str]]:
    """In what the runs of one experiment differ beside method, seed and the method's settings: setting and values."""
    settings = [settings_of(result) for result in results]
    methods = [result.method for result in results]

    def matters(key: str) -> bool:
        if WITHOUT_EFFECT.fullmatch(key) or key.startswith("method."):
            return False
        return not TUNED.fullmatch(key) or _several_of_a_method(methods, [config.get(key) for config in settings])

    return {key: sorted(set(values)) for key, values in _varying(settings, matters).items()}


def _varying(settings: Sequence[dict[str, Any]], matters: Callable[[str], bool]) -> dict[str, tuple[str, ...]]:
    """The settings whose values are not all the same, as text; of those that always vary together the shortest name."""
    varying: dict[tuple[str, ...], str] = {}
    for key in sorted({key for config in settings for key in config}, key=lambda key: (len(key), key)):
        values = tuple(_text(config.get(key)) for config in settings)
        if len(set(values)) > 1 and matters(key):
            varying.setdefault(values, key)
    return {key: values for values, key in varying.items()}


def _several_of_a_method(methods: Sequence[str], values: Sequence[Any]) -> bool:
    found: dict[str, set[str]] = {}
    for method, value in zip(methods, values, strict=True):
        found.setdefault(method, set()).add(_text(value))
    return any(len(of_method) > 1 for of_method in found.values())


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
    experiments: dict[str, list[Result]] = {}
    for result in _each_once([result for result in results if result.metrics]):
        experiments.setdefault(result.name, []).append(result)
    named: list[Result] = []
    notes = _left_out([result for result in results if not result.metrics])
    for name, runs in experiments.items():
        differing = differing_settings(runs)
        if differing:
            found = "; ".join(f"{key} ({', '.join(values)})" for key, values in differing.items())
            choice = " ".join(f"--where {key}={values[0]}" for key, values in differing.items())
            changed = "Files of the data have changed between them. " if INPUT_DATA in differing else ""
            notes.append(
                f"The runs of {name} differ in {found}. {changed}"
                f"Runs are compared with their like alone: a table each. "
                f"as-lightning-report {choice} reports one of them."
            )
        tables: dict[str, list[Result]] = {}
        for run in runs:
            settings = settings_of(run)
            difference = ", ".join(f"{key}={_text(settings.get(key))}" for key in differing)
            tables.setdefault(f"{name} ({difference})" if difference else name, []).append(run)
        for table, of_table in tables.items():
            named += _variants(table, of_table)
    return named, notes


def _left_out(untested: Sequence[Result]) -> list[str]:
    if not untested:
        return []
    names = [f"{result.method}, seed {result.seed}" for result in untested[:NAMED]]
    names += [f"and {len(untested) - NAMED} more"] if len(untested) > NAMED else []
    verb = "is" if len(untested) == 1 else "are"
    return [
        f"{counted_runs(len(untested))} without test metrics, as made with test=false, {verb} left out: "
        f"{'; '.join(names)}."
    ]


def _variants(table: str, results: Sequence[Result]) -> list[Result]:
    """One table's results, those of a method told apart by its settings."""
    settings: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        settings.setdefault(result.method, []).append(flat(result.config))
    varying = {
        method: _varying(of_method, lambda key: key.startswith("method.")) for method, of_method in settings.items()
    }
    labelled = []
    for result in results:
        own = flat(result.config)
        differences = ", ".join(f"{key.rpartition('.')[2]}={_text(own.get(key))}" for key in varying[result.method])
        label = f"{result.method} ({differences})" if differences else result.method
        labelled.append(replace(result, name=table, method=label))
    seen = [(run.method, run.seed) for run in labelled]
    if len(set(seen)) < len(seen):
        method, seed = next(key for key in seen if seen.count(key) > 1)
        raise ValueError(
            f"two results are of {table}, {method}, seed {seed}, with the same settings: a report compares one run "
            "of each; leave one of their folders out"
        )
    return labelled


def _each_once(results: Sequence[Result]) -> list[Result]:
    """Without the runs that repeat another with the same settings and the same metrics."""
    kept: list[Result] = []
    for result in results:
        found = (result.name, result.method, result.seed, result.config, result.metrics)
        if not any(found == (run.name, run.method, run.seed, run.config, run.metrics) for run in kept):
            kept.append(result)
    return kept


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
