"""Answers on tables of scores as a page in HTML with a figure, or as LaTeX to paste."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
<style>{css}</style></head><body>
{body}
</body></html>"""
STYLE = Path(__file__).with_name("templates") / "page.css"


def score_page(answers: Sequence[Answer], form: str) -> str:
    if form == "html":
        body = "\n".join(map(_html, answers))
        return PAGE.format(css=STYLE.read_text(encoding="utf-8"), body=body)
    return "\n\n".join(map(_latex, answers))


def _cells(answer: Answer, form: Form) -> list[list[str]]:
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
    lines.append(f"<figure>{differences_svg(answer.candidates, within)}</figure>")
    lines.append(f"<table><thead><tr><th>{'</th><th>'.join(heading)}</th></tr></thead>")
    for row in rows:
        lines.append("<tr>")
        for name, cell in zip(heading, row, strict=True):
            lines.append(f'<td data-name="{name}">{cell}</td>')
        lines.append("</tr>")
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
