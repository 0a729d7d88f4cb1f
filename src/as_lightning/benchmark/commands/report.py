"""The command `as-lightning-report`: the report of a sweep, of several, or of a comparison, written again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from as_lightning.benchmark.run.result import find_results
from as_lightning.benchmark.run.settings import SettingError

if TYPE_CHECKING:
    from as_lightning.benchmark.report.record import ComparisonRecord

EXAMPLES = """\
examples:
  as-lightning-report comparisons/digits
  as-lightning-report multirun/digits multirun/chords --output both
  as-lightning-report multirun/digits --baseline label_smoothing
"""


def _records(options: argparse.Namespace) -> tuple[list[ComparisonRecord], list[str]]:
    """What is asked for, and notes on it; a `SettingError` if it is more than one comparison or less than a run."""
    # here, so that --help need not wait for pandas
    from as_lightning.benchmark.report.record import COMPARISON_FILE, ComparisonRecord
    from as_lightning.benchmark.report.sweep_records import sweep_records

    paths: list[Path] = options.paths
    comparisons = [path for path in paths if (path / COMPARISON_FILE).is_file()]
    if comparisons and (len(paths) > 1 or options.baseline):
        raise SettingError(
            f"{comparisons[0]} is a comparison, which is reported whole and alone: give no other path and no --baseline"
        )
    if comparisons:
        return [ComparisonRecord.read(comparisons[0])], []
    results = find_results(paths)
    if any(result.phase for result in results):
        asked = f"the folder of one that has ended, which holds {COMPARISON_FILE}"
        raise SettingError(f"these are runs of comparisons: give {asked}")
    records, notes = sweep_records(results, options.baseline)
    if not records:
        raise SettingError("no run has test metrics: make the runs with test=true")
    return records, notes


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `as-lightning-report`."""
    parser = argparse.ArgumentParser(
        prog="as-lightning-report",
        description="Write the report of a sweep or of a comparison anew, or one report of several sweeps.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    paths = "folders with result.json or runs.jsonl files below them, or the folder of one comparison"
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=paths)
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="by default 'report' in the first path")
    baseline = "what is compared with; by default softmax, or multilabel_softmax with several labels"
    parser.add_argument("--baseline", metavar="METHOD", help=baseline)
    options = parser.parse_args(arguments)
    from as_lightning.benchmark.report.page import publish

    first = options.paths[0]
    output = options.output or (first if first.is_dir() else first.parent) / "report"
    try:
        records, notes = _records(options)
        publish(records, output, notes=notes)
    except (ValueError, OSError) as error:
        parser.exit(1, f"as-lightning-report: {error}\n")
