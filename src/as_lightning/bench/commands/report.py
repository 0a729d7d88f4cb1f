"""The command `as-lightning-report`: verdicts on a table of scores or a sweep, or the report of a
comparison written anew.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

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
LISTS = {
    "--candidate": ("COLUMN,...", "what names a candidate"),
    "--seed": ("COLUMN,...", "what runs are paired by"),
    "--score": ("COLUMN,...", "each gets an answer"),
    "--aside": ("COLUMN,...", "columns that make no candidate"),
    "--only": ("NAME,...", "the candidates to judge; the others count as tried"),
}
OTHERS: dict[str, dict[str, Any]] = {
    "--baseline": {"metavar": "NAME", "default": "", "help": "what is compared with"},
    "--dataset": {"metavar": "COLUMN", "default": "", "help": "each data set gets an answer"},
    "--wide": {"action": "store_true", "help": "each other column is a candidate"},
    "--unit": {"choices": ("points", "raw"), "default": "", "help": "points: shares times 100"},
    "--equal-within": {"metavar": "SIZE", "type": float, "help": "what counts as no difference"},
    "--target": {"metavar": "SCORE", "type": float, "help": "in place of the baseline"},
    "--tried": {"metavar": "N", "type": int, "default": 0, "help": "candidates tried elsewhere"},
    "--test-examples": {"metavar": "N", "type": int, "default": 0, "help": "for N new ones"},
    "--fail-if": {"choices": ("worse", "not-better"), "help": "end with 1 if one is this"},
    "--format": {"choices": ("json", "latex", "html"), "help": "print another form"},
}
NOTHING_JUDGED, INPUT_ERROR = 2, 3
INSTALL = 'pip install ".[report]", or ".[benchmark]" for folders of runs'


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `as-lightning-report`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    try:
        if not options.path.exists():
            raise ValueError(f"there is no file and no folder {options.path}")
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
    # argparse's own status of errors is 2, which here says that nothing was judged
    parser.error = lambda message: parser.exit(INPUT_ERROR, f"as-lightning-report: {message}\n")  # type: ignore[method-assign]
    parser.add_argument("path", metavar="PATH", type=Path, help="a table, or a folder of runs")
    for name, (meta, text) in LISTS.items():
        parser.add_argument(name, metavar=meta, default=[], type=_listed, help=text)
    for name, about in OTHERS.items():
        parser.add_argument(name, **about)
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument("--higher-is-better", action="store_true", default=None)
    direction.add_argument(
        "--lower-is-better", dest="higher_is_better", action="store_false", default=None
    )
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

    question = Question(**_fields(Question, options))
    answers: list[Any] = []
    if options.path.is_dir():
        from as_lightning.bench.commands.sweep_report import sweep_answers, sweep_table
        from as_lightning.bench.run.result import find_results

        if any(_fields(Columns, options).values()):
            raise ValueError(
                f"{options.path} is a folder of runs: only a table has columns to name"
            )
        answers = sweep_answers(sweep_table(find_results([options.path])), question)
    else:
        frame = read_table(options.path)
        columns = Columns(**_fields(Columns, options))  # of one score at a time, below
        for score in options.score or [""]:
            answers += answers_of(runs_of(frame, replace(columns, score=score)), question)
    if options.format == "json":
        print(as_json(answers))
    elif options.format:
        from as_lightning.report.score_page import score_page

        print(score_page(answers, options.format))
    else:
        print(screen(answers))
    rows = [row for answer in answers for row in answer.candidates]
    return [row.word if row.judged else "" for row in rows]


def _fields(kind: type, options: argparse.Namespace) -> dict[str, Any]:
    """The options that are fields of a class."""
    given = vars(options)
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


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
