"""The command `as-lightning-report`: verdicts on a table of scores, or the report of run folders."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from as_lightning.statistics.printable import printable

DESCRIPTION = """\
Say what a table of scores shows, or write the report of a sweep or of a comparison anew.

examples:
  as-lightning-report scores.csv --baseline adamw
  as-lightning-report scores.csv --candidate model --seed run --score wer --baseline small
  as-lightning-report results.tsv --candidate commit --baseline a1b2c3d --only d4e5f6a \\
      --fail-if not-better --tried 12 --format json
  as-lightning-report multirun/digits multirun/chords --output both
"""
STATUS = """\
exit status: 0 the gate of --fail-if passes; 1 it fails; 2 a candidate could not be judged; 3 the
input is no table that can be judged, and a sentence says what is missing
"""
PATHS = "a table, or folders of runs"
EQUAL = "the difference that counts as none; 0.5 points, or none for other scores"
FORMS = ("json", "md", "latex", "html")
GATES = ("worse", "not-better")
LISTS = (
    ("--candidate", "COLUMN,...", "what names a candidate"),
    ("--seed", "COLUMN,...", "what runs are paired by"),
    ("--score", "COLUMN,...", "each gets an answer"),
    ("--aside", "COLUMN,...", "columns that make no candidate"),
    ("--only", "NAME,...", "the candidates to judge; the others count as tried"),
)
TEXTS = (
    ("--candidate-from", "COLUMN=PATTERN", "as in Name=(.+)-seed"),
    ("--dataset", "COLUMN", "each data set gets an answer"),
)
NUMBERS = (
    ("--test-share", "SHARE", "of the examples, in a repeated split"),
    ("--target", "SCORE", "a constant in place of the baseline"),
)
NOTHING_JUDGED, INPUT_ERROR = 2, 3
INSTALL = 'pip install ".[report]", or ".[benchmark]" for folders of runs'
# what is said of a table alone
OF_TABLES = (
    *("candidate", "candidate_from", "seed", "score", "dataset", "aside", "wide", "only", "tried"),
    *("higher_is_better", "lower_is_better", "unit", "splits", "test_share", "target"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `as-lightning-report`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    try:
        for path in options.paths:
            if not path.exists():
                raise ValueError(f"there is no file and no folder {path}")
        if any(path.is_dir() or path.name == "result.json" for path in options.paths):
            status = _report_folders(options)
        else:
            status = _judge_table(options, given)
    except ImportError as error:  # its name is the package that is missing
        parser.exit(INPUT_ERROR, f"as-lightning-report needs the package {error.name}: {INSTALL}\n")
    except (ValueError, OSError) as error:
        missing = getattr(error, "options", {})
        lines = [printable(line) for line in str(error).split("\n")]
        if missing:
            command = shlex.join(["as-lightning-report", *_completed(given, missing)])
            lines.append(f"As in: {printable(command)}")
        parser.exit(INPUT_ERROR, "as-lightning-report: {}\n".format("\n".join(lines)))
    if status:
        sys.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="as-lightning-report",
        description=DESCRIPTION,
        epilog=STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # argparse's own status of errors is 2, which here says that nothing was judged
    parser.error = lambda message: parser.exit(INPUT_ERROR, f"as-lightning-report: {message}\n")  # type: ignore[method-assign]
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=PATHS)
    parser.add_argument("--baseline", metavar="NAME", default="", help="what is compared with")
    parser.add_argument(
        "--format", choices=FORMS, help="print the answer, or the page, in this form"
    )
    parser.add_argument("--fail-if", choices=GATES, help="end with 1 if a candidate is this")
    parser.add_argument("--equal-within", metavar="SIZE", type=float, help=EQUAL)
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="for the page of run folders")
    table = parser.add_argument_group("tables (CSV, TSV, JSON, JSON lines, Parquet)")
    for name, meta, text in LISTS:
        table.add_argument(name, metavar=meta, default=[], type=_listed, help=text)
    for name, meta, text in TEXTS:
        table.add_argument(name, metavar=meta, default="", help=text)
    for name, meta, text in NUMBERS:
        table.add_argument(name, metavar=meta, type=float, help=text)
    table.add_argument("--tried", metavar="N", type=int, default=0, help="tried before, elsewhere")
    table.add_argument("--unit", choices=("points", "raw"), default="", help="points: shares x 100")
    table.add_argument("--splits", choices=("repeated",), default="", help="each run has its own")
    table.add_argument("--wide", action="store_true", help="each candidate has a column")
    direction = table.add_mutually_exclusive_group()
    direction.add_argument("--higher-is-better", action="store_true", default=None)
    direction.add_argument("--lower-is-better", action="store_true")
    return parser


def _completed(given: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """The arguments with what a user must still name, as far as it is known."""
    words = list(given)
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if flag in words and value:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    return [word for word in words if word]


def _judge_table(options: argparse.Namespace, given: Sequence[str]) -> int:
    """Print the verdicts on a table, and return the exit status."""
    # here, so that --help need not wait for pandas
    from as_lightning.statistics.answer import as_json, screen
    from as_lightning.statistics.judge import Answer, Question, answers_of
    from as_lightning.statistics.runs import Columns, runs_of
    from as_lightning.statistics.score_table import read_table

    if len(options.paths) > 1:
        raise ValueError(
            "give one table at a time: tables of several data sets are joined by a column dataset"
        )
    frame, notes = read_table(options.paths[0])
    if options.lower_is_better:
        options.higher_is_better = False
    question = Question(**_fields(Question, options))
    columns = Columns(**_fields(Columns, options))  # of one score at a time, below
    answers: list[Answer] = []
    for score in options.score or [""]:
        runs = runs_of(frame, replace(columns, score=score))
        runs.notes[:0] = notes
        answers += answers_of(runs, question, options.splits)
    if options.format == "json":
        print(as_json(answers))
    elif options.format:
        from as_lightning.report.score_page import score_page

        print(score_page(answers, options.format))
    else:
        print(screen(answers))
    rows = [row for answer in answers for row in answer.candidates]
    return _status([(row.verdict.word, row.judged) for row in rows], options.fail_if)


def _fields(kind: type, options: argparse.Namespace) -> dict[str, Any]:
    """The options that are fields of a class."""
    return {
        field.name: getattr(options, field.name) for field in fields(kind) if field.name in options
    }


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _status(words: Sequence[tuple[str, bool]], fail_if: str | None) -> int:
    """The exit status of verdicts, each a word and whether it could be judged."""
    for word, judged in words:
        if judged and fail_if == "worse" and word == "worse":
            return 1
        if judged and fail_if == "not-better" and word != "better":
            return 1
    unjudged = [word for word, judged in words if not judged]
    if unjudged and (fail_if or len(unjudged) == len(words)):
        return NOTHING_JUDGED
    return 0


def _report_folders(options: argparse.Namespace) -> int:
    """Write the report of a sweep, of several, or of a comparison, and return the exit status."""
    # a table needs none of these
    from as_lightning.bench.packages import require_core

    require_core()
    from as_lightning.bench.run.result import find_results
    from as_lightning.report.page import publish, rendered, write_report
    from as_lightning.report.record import DESIGN_FILE, ComparisonRecord
    from as_lightning.report.sweep_records import sweep_records

    for name in OF_TABLES:
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise ValueError(f"{options.paths[0]} is no table, for which alone --{flag} is")
    output = options.output
    if output and output.exists() and not output.is_dir():
        raise ValueError(f"--output {output} is a file: name a folder, for the page")
    design = {}
    if options.equal_within is not None:
        design["equal_within"] = options.equal_within
    first = options.paths[0]
    notes: list[str] = []
    comparisons = [path for path in options.paths if (path / DESIGN_FILE).is_file()]
    if comparisons:
        if len(options.paths) > 1 or options.baseline or design:
            raise ValueError(
                f"{comparisons[0]} is a comparison, which is reported whole and alone, by its own "
                "design: give no other path, no --baseline and no --equal-within"
            )
        records = [ComparisonRecord.read(first)]
    else:
        results = find_results(options.paths)
        if any(result.phase for result in results):
            raise ValueError(
                f"these are runs of comparisons: give the folder of one that has ended, which "
                f"holds {DESIGN_FILE}"
            )
        records, notes = sweep_records(results, options.baseline or None, **design)
    if not records:
        raise ValueError("no run has test metrics: make the runs with test=true")
    if output is None and not options.format:
        output = (first if first.is_dir() else first.parent) / "report"
    if options.format:
        print(rendered(records, options.format, notes))
        if output is not None:
            write_report(records, output, notes=notes)
    else:
        publish(records, output, notes=notes)
    if not options.fail_if:
        return 0
    found = [verdict for record in records for verdict in record.verdicts()]
    return _status([(of.word, of.decided or not of.reason) for of in found], options.fail_if)
