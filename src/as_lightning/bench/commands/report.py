"""The command `as-lightning-report`: verdicts on a table, a sweep or a comparison."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

from as_lightning.statistics.printable import printable

DESCRIPTION = """\
Say what a table of scores or a sweep shows, or write the report of a comparison anew.

examples:
  as-lightning-report scores.csv --baseline adamw
  as-lightning-report scores.csv --candidate model --seed run --score wer --baseline small
  as-lightning-report multirun/digits --fail-if not-better
"""
STATUS = """\
exit status: 0 the gate of --fail-if passes; 1 it fails; 2 a candidate could not be judged; 3 the
input is no table that can be judged, and a sentence says what is missing
"""
NOTHING_JUDGED, INPUT_ERROR = 2, 3
INSTALL = 'pip install ".[report]", or ".[benchmark]" for folders of runs'


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    try:
        if (options.path / "design.json").is_file():
            words = _report_comparison(options.path, given)
        else:
            words = _judge(options)
    except ImportError as error:  # its name is the package that is missing
        parser.exit(INPUT_ERROR, f"as-lightning-report needs the package {error.name}: {INSTALL}\n")
    except (ValueError, OSError) as error:
        sentence = printable(error)
        hint = getattr(error, "hint", ())
        if hint:
            command = shlex.join(["as-lightning-report", *given, *hint])
            sentence += f"\nAs in: {printable(command)}"
        parser.exit(INPUT_ERROR, f"as-lightning-report: {sentence}\n")
    if status := _status(words, options.fail_if):
        sys.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="as-lightning-report",
        description=DESCRIPTION,
        epilog=STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def error(message: str) -> NoReturn:
        # with argparse's own status, 2, nothing was judged
        parser.exit(INPUT_ERROR, f"{parser.format_usage()}{parser.prog}: {message}\n")

    parser.error = error  # type: ignore[method-assign]
    columns: dict[str, Any] = {"metavar": "COLUMN,...", "type": _listed, "default": ()}
    number: dict[str, Any] = {"metavar": "N", "type": int, "default": 0}
    add = parser.add_argument
    add("path", metavar="PATH", type=Path, help="a table, or a folder of runs")
    add("--candidate", **columns, help="what names a candidate")
    add("--seed", **columns, help="what runs are paired by")
    add("--score", **columns, help="each gets an answer")
    add("--aside", **columns, help="columns that make no candidate")
    add("--dataset", metavar="COLUMN", default="", help="each data set gets an answer")
    add("--wide", action="store_true", help="each other column is a candidate")
    add("--baseline", metavar="NAME", default="", help="what is compared with")
    add("--only", **columns | {"metavar": "NAME,..."}, help="the others count as tried")
    add("--unit", choices=("points", "raw"), default="", help="points: shares times 100")
    add("--equal-within", metavar="SIZE", type=float, help="what counts as no difference")
    add("--target", metavar="SCORE", type=float, help="in place of the baseline")
    add("--tried", **number, help="candidates tried elsewhere")
    add("--test-examples", **number, help="for N new ones")
    add("--fail-if", choices=("worse", "not-better"), help="end with 1 if one is this")
    add("--format", choices=("json", "latex", "html"), help="print another form")
    direction = parser.add_mutually_exclusive_group()
    for name, higher in (("--higher-is-better", True), ("--lower-is-better", False)):
        direction.add_argument(name, dest="higher_is_better", action="store_const", const=higher)
    return parser


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _judge(options: argparse.Namespace) -> list[str]:
    """Print the verdicts on a table or a sweep, and return them; empty where nothing is judged."""
    # here, so that --help need not wait for pandas
    from as_lightning.statistics.answer import as_json, screen
    from as_lightning.statistics.judge import Question, answers_of
    from as_lightning.statistics.runs import Columns, runs_of
    from as_lightning.statistics.score_table import read_table

    asked = {name.name: getattr(options, name.name) for name in fields(Question)}
    question = Question(**asked | {"score": ""})
    answers: list[Any] = []
    refused: list[str] = []
    if options.path.is_dir():
        from as_lightning.bench.commands.sweep_report import sweep_answers, sweep_table
        from as_lightning.bench.run.result import find_results

        if any(asked[name.name] for name in fields(Columns)):
            raise ValueError(
                f"{options.path} is a folder of runs: only a table has columns to name"
            )
        answers, refused = sweep_answers(sweep_table(find_results(options.path)), question)
        print("\n".join(refused), end="\n" * bool(refused), file=sys.stderr)
    else:
        frame = read_table(options.path)
        for score in options.score or [""]:
            of_score = replace(question, score=score)
            answers += answers_of(runs_of(frame, of_score), of_score)
    if options.format == "json":
        print(as_json(answers))
    elif options.format:
        from as_lightning.report.score_page import score_page

        print(score_page(answers, options.format))
    else:
        print(screen(answers))
    rows = [row for answer in answers for row in answer.candidates]
    return [row.word if row.judged else "" for row in rows] + [""] * len(refused)


def _status(words: Sequence[str], fail_if: str | None) -> int:
    """The exit status of verdicts; one that could not be judged is empty."""
    judged = set(words) - {""}
    if fail_if == "worse" and "worse" in judged:
        return 1
    if fail_if == "not-better" and judged - {"better"}:
        return 1
    if "" in words and (fail_if or not judged):
        return NOTHING_JUDGED
    return 0


def _report_comparison(folder: Path, given: Sequence[str]) -> list[str]:
    """Write the report of a comparison anew, and return its verdicts."""
    from as_lightning.report.page import publish
    from as_lightning.report.record import ComparisonRecord

    if any(word.startswith("--") and not word.startswith("--fail-if") for word in given):
        raise ValueError(
            f"{folder} is a comparison, which is reported by its own design: give nothing else but "
            "--fail-if"
        )
    record = ComparisonRecord.read(folder)
    publish(record, folder / "report")
    return [of.word if of.judged else "" for of in record.verdicts()]
