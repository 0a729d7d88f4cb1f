"""The command `as-lightning-report`: the report of a sweep, of several, or of a comparison, written again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from as_lightning.benchmark.report.page import publish
from as_lightning.benchmark.report.record import COMPARISON_FILE, ComparisonRecord
from as_lightning.benchmark.report.sweep_records import chosen, sweep_records
from as_lightning.benchmark.run.result import find_results
from as_lightning.benchmark.run.settings import SettingError


def _records(options: argparse.Namespace) -> tuple[list[ComparisonRecord], list[str]]:
    """What is asked for, and notes on it; a `SettingError` if it is more than one comparison or less than a run."""
    paths: list[Path] = options.paths
    comparisons = [path for path in paths if (path / COMPARISON_FILE).is_file()]
    if comparisons and (len(paths) > 1 or options.where or options.baseline):
        raise SettingError(
            f"{comparisons[0]} is a comparison, which is reported whole and alone: give no other path, no --where and "
            "no --baseline"
        )
    if comparisons:
        return [ComparisonRecord.read(comparisons[0])], []
    results = find_results(paths)
    if any("comparison" in result.config for result in results):
        around = {folder for path in paths for folder in path.parents if (folder / COMPARISON_FILE).is_file()}
        folders = sorted(around | {file.parent for path in paths for file in path.rglob(COMPARISON_FILE)})
        raise SettingError(
            f"these are runs of comparisons: give the folder of a comparison: {', '.join(map(str, folders))}"
            if folders
            else "these are runs of a comparison that has not ended: give the same as-lightning-compare command again"
        )
    records, notes = sweep_records(chosen(results, options.where), options.baseline)
    if not records:
        raise SettingError("no run has test metrics: make the runs with test=true")
    return records, notes


def _described_error(error: ValueError | OSError) -> str:
    """The error in words; of an error of the operating system its path and reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `as-lightning-report`."""
    # what each means is in as_lightning.benchmark.commands.help, which answers --help
    parser = argparse.ArgumentParser(prog="as-lightning-report", add_help=False)
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path)
    parser.add_argument("--output", metavar="FOLDER", type=Path)
    parser.add_argument("--baseline", metavar="METHOD")
    parser.add_argument("--where", action="append", default=[], metavar="SETTING=VALUE")
    options = parser.parse_args(arguments)
    first = options.paths[0]
    output = options.output or (first if first.is_dir() else first.parent) / "report"
    try:
        records, notes = _records(options)
    except (ValueError, OSError) as error:
        parser.exit(1, f"as-lightning-report: {_described_error(error)}\n")
    try:
        publish(records, output, failed=[failure for record in records for failure in record.failures], notes=notes)
    except ValueError as error:
        parser.exit(1, f"as-lightning-report: {error}\n")
    except OSError as error:
        reason = _described_error(error)
        parser.exit(1, f"as-lightning-report: cannot write to {output} ({reason}): give another folder with --output\n")


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import report as command

    command()
