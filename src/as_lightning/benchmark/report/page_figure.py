"""Figures of the report pages: drawn for light and for dark pages, a colour is a method in all of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
# the methods that most pages show, the same colour on every page
KNOWN = ("softmax", "as_softmax", "as_speed")
INK = {"light": "#1d2430", "dark": "#e7eaf0"}
LEGEND_COLUMNS = 3


@dataclass(frozen=True)
class PageFigure:
    """A figure: a name for its files, a title, a text for those who do not see it, and a PNG per colour scheme.

    A picture is drawn when it is first asked for: a report that is only printed draws none. ``draw`` labels what the
    legend shall name.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[Axes], None]

    @cached_property
    def light(self) -> bytes:
        """The picture for light pages."""
        return _drawn(self.draw, "light")

    @cached_property
    def dark(self) -> bytes:
        """The picture for dark pages."""
        return _drawn(self.draw, "dark")

    @property
    def light_uri(self) -> str:
        """The picture for light pages as a ``data:`` address, so that a page can hold it."""
        return _data_uri(self.light)

    @property
    def dark_uri(self) -> str:
        """The picture for dark pages as a ``data:`` address."""
        return _data_uri(self.dark)


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def method_colors(methods: Iterable[str]) -> dict[str, str]:
    """The colour of each method: a fixed one where the method is among :data:`KNOWN`, else the next that is free.

    >>> method_colors(["multilabel_softmax", "entmax", "as_speed"])
    {'multilabel_softmax': '#0a7ec2', 'entmax': '#d55e00', 'as_speed': '#009e73'}
    """
    methods = list(dict.fromkeys(methods))
    fixed = {name: PALETTE[KNOWN.index(_plain(name))] for name in methods if _plain(name) in KNOWN}
    free = [color for color in PALETTE if color not in fixed.values()] or list(PALETTE)
    others = [name for name in methods if name not in fixed]
    taken = fixed | {name: free[index % len(free)] for index, name in enumerate(others)}
    return {name: taken[name] for name in methods}


def _plain(method: str) -> str:
    return method.removeprefix("multilabel_")


def _drawn(draw: Callable[[Axes], None], scheme: str) -> bytes:
    ink = INK[scheme]
    settings: dict[Any, Any] = {"font.size": 10}
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
        settings[name] = ink
    with rc_context(settings):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, color=ink)
        handles, labels = axes.get_legend_handles_labels()
        if handles:  # below the axes: inside it would lie on the curves
            columns = min(LEGEND_COLUMNS, len(handles))
            figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        buffer = BytesIO()
        # the light one is opaque, for a dark page that shows it, as of a Markdown file
        figure.savefig(buffer, format="png", dpi=160, transparent=scheme == "dark", metadata={"Software": None})
    return buffer.getvalue()


def file_name(name: str) -> str:
    """A name from a result as part of a file's name: letters, digits, ``-``, ``_`` and inner dots alone."""
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"
