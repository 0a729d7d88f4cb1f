"""The report of comparisons and of sweeps: one page in Markdown and in HTML, all numbers as CSV, a table to print."""

from __future__ import annotations

import html
import math
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import pandas as pd
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from rich.console import Console
from rich.markdown import Markdown

from as_lightning.benchmark.report.advice import advice, in_words, recommended, settings
from as_lightning.benchmark.report.figures import PageFigure, report_figures, score_name
from as_lightning.benchmark.report.findings import Findings, Row, findings
from as_lightning.benchmark.report.record import ComparisonRecord

COLOURED = ("better", "worse")
ADVISED = " (advised)"
LEFT = ("verdict", "settings")  # columns of text beside the first one; those of numbers are on the right
NOTE = re.compile(r'(<td[^>]* data-name="(?:difference|verdict|time)[^>]*>)([^<(]+) \(([^<]*)\)</td>')
NOTED = ("verdict", "time ratio")  # columns whose notes in brackets are on the page alone
OF_VERDICT = ("difference", "low", "high", "new_low", "new_high", "detectable", "look", "skewed", "reason")
LEGEND = (
    "{} {} in points, of each method's own seeds. Differences are to {}, paired by seed{}. With probability 95% all "
    "intervals at the full budget hold, whenever a method stops, and so do all at smaller ones; the verdicts are read "
    "off them. Equal, not worse and no gain mean by {:g} points.{}"
)
NEW_DATA = (
    " The verdicts are about these test examples; the interval for new data is about others like them, one at a time."
)
SHARED = "the baseline's"
VALIDATED = "mean of the best validation scores"
DIFFER = "{} and {} differ on {:.1f}% of {} test examples, mean over the seeds."
HOW = (
    "Scores are at the weights of the best validation score. Training time leaves out validation; a ratio is the "
    "geometric mean over the seeds, of runs that the same command has made."
)


class ReportPaths(NamedTuple):
    """The files of a written report."""

    html: Path
    markdown: Path
    csv: Path


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    """Print the table and the advice of a comparison."""
    found, console = findings(record), console or Console(width=None if sys.stdout.isatty() else 120)
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to {found.reference.name}"
    rows = [
        {heading: text.partition(" (")[0] if heading in NOTED else text for heading, text in cells(found, row).items()}
        for row in found.rows
    ]
    console.print(Markdown(f"{md(title)}\n\n{table(rows)}"))
    console.print("\n".join(advice(found)), markup=False, highlight=False)


def publish(
    records: Sequence[ComparisonRecord], directory: str | Path, *, failed: Sequence[str] = (), notes: Sequence[str] = ()
) -> None:
    """Write the report of several experiments, print their tables and advice, and say where the report is."""
    paths = write_report(records, directory, failed=failed, notes=notes)
    for record in records:
        print_comparison(record)
    failures = [*failed, *(failure for record in records for failure in record.failures)]
    print("\n".join([*notes, *(f"failed:      {run}" for run in failures), f"report:      {paths.html}"]))
    print(f"             {paths.markdown}\n             {paths.csv}")
    opens = shlex.quote(paths.html.resolve().as_uri())
    print(f"open it:     {Path(sys.executable).name} -m webbrowser -t {opens}")


