"""Write which loss pays where: the tables of README.md, docs/which_loss.md and the first page, and ``map.svg``.

    python results/where_it_pays/map.py                # from what is committed
    python results/where_it_pays/map.py COMPARISON ... # first take over these folders of `as-lightning-compare`

A cell of the map is a comparison called DATA_HEAD_CONDITION (``clinc150_linear_tail50``). Of each one ``cells/`` keeps
``design.json`` and ``runs.csv``, the table of its runs. A comparison called
CELL_decay, in which the weight decay is tuned too, is a control in ``controls/``.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from as_lightning.report.record import DESIGN_FILE, TABLE_FILE, ComparisonRecord
from as_lightning.statistics.verdicts import Verdict

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from written import written  # noqa: E402

SCRIPT = "results/where_it_pays/map.py"
README, PAGE, MAP = (
    FOLDER / "README.md",
    FOLDER.parents[1] / "docs" / "which_loss.md",
    FOLDER / "map.svg",
)
FIRST_PAGE = FOLDER.parents[1] / "README.md"
DATA = {
    "clinc150": "CLINC150",
    "cifar10": "CIFAR-10",
    "sst5": "SST-5",
    "fsdd": "spoken digits",
    "goemotions": "GoEmotions",
}
HEADS = {"linear": "linear head", "hidden": "one hidden layer", "layers": "the last two layers"}
# of a condition: in a row of the map, and as a reader has it
KINDS = {
    "clean": ("clean", "as many examples of each class, and right labels"),
    "tail": ("tail {}:1", "a long tail, and each class counts the same"),
    "uniform": ("{}% wrong", "wrong labels, at random"),
    "pairs": ("{}% wrong, pairs", "wrong labels, each class confused with one other"),
    "shots": ("{} a class", "few examples of each class"),
}
SEVERAL = "several labels a sample"
INK = "#1d2430"
# labels are text, never TeX; SVG keeps them as text
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
BETTER, WORSE, GROUND, DARK_GROUND, DARK_INK, CELL_INK = (
    "#3b9fdc",
    "#e8893a",
    "#ffffff",
    "#1e2129",
    "#e3e6ee",
    "#111418",
)
FULL_COLOUR = 5.0  # points from which a cell has the whole colour
LINES = {
    "undecided": "un-\ndecided",
    "not worse": "not\nworse",
    "no gain": "no\ngain",
}  # of words, in a narrow column
SHORT = {"generalised_cross_entropy": "generalised\ncross-entropy", "as_softmax": "AS-Softmax"}


@dataclass(frozen=True)
class Cell:
    """A comparison on one data set, with one head, under one condition."""

    name: str
    record: ComparisonRecord
    runs: pd.DataFrame  # the final ones

    @classmethod
    def read(cls, folder: Path) -> Cell:
        """The cell that a folder keeps."""
        runs = pd.read_csv(folder / TABLE_FILE)
        return cls(folder.name, ComparisonRecord.read(folder), runs[runs["phase"] == "final"])

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The data set, the head, the kind of the condition and its number."""
        data, head, condition, *_ = self.name.split("_")
        kind, number = re.fullmatch(r"([a-z]+)(\d*)", condition).groups()  # type: ignore[union-attr]
        return data, head, kind, number

    @property
    def order(self) -> tuple[int, ...]:
        """Where the map has it."""
        data, head, kind, number = self.place
        return [*DATA].index(data), [*HEADS].index(head), [*KINDS].index(kind), int(number or 0)

    @property
    def group(self) -> str:
        """The data set and the head, in words."""
        data, head, *_ = self.place
        return f"{DATA[data]}, {HEADS[head]}"

    @property
    def condition(self) -> str:
        """The condition, in words."""
        return KINDS[self.place[2]][0].format(self.place[3])

    @property
    def several(self) -> bool:
        """Whether a sample has several labels."""
        return self.record.baseline.startswith("multilabel")

    @cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """The scores of the final runs, in points."""
        return self.record.scores()

    @property
    def softmax(self) -> str:
        """The mean score of softmax and its spread over the seeds."""
        scores = [*self.scores[self.record.baseline].values()]
        return f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}"

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict of each method, by its name; those of the comparison's report."""
        return {verdict.arm: verdict for verdict in self.record.verdicts()}

    def is_softmax(self, method: str) -> bool:
        """Whether validation chose the setting at which the method is softmax."""
        return method in self.record.same_as

    def shown(self, method: str) -> str:
        """A cell of a table: the difference in points with its interval, and the word."""
        if method not in self.verdicts:
            return "–"
        if self.is_softmax(method):
            return "softmax chosen"
        found = self.verdicts[method]
        return f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}] {found.word}"


