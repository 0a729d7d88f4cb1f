"""`result.json`: what one run measured, and the command, machine and versions that made it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from as_lightning.bench.machine import machine_description, package_versions

RESULT_FILE = "result.json"
# an environment variable, which a launcher's jobs inherit
SESSION = "AS_LIGHTNING_SESSION"


def new_session() -> None:
    """Start a new session for the runs from here on: times are compared within one session only."""
    os.environ[SESSION] = secrets.token_hex(4)


@contextmanager
def whole_file(place: Path) -> Iterator[Path]:
    """A path to write to, which moves to `place` at the end of the block; an error removes it."""
    partial = place.with_name(f"{place.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        os.replace(partial, place)
    finally:
        partial.unlink(missing_ok=True)


def own_file(path: Path) -> Path:
    """Return the path of a file of this user; a PermissionError refuses one of somebody else."""
    # Windows does not say whose a file is: there each file is read
    if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
        raise PermissionError(
            f"{path} belongs to another user; reading it can run code: copy it if you trust them"
        )
    return path


@dataclass
class Result:
    name: str  # the experiment, a column of the report
    candidate: str  # what is compared, a row of the report
    score: str  # the metric that runs are compared by, a key of `metrics`; higher is better
    seed: int  # what the runs of different candidates are paired by
    metrics: dict[str, float]  # of the test split, at the weights of the best validation score
    train_seconds: float  # training time, validation excluded
    epoch_seconds: list[float] = field(default_factory=list)  # the same, per epoch
    evaluations: list[dict[str, float]] = field(default_factory=list)  # see `RunRecorder`
    loss_accuracy_correlation: float | None = None  # Pearson's, over the evaluations
    # per epoch the counts `epoch, masked_samples, samples, masked_classes, classes`
    masking: list[dict[str, int]] = field(default_factory=list)
    optimizer_steps: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    phase: Literal["", "tuning", "final"] = ""  # of a comparison; empty for a run that is in none
    trial: int = 0  # of the search, in tuning
    epochs: float | None = None  # the run's limit; None where only steps or hours end it
    settings: dict[str, Any] = field(default_factory=dict)  # the tuned ones
    parameters: int | None = None  # how many numbers of the module are trained; None where unknown
    resumed: bool = False  # whether the run was interrupted and went on from a checkpoint
    session: str = field(default_factory=lambda: os.environ.get(SESSION, ""))  # of its command
    versions: dict[str, str] = field(default_factory=package_versions)
    machine: dict[str, Any] = field(default_factory=machine_description)
    inputs: dict[str, str] = field(default_factory=dict)  # digests of what it has read
    class_rows: dict[str, int] = field(default_factory=dict)  # of training
    reading: list[dict[str, Any]] = field(default_factory=list)  # the fields of each `Reading`

    def write(self, directory: str | Path) -> Path:
        """Write `result.json` into `directory`, in one move."""
        path = Path(directory) / RESULT_FILE
        with whole_file(path) as partial:
            text = json.dumps(asdict(self), separators=(",", ":"))
            partial.write_text(text + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a `result.json`; a ValueError names a file that is none."""
        try:
            content = {"session": "", **json.loads(Path(path).read_bytes())}
            for name in content.keys() - {entry.name for entry in fields(cls)}:
                del content[name]  # of another version
            result = cls(**content)
            if result.metrics and result.score not in result.metrics:
                raise ValueError(f"its metrics lack the score {result.score!r}")
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"{path} is not a result of as-lightning: {error}") from error
        return result


def find_results(folder: Path) -> list[Result]:
    """Return all results below a folder, by name; FileNotFoundError for none."""
    files = sorted(folder.rglob(RESULT_FILE))
    if not files:
        raise FileNotFoundError(f"no {RESULT_FILE} below {folder}: run `as-lightning -m ...` first")
    return [Result.read(file) for file in files]