def write_report(
    records: Sequence[ComparisonRecord], directory: str | Path, *, failed: Sequence[str] = (), notes: Sequence[str] = ()
) -> ReportPaths:
    """Write one report of several experiments; ``failed`` are runs that have ended in an error, in words."""
    directory = Path(directory)
    shutil.rmtree(directory / "figures", ignore_errors=True)  # those of methods that are gone would stay
    (directory / "figures").mkdir(parents=True)
    found = [findings(record) for record in records]
    blocks: list[str] = []
    pictures: list[PageFigure] = []
    for number, each in enumerate(found, start=1):
        figures = report_figures(each, number)
        for figure in figures:
            (directory / "figures" / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        blocks += _section(each, [f"![{md(figure.alt)}](figures/{figure.name}.svg)" for figure in figures])
        pictures += figures
    blocks += map(md, notes)
    failed = [*failed, *(failure for record in records for failure in record.failures)]
    blocks += ["## Runs that failed", _bullets(failed)] if failed else []
    blocks += _how_it_was_made(records)
    paths = ReportPaths(directory / "report.html", directory / "report.md", directory / "report.csv")
    markdown = "\n\n".join(blocks) + "\n"
    paths.markdown.write_text(markdown, encoding="utf-8")
    title = ", ".join(record.name for record in records)
    paths.html.write_text(page_in_html(markdown, title, pictures), encoding="utf-8")
    rows = pd.concat([frame(each) for each in found]) if found else pd.DataFrame()
    rows.to_csv(paths.csv, index=False, float_format="%.6g")
    return paths


def page_in_html(markdown: str, title: str, figures: Sequence[PageFigure]) -> str:
    """A page as one file: the pictures are inside, and each cell of a table knows its heading, which phones show."""
    reader, pictures = MarkdownIt("commonmark").enable("table"), iter(figures)
    reader.add_render_rule("image", lambda *_: _picture(next(pictures)))
    tokens = reader.parse(markdown)
    for grid in (node for node in SyntaxTreeNode(tokens).walk() if node.type == "table"):
        head, *rows = [line.children for part in grid.children for line in part.children]
        for heading, cell in (pair for row in rows for pair in zip(head, row, strict=True)):
            name, text = ("".join(part.content for part in each.children[0].children) for each in (heading, cell))
            tags: Any = cell.nester_tokens
            tags.opening.attrs["data-name"] = name
            if (word := text.partition(" (")[0]) in COLOURED:
                tags.opening.attrs["class"] = word
    body: str = reader.renderer.render(tokens, reader.options, {})
    body = body.replace("<p><figure", "<figure").replace("</figure></p>", "</figure>")
    body = NOTE.sub(r"\1<span>\2<small>\3</small></span></td>", body)
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    page = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return page.substitute(title=html.escape(title), body=body)


def cells(found: Findings, row: Row) -> dict[str, str]:
    """One arm as the deciding table shows it: headings and texts."""
    verdict, time, same = row.verdict, row.time, row.same_budget
    notes = [] if verdict is None else [verdict.reason]
    notes += [] if same is None else [f"at this budget: {in_words(same)}"]
    advised = row is recommended(found) and verdict is not None
    difference = "–" if verdict is None or math.isnan(verdict.difference) else f"{verdict.difference:+.2f}"
    interval = _interval(verdict.low, verdict.high) if verdict else ""
    for_new = _interval(verdict.new_low, verdict.new_high) if verdict else ""
    new = {"for new data (95%)": for_new or "–"} if _for_new_data(found) else {}
    return {
        "method": row.arm.method + (ADVISED if advised else ""),
        "epochs": "–" if math.isnan(row.epochs) else f"{row.epochs:g}",
        score_name(found.record.score): f"{row.mean:.2f}" + ("" if math.isnan(row.std) else f" ± {row.std:.2f}"),
        "difference, points (95%)": _noted(difference, interval),
        **new,
        "verdict": _noted("baseline" if verdict is None else verdict.word, "; ".join(filter(None, notes))),
        "time ratio": _noted(
            "–" if math.isnan(time.ratio) else f"{time.ratio:.2f}",
            f"{time.low:.2f} to {time.high:.2f}" if time.low < time.high else "",
        ),
        "seeds": str(row.seeds),
    }


def _interval(low: float, high: float) -> str:
    return f"{low:+.2f} to {high:+.2f}" if math.isfinite(low) else ""


def _for_new_data(found: Findings) -> bool:
    """Whether an interval for new data is known."""
    return any(math.isfinite(verdict.new_low) for verdict in found.verdicts)


def frame(found: Findings) -> pd.DataFrame:
    """All numbers, one row for each arm."""
    rows = [
        {"name": found.record.name, "method": row.arm.method, "budget": row.arm.budget, "epochs": row.epochs}
        | {f"setting_{name}": value for name, value in row.settings.items()}
        | {"seeds": row.seeds, "mean": row.mean, "std": row.std, "seconds": row.seconds}
        | {"verdict": getattr(row.verdict, "word", None)}
        | {name: getattr(row.verdict, name, None) for name in OF_VERDICT}
        | {"verdict_at_same_budget": getattr(row.same_budget, "word", None)}
        | {f"time_{name}": value for name, value in row.time._asdict().items()}
        | dict(row.metrics)
        for row in found.rows
    ]
    return pd.DataFrame(rows)


def md(text: object) -> str:
    r"""Text that a Markdown page shows as it is, in a table too: no HTML, no links, no cell or line ends.

    >>> print(md("a\\|b <img> *c* _d_ as_softmax"))
    a\\\|b &lt;img&gt; \*c\* \_d\_ as_softmax
    """
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*~|\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", escaped)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """A table in Markdown, whose rows say their headings; the columns of numbers are on the right."""
    if not rows:
        return ""
    marks = ["---" if not index or heading in LEFT else "---:" for index, heading in enumerate(rows[0])]
    lines = [map(md, rows[0]), marks, *(map(md, row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fold(title: str, *blocks: str) -> list[str]:
    """Blocks of Markdown that open on demand; none where all of them are empty."""
    shown = [block for block in blocks if block]
    return [f'<details markdown="1"><summary>{title}</summary>', *shown, "</details>"] if shown else []


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {md(sentence)}" for sentence in sentences)


def _picture(figure: PageFigure) -> str:
    caption = f"<figcaption>{html.escape(figure.title)}</figcaption>"
    return f'<figure role="img" aria-label="{html.escape(figure.alt)}">{caption}{figure.inline}</figure>'


def _noted(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text


def _section(found: Findings, images: Sequence[str]) -> list[str]:
    """What the page shows of one comparison."""
    record, (first, *said) = found.record, advice(found)
    lower = ", positive where less is better" if record.mode == "min" else ""
    about = (record.split.capitalize(), score_name(record.score), found.reference.name, lower)
    new = NEW_DATA if _for_new_data(found) else ""
    return [
        f"# {md(record.name)}",
        table([cells(found, row) for row in found.rows]),
        f"<small>{md(LEGEND.format(*about, record.design.equal_within, new))}</small>",
        f"**{md(first)}**",
        *images[:1],
        *fold("What it shows, method by method", _bullets(said)),
        *fold("More figures", *images[1:]),
        *_differences(record),
        *_numbers(found),
    ]


def _differences(record: ComparisonRecord) -> list[str]:
    """How often the methods predict something else than the baseline, and on which examples most often."""
    shares = {
        arm.method: md(DIFFER.format(arm.method, record.baseline, 100 * share, examples))
        for (arm, against), (share, examples) in record.disagreed.items()
        if against == record.reference and arm.budget == against.budget
    }
    rows = [
        {"most often on these": example.name}
        | {f"runs of {method} that differ": example.differing.get(method, 0) for method in shares}
        for example in record.examples
    ]
    return fold("Where predictions differ", *shares.values(), table(rows))


def _numbers(found: Findings) -> list[str]:
    """The settings, the trials that they were chosen from, and all metrics."""
    trials = [
        {"trials of": method, "settings": _noted(settings(t.settings), SHARED * t.shared), VALIDATED: f"{t.score:.4f}"}
        for method, tried in found.record.tuning.items()
        for t in tried
    ]
    own = {row.name: {"settings": settings(row.settings), "seconds": row.seconds, **row.metrics} for row in found.rows}
    texts = pd.DataFrame(own).fillna("–").map(lambda value: value if isinstance(value, str) else f"{value:.4g}")
    measured = [{"": str(name).replace("_", " ")} | dict(row) for name, row in texts.iterrows()]
    return [*fold("Trials", table(trials)), *fold("Settings and metrics", table(measured))]


def _how_it_was_made(records: Sequence[ComparisonRecord]) -> list[str]:
    """The machines, the packages and the commands."""
    runs = [run for record in records for run in record.results]
    made = [
        ", ".join(f"{key} {value}" for key, value in content.items() if value)
        for content in [*(run.machine for run in runs), *(run.versions for run in runs)]
    ]
    commands = "\n".join(dict.fromkeys(command for record in records for command in record.commands))
    shown = f"```\n{commands.replace('```', '')}\n```" if commands else ""
    return fold("How it was made", HOW, *map(md, dict.fromkeys(made)), shown)