def cells(folder: str = "cells") -> list[Cell]:
    """The committed cells, or the controls, in the order of the map."""
    found = [Cell.read(path.parent) for path in (FOLDER / folder).glob(f"*/{DESIGN_FILE}")]
    return sorted(found, key=lambda cell: cell.order)


def methods_of(found: Sequence[Cell]) -> list[str]:
    """The methods beside softmax, AS-Softmax first."""
    names = [name for cell in found for name in cell.record.design.candidates[1:]]
    return list(dict.fromkeys(names))


def take(folder: Path, kept: Path) -> None:
    """Keep of a finished comparison what a page needs: no text of an example, no run's own file."""
    record = ComparisonRecord.read(folder)
    record.examples = []
    kept.mkdir(parents=True, exist_ok=True)
    record.write(kept)


# --- the figure


def shade(difference: float) -> str:
    """The colour of a difference in points: of the ground at 0."""
    share = min(abs(difference) / FULL_COLOUR, 1.0)
    ends = np.array([to_rgb("#f4f5f7"), to_rgb(BETTER if difference > 0 else WORSE)])
    return to_hex(ends[0] + share * (ends[1] - ends[0]))


def saved(figure: Figure, name: str) -> str:
    """A figure as SVG, whose ground and ink follow the reader's choice of light or dark."""
    text = StringIO()
    with rc_context(STYLE | {"svg.hashsalt": name}):
        figure.savefig(
            text,
            format="svg",
            metadata={"Date": None, "Creator": None},
            facecolor=GROUND,
            bbox_inches="tight",
        )
    svg = text.getvalue()
    style = f":root{{--ink:{INK};--ground:{GROUND}}}"
    style += (
        f"@media(prefers-color-scheme:dark){{:root{{--ink:{DARK_INK};--ground:{DARK_GROUND}}}}}"
    )
    for name, color in (("ink", INK), ("ground", GROUND)):
        svg = svg.replace(color, f"var(--{name})")
    place = svg.index(">", svg.index("<svg")) + 1
    lines = [*svg[:place].splitlines(), f"<style>{style}</style>", *svg[place:].splitlines()]
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


class Square(NamedTuple):
    """What the figure shows of a method under a condition: the mean difference in points, and
    words.
    """

    difference: float
    number: str
    words: str

    @classmethod
    def of(cls, found: Sequence[Cell], method: str) -> Square:
        """The comparisons of one condition on several data sets; where softmax was chosen, the
        difference is 0.
        """
        if all(cell.is_softmax(method) for cell in found):
            return cls(0.0, "=", "softmax")
        measured = {
            cell.name: cell.verdicts[method] for cell in found if not cell.is_softmax(method)
        }
        difference = sum(verdict.difference for verdict in measured.values()) / len(found)
        words = Counter(verdict.word for verdict in measured.values())
        decided = [f"{words[word]} {word}" for word in ("better", "worse") if words[word]]
        if len(words) == 1 and (len(found) == 1 or not decided):
            said = next(iter(words))
        elif not decided:
            said = "mixed"
        else:
            said = (
                "\n".join(decided)
                if len(decided) == 2
                else decided[0].replace(" ", f" of {len(found)}\n")
            )
        return cls(difference, f"{round(difference, 1) + 0.0:+.1f}", LINES.get(said, said))


def drawn(found: Sequence[Cell]) -> str:
    """The map: conditions by methods, the colour is the mean difference to softmax over the data
    sets, in points.
    """
    methods = methods_of(found)
    rows: list[str | list[Cell]] = []
    for head, of_head in HEADS.items():
        own = sorted(
            (cell for cell in found if cell.place[1] == head), key=lambda cell: cell.order[2:]
        )
        alike = [[*group] for _, group in groupby(own, key=lambda cell: cell.place[2:])]
        rows += [of_head, *alike] if alike else []
    heights = [0.45 if isinstance(row, str) else 1.0 for row in rows]
    head_height, width, row_height = 2.1, 4.05, 0.36  # rows, inches, inches
    with rc_context(STYLE | {"font.size": 7.5}):
        figure = Figure(figsize=(width, row_height * (head_height + sum(heights)) + 0.05))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(-1.72, len(methods) + 0.04), ylim=(sum(heights) + 0.1, -head_height))
        axes.axis("off")
        for column, method in enumerate(methods):
            name = SHORT.get(method, method.replace("_", "\n"))
            axes.text(
                column + 0.5, -0.12, name, rotation=90, ha="center", va="bottom", linespacing=0.95
            )
        top = 0.0
        for row, height in zip(rows, heights, strict=True):
            if isinstance(row, str):
                axes.text(-1.7, top + 0.27, row, va="center", weight="bold")
            else:
                axes.text(-1.7, top + 0.5, row[0].condition.replace(", ", ",\n"), va="center")
                for column, method in enumerate(methods):
                    if measured := [cell for cell in row if method in cell.verdicts]:
                        draw_square(axes, column, top, Square.of(measured, method))
            top += height
    return saved(figure, "map")


