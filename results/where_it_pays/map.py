"""Write which loss pays where: the tables of README.md, docs/which_loss.md and the first page, and
``map.svg``.

    python results/where_it_pays/map.py    # from what is committed

A cell of the map is a comparison called DATA_HEAD_CONDITION (``clinc150_linear_tail50``), made by
heads.py. Of each one ``cells/`` keeps ``design.json`` and ``runs.csv``, the table of its runs.
``earlier/`` has comparisons of `as-lightning-compare` whose wrong labels and rare classes are one
draw for all seeds.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import stats

from as_lightning.report.record import DESIGN_FILE, TABLE_FILE, ComparisonRecord
from as_lightning.statistics.example_spread import ExampleSpread
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
    "banking77": "Banking77",
    "newsgroups20": "20 Newsgroups",
    "sst5": "SST-5",
    "cifar10": "CIFAR-10",
    "fsdd": "spoken digits",
    "reuters8": "Reuters R8",
    "goemotions1": "GoEmotions (one label)",
    "docstrings": "docstrings",
    "goemotions": "GoEmotions",
}
HEADS = {"linear": "linear head", "hidden": "one hidden layer", "layers": "the last two layers"}
# of a condition: in a row of the map, and as a reader has it
KINDS = {
    "clean": ("clean", "as many examples of each class, and right labels"),
    "tail": ("tail {}:1", "a long tail, made by leaving examples out"),
    "natural": ("natural tail, {}", "a natural tail"),
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
OTHER_SCORES = "other_scores.json"  # of a natural tail: the spread over examples, by the score
FULL_COLOUR = 5.0  # points from which a cell has the whole colour
LINES = {
    "undecided": "un-\ndecided",
    "not worse": "not\nworse",
    "no gain": "no\ngain",
}  # of words, in a narrow column
SHORT = {
    "generalised_cross_entropy": "generalised\ncross-entropy",
    "as_softmax": "AS-Softmax",
    "adjusted_after": "adjusted\nafter training",
    "as_softmax_adjusted_after": "AS-Softmax, adjusted\nafter training",
}
SCORES = {"balanced_accuracy": "balanced accuracy", "accuracy": "accuracy", "f1_macro": "macro F1"}


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
        if kind == "natural":
            number = str([*SCORES].index(self.record.score))
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
        kind, number = self.place[2:]
        return KINDS[kind][0].format(SCORES[self.record.score] if kind == "natural" else number)

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
        return self.record.same_as.get(method) == self.record.baseline

    def by(self, score: str) -> Cell:
        """The same runs, judged by another score."""
        if score == self.record.score:
            return self
        path = FOLDER / "cells" / self.name / OTHER_SCORES
        spreads = json.loads(path.read_text(encoding="utf-8"))[score]
        rows = [row | {"score": row[score]} for row in self.record.rows]
        record = replace(self.record, score=score, rows=rows)
        record.spreads = {name: ExampleSpread(*values) for name, values in spreads.items()}
        return Cell(self.name, record, self.runs)

    def shown(self, method: str) -> str:
        """A cell of a table: the difference in points with its interval, and the word."""
        if method not in self.verdicts:
            return "–"
        if self.is_softmax(method):
            return "softmax chosen"
        found = self.verdicts[method]
        return f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}] {found.word}"


def cells(folder: str = "cells") -> list[Cell]:
    """The committed cells, those of before, or the controls, in the order of the map."""
    found = [Cell.read(path.parent) for path in (FOLDER / folder).glob(f"*/{DESIGN_FILE}")]
    return sorted(found, key=lambda cell: cell.order)


def methods_of(found: Sequence[Cell]) -> list[str]:
    """The methods beside softmax, AS-Softmax first."""
    names = [name for cell in found for name in cell.record.design.candidates[1:]]
    return list(dict.fromkeys(names))


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
        words = words_by_data(found, method)
        decided = [f"{words[word]} {word}" for word in ("better", "worse") if words[word]]
        if len(words) == 1 and not decided:
            said = next(iter(words))
        elif not decided:
            said = "mixed"
        elif len(decided) == 2:
            said = "\n".join(decided)
        else:
            said = decided[0].replace(" ", f" of {words.total()}\n")
        difference = np.mean([*means_by_data(found, method).values()])
        return cls(float(difference), f"{round(difference, 1) + 0.0:+.1f}", LINES.get(said, said))


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
    head_height, width, row_height = 3.0, 4.9, 0.36  # rows, inches, inches
    with rc_context(STYLE | {"font.size": 7.5}):
        figure = Figure(figsize=(width, row_height * (head_height + sum(heights)) + 0.05))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(-2.2, len(methods) + 0.04), ylim=(sum(heights) + 0.1, -head_height))
        axes.axis("off")
        for column, method in enumerate(methods):
            name = SHORT.get(method, method.replace("_", "\n"))
            axes.text(
                column + 0.5, -0.12, name, rotation=90, ha="center", va="bottom", linespacing=0.95
            )
        top = 0.0
        for row, height in zip(rows, heights, strict=True):
            if isinstance(row, str):
                axes.text(-2.18, top + 0.27, row, va="center", weight="bold")
            else:
                axes.text(-2.18, top + 0.5, row[0].condition.replace(", ", ",\n"), va="center")
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


# --- over data sets


def by_data(found: Iterable[Cell], method: str) -> dict[str, list[Cell]]:
    """The cells that have a method, by their data set."""
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        if method in cell.verdicts:
            groups.setdefault(cell.place[0], []).append(cell)
    return groups


def means_by_data(found: Iterable[Cell], method: str) -> dict[str, float]:
    """The mean difference to softmax in points on each data set; 0 where softmax was chosen."""
    return {
        data: float(np.mean([cell.verdicts[method].difference for cell in own]))
        for data, own in by_data(found, method).items()
    }


def words_by_data(found: Iterable[Cell], method: str) -> Counter[str]:
    """On how many data sets which word fell: the same word in all cells of a data set, or *mixed*."""
    words = Counter[str]()
    for own in by_data(found, method).values():
        said = {
            "softmax chosen" if cell.is_softmax(method) else cell.verdicts[method].word
            for cell in own
        }
        words[said.pop() if len(said) == 1 else "mixed"] += 1
    return words


def over_data_sets(found: Sequence[Cell], method: str) -> str:
    """The mean difference over data sets with its 95% interval (Student's t over data sets), and on
    how many of them which word fell.
    """
    differences = [*means_by_data(found, method).values()]
    words = words_by_data(found, method)
    said = f"{np.mean(differences):+.1f}"
    if len(differences) > 2 and np.ptp(differences) > 0:
        half = stats.t.isf(0.025, len(differences) - 1) * stats.sem(differences)
        said += f" ({np.mean(differences) - half:+.1f} to {np.mean(differences) + half:+.1f})"
    counts = ", ".join(f"{word} on {count}" for word, count in words.most_common())
    return f"{said}: {counts} of {len(differences)}"


def advised(found: Sequence[Cell]) -> str | None:
    """The method to try: of those better on more than half of the data sets the one with the
    largest mean difference.
    """
    better = [
        method
        for method in methods_of(found)
        if 2 * words_by_data(found, method)["better"] > len({cell.place[0] for cell in found})
    ]

    def mean(method: str) -> float:
        return float(np.mean([*means_by_data(found, method).values()]))

    return max(better, key=mean, default=None)


# --- the tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def all_cells(found: Sequence[Cell], folder: str = "cells") -> str:
    """Each cell with the numbers of all methods; those with several labels a sample have methods of
    their own.
    """
    kinds = ([cell for cell in found if cell.several == several] for several in (False, True))
    return "\n\n".join(_cells_alike(alike, folder) for alike in kinds if alike)


def _cells_alike(found: Sequence[Cell], folder: str) -> str:
    methods = methods_of(found)
    rows = [
        [
            f"[{c.group}, {c.condition}]({folder}/{c.name}/{TABLE_FILE})",
            c.softmax,
            *(c.shown(m) for m in methods),
        ]
        for c in found
    ]
    return table(["condition", "softmax", *methods], rows)


def natural(found: Sequence[Cell]) -> str:
    """Natural tails: the methods, tuned by the balanced accuracy, in three scores; then each tuned
    by the score itself.
    """
    own = {(cell.place[0], cell.record.score): cell for cell in found if cell.place[2] == "natural"}
    rows = []
    for data, score in own:
        if score != "balanced_accuracy":
            continue
        cell = own[data, score]
        judged = [cell.by(name) for name in SCORES]
        others = [own[data, name] for name in [*SCORES][1:] if (data, name) in own]
        rows.append([DATA[data], "softmax", *(f"{c.softmax}" for c in (*judged, *others))])
        for method in methods_of([cell]):
            rows.append(["", method, *(c.shown(method) for c in (*judged, *others))])
    tuned = [f"{SCORES[name]}, tuned by it" for name in [*SCORES][1:]]
    return table(["data", "method", *SCORES.values(), *tuned], rows)


def by_frequency(found: Sequence[Cell]) -> str:
    """With a long tail: the accuracy on frequent, medium and rare classes."""
    rows = []
    for cell in found:
        if cell.record.score != "balanced_accuracy":
            continue
        best = max(cell.verdicts.values(), key=lambda verdict: verdict.difference).arm
        thirds = ["accuracy_many", "accuracy_medium", "accuracy_few"]
        means = cell.runs.groupby("candidate")[thirds].mean() * 100
        for method in dict.fromkeys([cell.record.baseline, "adjusted_after", best]):
            values = [f"{value:.1f}" for value in means.loc[method]]
            rows.append([f"{cell.group}, {cell.condition}", method, *values])
    return table(["condition", "method", "frequent classes", "medium", "rare classes"], rows)


def at_an_edge(found: Sequence[Cell]) -> str:
    """In how many cells the best learning rate of a method has no tried one beyond it."""
    counts, cells_of = Counter[str](), Counter[str]()
    for cell in found:
        for method, trials in cell.record.tuning.items():
            tried = [trial.settings["lr"] for trial in trials]
            at_edge = cell.record.settings[method]["lr"] in (min(tried), max(tried))
            counts[method] += at_edge and not cell.is_softmax(method)
            cells_of[method] += 1
    said = ", ".join(f"{name} in {n} of {cells_of[name]}" for name, n in counts.most_common() if n)
    text = f"The best learning rate is the smallest or largest that was tried for {said or 'none'}: a better one may lie beyond."
    return filled(text)


def missing(found: Sequence[Cell]) -> str:
    """The cells of the linear head that are not made; natural tails and several labels aside."""
    made = {(cell.place[0], cell.place[2]) for cell in found}
    natural_data = {data for data, kind in made if kind == "natural"}
    said = []
    for data, name in [*DATA.items()][: [*DATA].index("reuters8") + 1]:
        kinds = [kind for kind in KINDS if kind != "natural" and (data, kind) not in made]
        if data in natural_data:
            kinds = [kind for kind in kinds if kind not in ("tail", "clean", "pairs")]
        if kinds:
            conditions = (
                KINDS[kind][0].format({"tail": 50, "shots": 10}.get(kind, 40)) for kind in kinds
            )
            said.append(f"{name} ({'; '.join(conditions)})")
    return filled(f"Not made: {', '.join(said) or 'none'}.")


def filled(text: str) -> str:
    """A paragraph in lines of 120 characters."""
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def controlled() -> str:
    """Whether a lead stays: trained three times as long, tuned anew, on seeds that have seen
    nothing of it.
    """
    leads = {cell.name: cell for cell in cells()}
    rows = []
    for control in cells("controls"):
        cell = leads.get(control.name.removesuffix("_longer"))
        if cell is None or cell is control:
            continue
        for method in methods_of([control]):
            name = f"[{cell.group}, {cell.condition}](controls/{control.name}/{TABLE_FILE})"
            shown = [cell.shown(method), control.shown(method)]
            rows.append([name, method, cell.softmax, control.softmax, *shown])
    head = ["condition", "method", "softmax", "softmax, control", "difference", "control"]
    return table(head, rows)


def of_lead(found: Sequence[Cell], method: str = "as_softmax") -> str:
    """What the longer controls with fresh seeds say of the cells in which a method leads."""
    leads = {cell.name for cell in found if cell.verdicts[method].word == "better"}
    own = [c for c in cells("controls") if c.name.removesuffix("_longer") in leads]
    return "; ".join(f"{DATA[c.place[0]]}, {c.condition}: {c.shown(method)}" for c in own)


def controlled_decay() -> str:
    """Whether AS-Softmax's lead in earlier comparisons stays when the weight decay of both methods
    is tuned.
    """
    rows: list[list[str]] = []
    leads = {cell.name: cell for cell in cells("earlier")}
    for control in cells("controls"):
        cell = leads.get(control.name.removesuffix("_decay"))
        if cell is None:
            continue
        word = control.verdicts["as_softmax"].word
        said = "stays" if word == "better" else "is not shown"
        settings = control.record.settings
        decay = [
            f"{settings[method]['optimizer.weight_decay']:g}"
            for method in ("softmax", "as_softmax")
        ]
        means = [np.mean([*c.scores["softmax"].values()]) for c in (control, cell)]
        rows.append(
            [
                f"[{cell.group}, {cell.condition}](controls/{control.name}/{TABLE_FILE})",
                cell.shown("as_softmax"),
                control.shown("as_softmax"),
                " / ".join(decay),
                f"{means[0] - means[1]:+.1f}",
                said,
            ]
        )
    head = ["condition", "weight decay 0.01", "weight decay tuned", "chosen: softmax / AS-Softmax"]
    return table([*head, "what softmax gains by it", "AS-Softmax's lead"], rows)


def groups_of(found: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells by what a reader's data have, and the score."""
    groups: dict[str, list[Cell]] = {}
    for kind, (_, said) in KINDS.items():
        for score, name in SCORES.items():
            own = [c for c in found if c.place[2] == kind and c.record.score == score]
            if own:
                groups[f"{said}; {name}"] = own
    return groups


def short(found: Sequence[Cell]) -> str:
    """What to try, by what the data have: a data set counts once."""
    rows = []
    groups = groups_of(found)
    groups[f"{SEVERAL}; micro F1"] = [cell for cell in cells("earlier") if cell.several]
    for said, group in groups.items():
        method = advised(group)
        of_paper = "multilabel_as_softmax" if group[0].several else "as_softmax"
        adjusted = "adjusted_after" in methods_of(group)
        card = f"[{method}](methods/{(method or '').removesuffix('_0.5').removesuffix('_1.0')}.md)"
        if method is None:
            card = "softmax: nothing is better on most"
        elif method == "as_softmax_adjusted_after":
            card = "as_softmax, adjusted after training"
        data = ", ".join(dict.fromkeys(DATA[cell.place[0]] for cell in group))
        rows.append(
            [
                said,
                card,
                over_data_sets(group, method) if method else "–",
                over_data_sets(group, "adjusted_after") if adjusted else "–",
                over_data_sets(group, of_paper),
                data,
            ]
        )
    head = ["your data have; your score", "try", "its difference to softmax"]
    head += ["softmax, adjusted after training", "AS-Softmax", "measured on"]
    return table(head, rows)


def on_data_sets(found: Sequence[Cell], method: str, word: str) -> str:
    """On how many data sets a word fell in all cells: *3 of 6 data sets*."""
    words = words_by_data(found, method)
    return f"{words[word] or 'none'} of {words.total()}"


def first_page(found: Sequence[Cell]) -> str:
    """What the map says in short; a data set counts once."""
    groups = groups_of(found)

    def group(kind: str, score: str = "accuracy") -> list[Cell]:
        return groups[f"{KINDS[kind][1]}; {SCORES[score]}"]

    def better(kind: str, method: str, score: str = "accuracy") -> str:
        return f"better on {on_data_sets(group(kind, score), method, 'better')}"

    def linked(method: str) -> str:
        return f"[`{method}`](docs/methods/{method}.md)"

    own = [cell for cell in found if "as_softmax" in cell.verdicts]
    leads = [cell for cell in own if cell.verdicts["as_softmax"].word == "better"]
    chosen = sum(cell.is_softmax("as_softmax") for cell in own)
    after = "the prior [subtracted after training](docs/which_loss.md#subtract-the-prior)"
    changes: dict[str, list[str]] = {}
    for score in SCORES:
        for data, mean in means_by_data(group("natural", score), "adjusted_after").items():
            changes.setdefault(DATA[data], []).append(f"{mean:+.1f}")
    by_data = "; ".join(f"{data} {', '.join(means)}" for data, means in changes.items())
    scores = ", ".join(SCORES.values())
    tail = "balanced_accuracy"
    rows = [
        [
            "a long tail, made; balanced accuracy",
            better("tail", "as_softmax", tail),
            f"{linked('logit_adjusted')}: {better('tail', 'logit_adjusted', tail)}; {after}: "
            + better("tail", "adjusted_after", tail),
        ],
        [
            "a natural tail",
            better("natural", "as_softmax", tail),
            f"{after} changes {scores} by points: {by_data}",
        ],
        [
            "40% wrong labels: at random; in pairs of classes",
            f"{better('uniform', 'as_softmax')}; {better('pairs', 'as_softmax')}",
            f"{linked('generalised_cross_entropy')}: "
            f"{better('uniform', 'generalised_cross_entropy')}; "
            f"{better('pairs', 'generalised_cross_entropy')}; "
            f"{linked('encouraging')}: {better('uniform', 'encouraging')}; "
            + better("pairs", "encouraging"),
        ],
        [
            f"all {len(own)} conditions of {len({cell.place[0] for cell in own})} data sets",
            f"better in {len(leads) or 'none'}; in {chosen} tuning chose softmax",
            "AS-Softmax's lead, [trained longer on fresh seeds](results/where_it_pays/README.md#does-a-lead-stay): "
            + (of_lead(own) or "not run"),
        ],
    ]
    return table(["training data", "AS-Softmax, data sets", "other methods, data sets"], rows)


def pages() -> dict[Path, str]:
    """What the committed cells make of the pages and the figure."""
    found = cells()
    return {
        README: written(
            README,
            SCRIPT,
            all_cells(found),
            at_an_edge(found) + "\n\n" + missing(found),
            natural(found),
            by_frequency(found),
            controlled(),
            all_cells(cells("earlier"), "earlier"),
            controlled_decay(),
        ),
        PAGE: written(PAGE, SCRIPT, short(found)),
        FIRST_PAGE: written(FIRST_PAGE, SCRIPT, first_page(found)),
        MAP: drawn(found),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
