"""``comparison.json``: what a comparison knows beside its runs' results, so that its report can be written again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from as_lightning.benchmark.compare.engine import Comparison, Failure
from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.run.result import RESULT_FILE, Result

COMPARISON_FILE = "comparison.json"
FORMAT = 1


def earlier_commands(directory: str | Path) -> list[str]:
    """The commands that a comparison in this folder has recorded; none where there is no (readable) comparison."""
    try:
        content = json.loads((Path(directory) / COMPARISON_FILE).read_text(encoding="utf-8"))
        return [str(command) for command in content["commands"]]
    except (OSError, ValueError, TypeError, KeyError):
        return []


@dataclass(frozen=True)
class StoredComparison:
    """A comparison, and how its report was made.

    Attributes:
        comparison: the runs, the trials and the chosen settings.
        split: what the scores are of.
        mode: ``"max"`` if more of the score is better, or ``"min"``.
        commands: that made the runs.
    """

    comparison: Comparison
    split: str = "test"
    mode: str = "max"
    commands: Sequence[str] = ()

    def write(self, directory: str | Path) -> Path:
        """Write ``comparison.json``; the final runs have their own ``result.json`` below ``runs/``."""
        comparison = self.comparison
        content = {
            "plan": asdict(comparison.plan),
            "settings": comparison.settings,
            "tuning": comparison.tuning,
            "failures": [{"run": asdict(failure.run), "error": failure.error} for failure in comparison.failures],
            "notes": comparison.notes,
            "split": self.split,
            "mode": self.mode,
            "commands": list(self.commands),
            "format": FORMAT,
        }
        path = Path(directory) / COMPARISON_FILE
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, directory: str | Path) -> StoredComparison:
        """Read a comparison's folder: its ``comparison.json`` and the results of the final runs of its plan.

        Raises:
            FileNotFoundError: if one of them is missing.
            ValueError: if a file is not what it should be; the message names it.
        """
        path = Path(directory) / COMPARISON_FILE
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: expected the folder of a finished comparison")
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if content.get("format") != FORMAT:
                raise ValueError(f"expected format {FORMAT}, got {content.get('format')!r}")
            comparison = Comparison(
                ComparisonPlan(**content["plan"]),
                failures=[Failure(Run(**failure["run"]), failure["error"]) for failure in content["failures"]],
                settings=content["settings"],
                tuning={
                    method: [(settings, score) for settings, score in trials]
                    for method, trials in content["tuning"].items()
                },
                notes=content["notes"],
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a comparison of as-lightning: {error}") from error
        # an earlier comparison in the same folder may have left runs of another plan
        failed = {failure.run.folder for failure in comparison.failures}
        planned = [run.folder for run in comparison.plan.final_runs(comparison.settings)]
        files = [Path(directory) / folder / RESULT_FILE for folder in planned if folder not in failed]
        comparison.results = [Result.read(file) for file in files if file.exists()]
        if not comparison.results:
            raise FileNotFoundError(f"none of the {len(planned)} final runs of {path} has its {RESULT_FILE} beside it")
        return cls(comparison, content["split"], content["mode"], content["commands"])
