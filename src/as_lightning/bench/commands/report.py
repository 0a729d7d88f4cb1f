"""The command `as-lightning-report`: the report of a sweep, of several, of a comparison, or of a
table of runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from as_lightning.bench.run.result import RESULT_FILE, find_results
from as_lightning.bench.run.settings import SettingError

if TYPE_CHECKING:
    from as_lightning.report.record import ComparisonRecord

EXAMPLES = """\
examples:
  as-lightning-report comparisons/digits
  as-lightning-report multirun/digits multirun/chords --output both
  as-lightning-report multirun/digits --baseline label_smoothing
  as-lightning-report scores.csv --baseline adamw --equal-within 0.5
  as-lightning-report scores.csv --columns method=model seed=run score=test_acc group=dataset --baseline resnet
"""
OF_TABLES = ("columns", "mode", "unit", "splits", "test_share")


def _is_table(path: Path) -> bool:
    """Whether a path is a table of runs: a file that holds no results of the app."""
    if path.is_dir() or path.name == RESULT_FILE:
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return '"epoch_seconds"' not in file.readline()


def _records(options: argparse.Namespace) -> tuple[list[ComparisonRecord], list[str]]:
    """The records of the paths, and notes on them; a `SettingError` where they make no report."""
    # here, so that --help need not wait for pandas
    from as_lightning.report.record import DESIGN_FILE, ComparisonRecord
    from as_lightning.report.sweep_records import sweep_records
    from as_lightning.report.table import read_table, table_records

    paths: list[Path] = options.paths
    arguments = {name: value for name in OF_TABLES if (value := getattr(options, name)) is not None}
    for path in paths:
        if not path.exists():
            siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
            similar = get_close_matches(path.name, siblings, n=1)
            suggestion = f": did you mean {path.with_name(similar[0])}?" if similar else ""
            raise SettingError(f"there is no file and no folder {path}{suggestion}")
    if options.output and options.output.exists() and not options.output.is_dir():
        raise SettingError(
            f"--output {options.output} is a file: name a folder, in which the page is written"
        )
    design = {} if options.equal_within is None else {"equal_within": options.equal_within}
    comparisons = [path for path in paths if (path / DESIGN_FILE).is_file()]
    if comparisons and (len(paths) > 1 or options.baseline or design):
        raise SettingError(
            f"{comparisons[0]} is a comparison, which is reported whole and alone, by its own "
            "design: give no other "
            "path, no --baseline and no --equal-within"
        )
    tables = [path for path in paths if not comparisons and _is_table(path)]
    folders = [path for path in paths if path not in tables]
    if arguments and folders:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in arguments)
        raise SettingError(
            f"{folders[0]} is no table of runs, for which alone {names} can be given"
        )
    if comparisons:
        return [ComparisonRecord.read(comparisons[0])], []
    records: list[ComparisonRecord] = []
    notes: list[str] = []
    for path in tables:
        try:
            new_records, new_notes = table_records(
                read_table(path), path.stem, options.baseline, **arguments, **design
            )
        except ValueError as error:
            raise SettingError(
                str(error) if str(path) in str(error) else f"{path}: {error}"
            ) from error
        for record in (
            new for new in new_records if new.name in {earlier.name for earlier in records}
        ):
            record.name = f"{record.name} of {path}"  # else two records would share a name
        records, notes = [*records, *new_records], [*notes, *new_notes]
    if folders:
        results = find_results(folders)
        if any(result.phase for result in results):
            expected = f"the folder of one that has ended, which holds {DESIGN_FILE}"
            raise SettingError(f"these are runs of comparisons: give {expected}")
        new_records, new_notes = sweep_records(results, options.baseline, **design)
        records, notes = [*records, *new_records], [*notes, *new_notes]
    if not records:
        raise SettingError("no run has test metrics: make the runs with test=true")
    return records, notes


def _roles(text: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected ROLE=COLUMN, as in method=model, got {text!r}")
    return role, name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="as-lightning-report",
        description="Write the report of a sweep or of a comparison anew, or say what a table of "
        "your own runs shows.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option: Any = parser.add_argument
    paths = "folders with result.json or runs.jsonl files below them, the folder of one comparison, or tables of runs"
    option(
        "paths", nargs="+", metavar="PATH", type=Path, help=f"{paths} (CSV, TSV, JSON, JSON lines)"
    )
    output = "where the page is written; by default 'report' in the first path, for a table nowhere"
    option("--output", metavar="FOLDER", type=Path, help=output)
    baseline = (
        "what is compared with; by default softmax, or multilabel_softmax with several labels"
    )
    option("--baseline", metavar="METHOD", help=baseline)
    option(
        "--equal-within",
        metavar="POINTS",
        type=float,
        help="the difference that counts as equal; by default 0.5",
    )
    form = "print the verdicts or the page in this form alone"
    option("--format", choices=("json", "md", "html", "latex"), help=form)
    words = ("worse", "undecided", "not worse", "no gain", "equal", "better")
    fail_if = f"exit with 1 if a verdict is this word: {', '.join(words)}"
    option("--fail-if", choices=words, metavar="WORD", help=fail_if)
    table = parser.add_argument_group("tables of runs")
    option = table.add_argument
    columns = "the columns of method, seed, score, group (data set) or seconds, where their names do not say it"
    option("--columns", nargs="+", metavar="ROLE=COLUMN", type=_roles, help=columns)
    direction = "whether more or less of the score is better, unless its name says it"
    option("--mode", choices=("max", "min"), help=direction)
    unit = "share: 0 to 1, a point is 0.01; percent: 0 to 100; raw: any; by default auto, share or percent"
    option("--unit", choices=("auto", "share", "percent", "raw"), help=unit)
    splits = "repeated: each seed is another random split of the same examples"
    option("--splits", choices=("fixed", "repeated"), help=splits)
    option(
        "--test-share",
        metavar="SHARE",
        type=float,
        help="of the examples in such a test split; by default 0.2",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `as-lightning-report`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    options.columns = options.columns and dict(options.columns)
    try:
        records, notes = _records(options)
        from as_lightning.report.page import publish, rendered, write_report
        from as_lightning.report.table import verdict_table

        first = options.paths[0]
        output = options.output
        if output is None and not options.format and not _is_table(first):
            output = (first if first.is_dir() else first.parent) / "report"
        if not options.format:
            publish(records, output, notes=notes)
        else:
            print(rendered(records, options.format, notes))
            if output is not None:
                write_report(records, output, notes=notes)
        words = set(verdict_table(records)["word"])
    except (ValueError, OSError) as error:
        parser.exit(1, f"as-lightning-report: {error}\n")
    if options.fail_if in words:
        sys.exit(1)
