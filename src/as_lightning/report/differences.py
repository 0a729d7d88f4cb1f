"""The first figure of a page: each candidate's difference with its interval, and what is equal."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from as_lightning.statistics.answer import decimals, number
from as_lightning.statistics.printable import printable
from as_lightning.statistics.verdicts import Verdict

WIDTH, NAMES, ROW = 720, 210, 30  # of the picture, of its names, and the height of a candidate
MARGIN = 60


def differences_svg(rows: Sequence[Verdict], within: float) -> str:
    """Return the picture as SVG, in the colours of the page; empty without an interval."""
    known = pd.DataFrame(map(vars, rows), columns=["arm", "difference", "low", "high"])
    known = known.dropna(subset="low").reset_index(drop=True)
    if known.empty:
        return ""
    digits = decimals(known["high"] - known["low"])
    low = min(-within, known["low"].min())
    high = max(within, known["high"].max(), low + 1e-12)

    def place(value: float) -> str:
        return f"{NAMES + (value - low) / (high - low) * (WIDTH - NAMES - MARGIN):.1f}"

    height = ROW * (len(known) + 1)
    base = height - ROW + 4
    zone = f'x="{place(-within)}" width="{float(place(within)) - float(place(-within)):.1f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="13" fill="currentColor" stroke="none">',
        "<title>Differences with 95% intervals, as in the table, and what counts as equal</title>",
        f'<rect {zone} y="0" height="{base}" fill="#0a7ec2" fill-opacity="0.15"/>',
        f'<path d="M{place(0)} 0V{base}" stroke="currentColor" stroke-dasharray="3 3"/>',
    ]
    for row in known.itertuples():
        y = ROW * row.Index + ROW // 2
        ends = f"M{place(row.low)} {y}H{place(row.high)}"
        caps = f"M{place(row.low)} {y - 5}v10M{place(row.high)} {y - 5}v10"
        lines += [
            f'<text x="0" y="{y + 4}">{printable(row.arm[-26:], "html")}</text>',
            f'<path d="{ends}{caps}" stroke="currentColor" stroke-width="1.5"/>',
            f'<circle cx="{place(row.difference)}" cy="{y}" r="4.5"/>',
        ]
    for value in {low, 0.0, high}:
        text = number(value, digits, "+") if value else "0"
        lines.append(
            f'<text x="{place(value)}" y="{height - 8}" text-anchor="middle">{text}</text>'
        )
    return "\n".join([*lines, "</svg>"])