def draw_square(axes: Any, left: float, top: float, square: Square) -> None:
    """A method under a condition: the difference, and the words below it."""
    face = shade(square.difference)
    axes.add_patch(Rectangle((left + 0.03, top + 0.04), 0.94, 0.92, facecolor=face, linewidth=0))
    two = "\n" in square.words
    look = {"ha": "center", "va": "center", "color": CELL_INK}
    axes.text(left + 0.5, top + (0.24 if two else 0.32), square.number, weight="bold", **look)
    axes.text(
        left + 0.5,
        top + (0.64 if two else 0.68),
        square.words,
        fontsize=6.6,
        linespacing=0.9,
        **look,
    )


# --- the tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def all_cells(found: Sequence[Cell]) -> str:
    """Each cell with the numbers of all methods; those with several labels a sample have methods of
    their own.
    """
    kinds = ([cell for cell in found if cell.several == several] for several in (False, True))
    return "\n\n".join(_cells_alike(alike) for alike in kinds if alike)


def _cells_alike(found: Sequence[Cell]) -> str:
    methods = methods_of(found)
    rows = [
        [
            f"[{c.group}, {c.condition}](cells/{c.name}/{TABLE_FILE})",
            c.softmax,
            *(c.shown(m) for m in methods),
        ]
        for c in found
    ]
    return table(["condition", "softmax", *methods], rows)


def by_frequency(found: Sequence[Cell]) -> str:
    """With a long tail: the accuracy on frequent, medium and rare classes."""
    rows = []
    for cell in found:
        if cell.record.score != "balanced_accuracy" or cell.place[2] != "tail":
            continue
        best = max(cell.verdicts.values(), key=lambda verdict: verdict.difference).arm
        means = (
            cell.runs.groupby("candidate")[
                ["accuracy_many", "accuracy_medium", "accuracy_few"]
            ].mean()
            * 100
        )
        for method in dict.fromkeys([cell.record.baseline, "as_softmax", best]):
            values = [f"{value:.1f}" for value in means.loc[method]]
            rows.append([f"{cell.group}, {cell.condition}", method, *values])
    return table(["condition", "method", "frequent classes", "medium", "rare classes"], rows)


def at_an_edge(found: Sequence[Cell]) -> str:
    """In how many cells a method's best learning rate has no tried one beyond it."""
    counts, cells_of = Counter[str](), Counter[str]()
    for cell in found:
        for method, trials in cell.record.tuning.items():
            tried = [trial.settings["lr"] for trial in trials]
            at_edge = cell.record.settings[method]["lr"] in (min(tried), max(tried))
            counts[method] += at_edge and not cell.is_softmax(method)
            cells_of[method] += 1
    said = ", ".join(f"{name} in {n} of {cells_of[name]}" for name, n in counts.most_common() if n)
    text = f"The best learning rate is the smallest or largest that was tried for {said}: a better one may lie beyond."
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def controlled(found: Sequence[Cell]) -> str:
    """Whether AS-Softmax's lead stays when the weight decay of both methods is tuned."""
    rows: list[list[str]] = []
    leads = {cell.name: cell for cell in found}
    for control in cells("controls"):
        cell = leads[control.name.removesuffix("_decay")]
        word = control.verdicts["as_softmax"].word
        settings = control.record.settings
        decay = [
            f"{settings[method]['optimizer.weight_decay']:g}"
            for method in ("softmax", "as_softmax")
        ]
        said = "stays" if word == "better" else "is not shown"
        name = f"[{cell.group}, {cell.condition}](controls/{control.name}/{TABLE_FILE})"
        gain = np.mean([*control.scores["softmax"].values()]) - np.mean(
            [*cell.scores["softmax"].values()]
        )
        rows.append(
            [
                name,
                cell.shown("as_softmax"),
                control.shown("as_softmax"),
                " / ".join(decay),
                f"{gain:+.1f}",
                said,
            ]
        )
    words = [
        cell.verdicts[own].word
        for cell in found
        for own in cell.verdicts
        if own.endswith("as_softmax")
    ]
    if "better" not in words:
        return f"AS-Softmax is better in none of the {len(found)} cells, so that there is no lead to explain."
    head = ["condition", "weight decay 0.01", "weight decay tuned", "chosen: softmax / AS-Softmax"]
    return table([*head, "what softmax gains by it", "AS-Softmax's lead"], rows)


