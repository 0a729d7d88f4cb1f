"""``result.json``: what one run has found, and where and by what it was made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULT_FILE = "result.json"
FORMAT = 2


@dataclass
class Result:
    """One finished run.

    Attributes:
        name: the experiment, a column of the report.
        method: the method, a row of the report.
        score: the metric that runs are compared by, a key of ``metrics``; higher is better.
        seed: what the runs of different methods are paired by.
        metrics: of the test split, at the weights of the best validation score; with label noise also what became of
            the wrong labels (:mod:`as_lightning.benchmark.memorisation`); plain numbers.
        train_seconds: training time, validation excluded.
        epoch_seconds: the same, per epoch.
        evaluations: see :class:`~as_lightning.benchmark.run_recorder.RunRecorder`.
        loss_accuracy_correlation: Pearson's, over the evaluations; None where it is not defined.
        masking: per epoch the counts ``epoch, masked_samples, samples, masked_classes, classes``.
        accumulation: per window ``[epoch, batch, length, masked_samples, samples]``; empty without adaptive
            accumulation.
        optimizer_steps: how often the optimizer has stepped.
        config: the resolved configuration.
        resumed: whether the run was interrupted and went on from a checkpoint.
        skipping: per epoch the counts of :class:`~as_lightning.callbacks.SkippingEpoch`; empty without skipping.
        versions: of the packages that the numbers depend on.
        machine: processor, cores and accelerator.
        reliability: of the test split, per diagram (``unscaled``, ``scaled``) its bins, see
            :meth:`as_lightning.functional.Reliability.points`; empty where it was not measured.
        test_samples: how many samples the test metrics are of; None where unknown.
        format: version of this file's format.
    """

    name: str
    method: str
    score: str
    seed: int
    metrics: dict[str, float]
    train_seconds: float
    epoch_seconds: list[float]
    evaluations: list[dict[str, float]]
    loss_accuracy_correlation: float | None
    masking: list[dict[str, int]]
    accumulation: list[list[int]]
    optimizer_steps: int
    config: dict[str, Any]
    resumed: bool = False
    skipping: list[dict[str, int]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=lambda: package_versions())
    machine: dict[str, Any] = field(default_factory=lambda: machine_description())
    reliability: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    test_samples: int | None = None
    format: int = FORMAT

    def write(self, directory: str | Path) -> Path:
        """Write ``result.json`` into ``directory``, in one move, so that no reader ever meets half a file."""
        path = Path(directory) / RESULT_FILE
        partial = path.with_suffix(".json.partial")
        partial.write_text(json.dumps(asdict(self), indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
        os.replace(partial, path)
        return path

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a ``result.json``.

        Raises:
            ValueError: if the file is not one, or of another format; the message names the file.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content.get("format") != FORMAT:
                raise ValueError(f"expected format {FORMAT}, got {content.get('format')!r}")
            return cls(**content)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a result of as-lightning: {error}") from error


def find_results(paths: Iterable[str | Path]) -> list[Result]:
    """All results below the given folders (or in the given files), in the order of their names.

    Raises:
        FileNotFoundError: if a path does not exist, or none of them holds a result.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: expected a result.json or a folder with some below it")
        files += [path] if path.is_file() else sorted(path.rglob(RESULT_FILE))
    if not files:
        raise FileNotFoundError(f"no {RESULT_FILE} below {', '.join(map(str, paths))}: run `as-lightning -m ...` first")
    return [Result.read(file) for file in files]


def distinguish_variants(results: Sequence[Result]) -> list[Result]:
    """Name the settings in which runs of one method differ, so that a sweep of ``method.delta`` has a row a margin.

    Runs that share experiment, method and seed are told apart by the configuration's values that vary between them:
    ``as_softmax`` becomes ``as_softmax (delta=0.2)``.

    The same run twice, from two sweeps, counts once.

    Raises:
        ValueError: if two of them do not differ in any setting, but in what they have found.
    """
    results = _each_once(results)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.name, result.method), []).append(result)
    labels: dict[int, str] = {}
    for (name, method), runs in groups.items():
        if len({run.seed for run in runs}) == len(runs):
            continue
        settings = [_flat(run.config) for run in runs]
        varying: dict[tuple[str, ...], str] = {}  # of settings that vary together (interpolations) the shortest name
        for key in sorted({key for flat in settings for key in flat}, key=len):
            values = tuple(repr(flat.get(key)) for flat in settings)
            if key != "seed" and len(set(values)) > 1:
                varying.setdefault(values, key)
        for run, flat in zip(runs, settings, strict=True):
            differences = ", ".join(f"{key.rpartition('.')[2]}={flat.get(key)}" for key in varying.values())
            labels[id(run)] = f"{method} ({differences})" if differences else method
        seen = [(labels[id(run)], run.seed) for run in runs]
        if len(set(seen)) < len(seen):
            label, seed = next(key for key in seen if seen.count(key) > 1)
            raise ValueError(
                f"two results are of {name}, {label}, seed {seed}, with the same settings: a report compares one run "
                "of each; leave one of their folders out"
            )
    return [replace(result, method=labels.get(id(result), result.method)) for result in results]


def _each_once(results: Sequence[Result]) -> list[Result]:
    """Without the runs that repeat another with the same settings and the same metrics."""
    kept: list[Result] = []
    for result in results:
        found = (result.name, result.method, result.seed, result.config, result.metrics)
        if not any(found == (run.name, run.method, run.seed, run.config, run.metrics) for run in kept):
            kept.append(result)
    return kept


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def package_versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    versions = {"python": platform.python_version()}
    for package in ("as-lightning", "torch", "lightning", "torchmetrics", "torchvision", "torchaudio", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def machine_description() -> dict[str, Any]:
    """Processor, cores and accelerator; no host names, no paths."""
    import torch

    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "system": platform.system(),
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
