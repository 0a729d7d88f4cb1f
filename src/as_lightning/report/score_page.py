"""Answers on tables of scores as a page in HTML with a figure, or as LaTeX to paste."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from as_lightning.report.differences import differences_svg
from as_lightning.statistics.answer import cells, head, sentences
from as_lightning.statistics.judge import Answer
from as_lightning.statistics.printable import Form, printable

PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Verdicts</title>
<style>
:root {{ --ink: #1d2430; --soft: #5b6675; --line: #d9dee6; --page: #fff; --zone: #0a7ec233; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e7eaf0; --soft: #a3adbb; --line: #343c48; --page: #14181f; --zone: #6cb8ea33; }}
}}
body {{ margin: 0 auto; padding: 1.5rem 1rem; max-width: 52rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.2rem; }} svg {{ width: 100%; height: auto; }} ul {{ color: var(--soft); }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  overflow-wrap: normal; }}
@media (max-width: 32rem) {{ th, td {{ padding: .3rem .2rem; font-size: .8rem; }} }}
</style></head><body>
{body}
</body></html>"""


def score_page(answers: Sequence[Answer], form: str) -> str:
    """Return answers as ``html`` or ``latex``."""
    if form == "html":
        return PAGE.format(body="\n".join(map(_html, answers)))
    return "\n\n".join(map(_latex, answers))


def _cells(answer: Answer, form: Form) -> list[list[str]]:
    """The table of an answer, its heading first."""
    rows = [["candidate", "verdict", answer.reading.score, "difference", "95% interval"]]
    rows += cells(answer)
    for row, judged in zip(rows[2:], answer.candidates, strict=True):
        if judged.reason:
            row[1] += f" ({judged.reason})"
    shown = pd.DataFrame(rows).map(lambda cell: printable(cell or "–", form))
    return shown.to_numpy().tolist()


def _html(answer: Answer) -> str:
    heading, *rows = _cells(answer, "html")
    within = answer.reading.equal_within or 0.0
    lines = [f"<h1>{printable(head(answer), 'html')}</h1>"]
    lines.append(differences_svg(answer.candidates, within))
    lines.append(f"<table><tr><th>{'</th><th>'.join(heading)}</th></tr>")
    for row in rows:
        lines.append(f"<tr><td>{'</td><td>'.join(row)}</td></tr>")
    lines.append("</table><ul>")
    for sentence in [*sentences(answer), *answer.notes]:
        lines.append(f"<li>{printable(sentence, 'html')}</li>")
    return "\n".join([*lines, "</ul>"])


def _latex(answer: Answer) -> str:
    heading, *rows = [" & ".join(row) + r" \\" for row in _cells(answer, "latex")]
    note = f"{head(answer)}; mean ± standard deviation; 95% intervals for all together."
    below = rf"\multicolumn{{5}}{{p{{0.9\linewidth}}}}{{\footnotesize {printable(note, 'latex')}}}"
    lines = [r"\begin{tabular}{llrrr}", r"\hline", heading, r"\hline", *rows, r"\hline", below]
    return "\n".join([*lines, r"\end{tabular}"]).replace("–", "--")
