"""Read committed comparisons anew by the present protocol, and make the runs that it asks for.

    python results/reread.py results/*/*/                      # makes none: what is still open is said
    python results/reread.py --hours 0.2 results/digits/*/     # makes runs for at most so many hours of training each

Each writes comparison.json and the report beside its runs.jsonl.

The plan is that of the command which the record holds, the trials are those that were made: only the choice among them
is the present one. Where it falls on settings of which there are no runs, the comparison stays as it is, and the runs
that it lacks are printed.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gather import gather
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode

from as_lightning.bench.commands.compare import as_hydra_reads
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.result import Result, new_session, read_runs
from as_lightning.compare.configured import ConfiguredComparison, job_config, run_job
from as_lightning.compare.engine import execution
from as_lightning.compare.next_runs import Outcome, Replay
from as_lightning.compare.plan import ComparisonPlan, Run
from as_lightning.report.page import write_report
from as_lightning.report.record import ComparisonRecord, Trial

ROOT = Path(__file__).resolve().parents[1]


class Reread(Replay):
    """A comparison by the trials that its record holds."""

    def __init__(
        self, plan: ComparisonPlan, finished: Mapping[Run, Outcome], record: ComparisonRecord
    ) -> None:
        # the loss of the record is each method's own, by which no tie is decided
        self.made = {
            name: [trial._replace(loss=math.nan) for trial in tried]
            for name, tried in record.tuning.items()
        }
        super().__init__(plan, finished, {})

    def _search(
        self, names: Sequence[str], own: dict[str, list[Trial]], shared: Mapping[str, list[Trial]]
    ) -> None:
        own |= {
            name: [trial for trial in self.made.get(name, []) if not trial.shared] for name in names
        }

    def _raced(
        self, name: str, trials: Sequence[Trial], own: Mapping[str, list[Trial]]
    ) -> list[Trial]:
        return list(trials)


def planned(record: ComparisonRecord) -> tuple[ConfiguredComparison, ComparisonPlan]:
    """The command that made a comparison, and its plan, for what was compared then."""
    words = [as_hydra_reads(word) for word in shlex.split(record.commands[0])[1:]]
    words = [word for word in words if not word.startswith(("max_hours=", "hydra."))]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        loader = ConfigLoaderImpl(create_config_search_path(str(config_dir())))
        others = f"hydra.searchpath=[file://{ROOT / 'results' / 'conf'}]"
        config = loader.load_configuration("compare", [*words, others], run_mode=RunMode.MULTIRUN)
        job = ConfiguredComparison(config, launcher=None, loader=loader, arguments=words)  # type: ignore[arg-type]
        spaces = {name: job.space(name) for name in job.configured}
        facts: dict[str, Any] = {
            "name": record.name,
            "score": record.score,
            "splits": record.splits,
            "commands": record.commands,
        }
        job.split_seed = "per_seed" if record.splits == "per_seed" else job.split_seed
        return job, job.plan.of(
            spaces, **facts, changes={name: job.changes(name) for name in job.configured}
        )


def finished_runs(folder: Path) -> dict[Run, Outcome]:
    """The runs of a comparison's folder, as the engine asks for them."""
    finished: dict[Run, Outcome] = {}
    for path, result in read_runs(folder).items():
        phase, name, last = path.split("/")
        trial = int(last.partition(",")[0].removeprefix("trial=")) if phase == "tuning" else 0
        run = Run(
            "tuning" if phase == "tuning" else "final",
            name,
            result.settings,
            result.budget,
            result.seed,
            trial,
        )
        finished[run] = result
    return finished


def main() -> None:
    """Read the comparisons that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args()
    new_session()
    for folder in asked.folders:
        if not all((folder / name).exists() for name in ("comparison.json", "runs.jsonl")):
            continue
        if not (record := ComparisonRecord.read(folder)).commands:
            print(f"{folder}: made in Python")
            continue
        finished = finished_runs(folder)
        job, plan = planned(record)
        spent = (
            sum(run.train_seconds for run in finished.values() if isinstance(run, Result)) / 3600
        )
        plan.max_hours = spent + max(asked.hours, 1e-9)

        def make(run: Run, job: ConfiguredComparison = job, folder: Path = folder) -> Result:
            return run_job(job_config(job._compose(*job.overrides_of(run)), folder / run.folder))

        before = len(finished)
        while (replay := Reread(plan, finished, record)).runs and asked.hours:
            finished |= dict(execution(make)(replay.runs))
        if len(finished) > before:
            gather(folder)
            shutil.rmtree(folder / "runs")
        if replay.runs:
            print(f"{folder}: lacks {len(replay.runs)} runs, as {replay.runs[0]}")
            continue
        ended = replay.ended
        ended.stopped = re.sub(
            r"max_hours=\S+ was reached with", "The runs that are stored end with", ended.stopped
        )
        if (
            len(finished) == before
        ):  # test examples are not stored with the runs: what they said stays
            ended.disagreed, ended.examples = record.disagreed, record.examples
        words = {(v.arm.candidate, v.arm.budget): v.word for v in record.verdicts()}
        changed = [
            f"{v.arm.candidate} {v.word}"
            for v in ended.verdicts()
            if words.get((v.arm.candidate, v.arm.budget)) != v.word
        ]
        made = (
            f"{before} runs, {len(finished) - before} made"
            if len(finished) > before
            else f"{before} runs"
        )
        print(
            f"{folder}: {made}; {', '.join(changed) or 'the same words'}; {ended.stopped}",
            flush=True,
        )
        ended.write(folder)
        write_report([ended], folder / "report")


if __name__ == "__main__":
    main()