def spread_of(group: Sequence[Cell], method: str) -> str:
    """The smallest and the largest difference of a method over cells, and how often which word
    fell.
    """
    own = [cell for cell in group if method in cell.verdicts]
    measured = [cell.verdicts[method] for cell in own if not cell.is_softmax(method)]
    words = Counter(verdict.word for verdict in measured)
    said = [f"{word} in {count}" for word, count in words.most_common()]
    chosen = len(own) - len(measured)
    said += [f"softmax chosen in {chosen}"] if chosen else []
    values = sorted(round(verdict.difference, 1) for verdict in measured)
    between = " to ".join(dict.fromkeys(f"{value:+.1f}" for value in (values[:1] + values[-1:])))
    return f"{between or '0'} points: {', '.join(said)} of {len(own)}"


def advised(group: Sequence[Cell]) -> str | None:
    """The method to try: of those better in more than half of the cells the one with the largest
    mean difference.
    """

    def mean(method: str) -> float:
        return float(np.mean([cell.verdicts[method].difference for cell in group]))

    everywhere = [
        method for method in methods_of(group) if all(method in cell.verdicts for cell in group)
    ]
    better = [
        m for m in everywhere if 2 * sum(c.verdicts[m].word == "better" for c in group) > len(group)
    ]
    return max(better, key=mean, default=None)


def short(found: Sequence[Cell]) -> str:
    """What to try, by what the data have."""
    groups: dict[str, list[Cell]] = {}
    for several, kind, head in product((False, True), KINDS, HEADS):
        of_kind = [
            cell for cell in found if (cell.several, *cell.place[1:3]) == (several, head, kind)
        ]
        if of_kind:
            groups[f"{SEVERAL if several else KINDS[kind][1]}; {HEADS[head]}"] = of_kind
    rows = []
    for said, group in groups.items():
        method = advised(group)
        of_paper = "multilabel_as_softmax" if group[0].several else "as_softmax"
        card = (
            f"[{method}](methods/{method}.md)" if method else "softmax: nothing is clearly better"
        )
        conditions = ", ".join(dict.fromkeys(DATA[cell.place[0]] for cell in group))
        numbers = spread_of(group, method) if method else "–"
        rows.append([said, card, numbers, spread_of(group, of_paper), conditions])
    return table(
        ["your data have", "try", "its difference to softmax", "AS-Softmax's", "measured on"], rows
    )


def first_page(found: Sequence[Cell]) -> str:
    """Which method is better than softmax in the most cells."""
    text = ""
    for have, kinds in (("a long tail", {"tail"}), ("wrong labels", {"uniform", "pairs"})):
        group = [cell for cell in found if cell.place[2] in kinds and not cell.several]
        words = Counter(
            (name, verdict.word) for cell in group for name, verdict in cell.verdicts.items()
        )
        method = max(methods_of(group), key=lambda name: words[name, "better"])
        text += f"With {have} [`{method}`](docs/methods/{method}.md) is better in {words[method, 'better']} of "
        text += f"{len(group)} comparisons and worse in {words[method, 'worse'] or 'none'}. "
    own = [(cell, name) for cell in found for name in cell.verdicts if name.endswith("as_softmax")]
    said = Counter(
        "softmax" if cell.is_softmax(name) else cell.verdicts[name].word for cell, name in own
    )
    text += f"AS-Softmax is better in {said['better']} of {len(found)} and worse in {said['worse'] or 'none'}; in "
    text += f"{said['softmax']} of them tuning chose softmax."
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def pages() -> dict[Path, str]:
    """What the committed cells make of the pages and the figure."""
    found = cells()
    return {
        README: written(
            README,
            SCRIPT,
            all_cells(found),
            at_an_edge(found),
            by_frequency(found),
            controlled(found),
        ),
        PAGE: written(PAGE, SCRIPT, short(found)),
        FIRST_PAGE: written(FIRST_PAGE, SCRIPT, first_page(found)),
        MAP: drawn([cell for cell in found if not cell.several]),
    }


if __name__ == "__main__":
    for finished in map(Path, sys.argv[1:]):
        kind = "controls" if finished.name.endswith("_decay") else "cells"
        take(finished, FOLDER / kind / finished.name)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
