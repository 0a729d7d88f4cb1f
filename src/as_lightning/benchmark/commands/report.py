"""The command `as-lightning-report`: the report of a sweep, of several, or of a comparison, written again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from as_lightning.benchmark.report.like_with_like import chosen, comparable_results
from as_lightning.benchmark.report.page import print_comparison, print_sweep, write_comparison, write_sweep
from as_lightning.benchmark.report.record import COMPARISON_FILE, ComparisonRecord
from as_lightning.benchmark.run.result import Result, find_results
from as_lightning.benchmark.run.settings import SettingError
from as_lightning.benchmark.run.summary import lines_of_report


def report_of_sweep(results: Sequence[Result], output: Path, baseline: str | None = None) -> None:
    """Write and print the report of a sweep's runs; a `SettingError` if none has test metrics."""
    if not any(result.metrics for result in results):
        raise SettingError("no run has test metrics: make the runs with test=true")
    report = write_sweep(results, output, baseline=baseline)
    for note in comparable_results(results)[1]:
        print(note)
    print_sweep(results, baseline)
    print("\n".join(lines_of_report(report.html, report.markdown, report.csv)))


def report_of_comparison(folder: Path, output: Path) -> None:
    """Write and print the report of a comparison; a `ValueError` if it cannot be read or has no run of its baseline."""
    record = ComparisonRecord.read(folder)
    page = write_comparison(record, output)
    print_comparison(record)
    print("\n".join(lines_of_report(page.html, page.markdown, page.csv)))


def _comparison_among(paths: Sequence[Path], *, alone: bool) -> Path | None:
    """The folder of a comparison that is asked for; None for a sweep; a `SettingError` if more than it is asked for."""
    folders = [path for path in paths if (path / COMPARISON_FILE).is_file()]
    if folders and (len(paths) > 1 or not alone):
        raise SettingError(
            f"{folders[0]} is a comparison, which is reported whole and alone: give no other path, no --where and no "
            "--baseline"
        )
    return folders[0] if folders else None


def _refuse_runs_of_comparisons(results: Sequence[Result], paths: Sequence[Path]) -> None:
    if not any("comparison" in result.config for result in results):
        return
    around = {folder for path in paths for folder in path.parents if (folder / COMPARISON_FILE).is_file()}
    folders = sorted(around | {file.parent for path in paths for file in path.rglob(COMPARISON_FILE)})
    if folders:
        raise SettingError(
            "these are runs of comparisons, which are reported one by one: give the folder of a comparison: "
            f"{', '.join(map(str, folders))}"
        )
    raise SettingError(
        "these are runs of a comparison that has not ended: give the same as-lightning-compare command again, which "
        "makes the missing runs and writes the report"
    )


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
    results: list[Result] = []
    try:
        comparison = _comparison_among(options.paths, alone=not (options.where or options.baseline))
        if comparison is None:
            results = find_results(options.paths)
            _refuse_runs_of_comparisons(results, options.paths)
            results = chosen(results, options.where)
    except (ValueError, OSError) as error:
        parser.exit(1, f"as-lightning-report: {_described_error(error)}\n")
    first = options.paths[0]
    output = options.output or (first if first.is_dir() else first.parent) / "report"
    try:
        if comparison is not None:
            report_of_comparison(comparison, output)
        else:
            report_of_sweep(results, output, options.baseline)
    except (ValueError, FileNotFoundError) as error:
        parser.exit(1, f"as-lightning-report: {error}\n")
    except OSError as error:
        reason = _described_error(error)
        parser.exit(1, f"as-lightning-report: cannot write to {output} ({reason}): give another folder with --output\n")


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import report as command

    command()
