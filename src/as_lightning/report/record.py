"""All that a comparison knows, from which its report is written: ``design.json`` has what was
asked and said, ``runs.csv`` a row for each run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pandas as pd

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result, whole_file
from as_lightning.statistics.example_spread import ExampleSpread, example_spread
from as_lightning.statistics.score_names import known_unit
from as_lightning.statistics.verdicts import Design, Verdict, verdicts

DESIGN_FILE, TABLE_FILE = "design.json", "runs.csv"
ROUNDING = 1e-5  # of a score that is computed in float32
EXAMPLES, SHOWN = 20, 300  # how many examples a page lists, and how many characters of them
SETTING = "setting."  # before the name of a tuned setting, in a table of runs
METRIC = "metric."  # before the name of a metric that is that of another column
COUNTED = ("epochs", "parameters", "optimizer_steps", "loss_accuracy_correlation")
TEXTS = ("candidate", "phase", "session", "masking")
# columns of the table that are no metric of the test
OF_RUN = ("candidate", "seed", "phase", "trial", "score", "train_seconds", "session")
ABOUT = (*OF_RUN, *COUNTED, "masking", "made_on")
OF_TABLE = ("design", "rows", "settings")  # fields that ``design.json`` does not repeat


class Planned(Protocol):
    """What has a design, as the plan of a comparison."""

    design: Design


class Trial(NamedTuple):
    """Settings that were tried, and the means over its tuning seeds of the best validation score
    and its loss.

    The loss is one that all candidates share, cross-entropy at the best temperature. Score and loss
    are NaN where a run failed or did not record them. ``shared`` says that it is a trial of the
    baseline, at the value at which the candidate is the baseline.
    """

    settings: Mapping[str, Any]
    score: float
    loss: float = float("nan")
    shared: bool = False
    by_seed: Sequence[float] = ()  # the score of each of its tuning seeds

    @property
    def seeds(self) -> int:
        """How many tuning seeds it has."""
        return max(len(self.by_seed), 1)


@dataclass
class ComparisonRecord:
    """All that a comparison knows: its design, trials, chosen settings and runs."""

    name: str
    score: str  # what the candidates are compared by
    baseline: str
    candidates: list[str]  # the baseline first
    design: Design
    half: str = ""  # the candidate that is the baseline trained for half the epochs
    trials: int = 1  # of each candidate
    mode: Literal["max", "min"] = "max"  # whether more or less of the score is better
    split: str = "test"  # that the score is of
    # whether each seed has a split of its own; empty: not known
    splits: Literal["per_seed", "official", "fixed", ""] = "fixed"
    untuned: str = ""  # why there is no advice
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the chosen ones
    same_as: dict[str, str] = field(default_factory=dict)  # those that tuning made another one
    tuning: dict[str, list[Trial]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of ``runs.csv``, one for each run
    made_on: list[dict[str, Any]] = field(default_factory=list)  # machines and versions of runs
    # what each candidate changes: names of settings, each with the baseline's value and its own
    changes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)  # runs that have ended in an error, in words
    notes: list[str] = field(default_factory=list)  # sentences for the page
    stopped: str = ""  # why the comparison ended before all was decided
    behind: list[str] = field(default_factory=list)  # candidates that a race did not pursue
    commands: list[str] = field(default_factory=list)
    # of each candidate beside the baseline, as their test examples show it: the spread of their
    # difference, and the mean share of examples on which they differ, and of how many
    spreads: dict[str, ExampleSpread] = field(default_factory=dict)
    disagreed: dict[str, tuple[float, int]] = field(default_factory=dict)
    # those on which predictions differ most often: rows of the page
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> pd.DataFrame:
        """The table of the runs; a final run without a score has ended in an error."""
        table = pd.DataFrame(self.rows)
        return table.reindex(columns=list(dict.fromkeys([*ABOUT, *table])))

    @property
    def final(self) -> pd.DataFrame:
        """The runs that the candidates are judged by."""
        runs = self.runs
        return runs[runs["phase"].eq("final") & runs["score"].notna()]

    @property
    def unit(self) -> str:
        """What stands behind a difference: " points", or nothing behind that of a raw score."""
        return " points" * (known_unit(self.score) == "points")

    @property
    def points(self) -> float:
        """How many points a score of 1 is: 100 for a share whose name is that of an accuracy."""
        highest = self.runs["score"].replace(math.inf, math.nan).max()
        if self.unit and not highest > 1:
            return 100.0
        return 1.0

    def scores(self, sign: float = 1.0) -> dict[str, dict[int, float]]:
        """Return the score of each seed of each candidate, in points times ``sign``; NaN where a
        run ended in an error.
        """
        scores: dict[str, dict[int, float]] = {}
        points = sign * self.points
        for row in self.rows:
            if row["phase"] == "final":
                score = points * row.get("score", math.nan)
                scores.setdefault(row["candidate"], {})[row["seed"]] = score
        return scores

    def verdicts(self) -> list[Verdict]:
        """Return the verdict on each candidate, from all runs; a positive difference is better,
        also of a loss.
        """
        scores = self.scores({"max": 1.0, "min": -1.0}[self.mode])
        spreads = {(name, self.baseline): spread for name, spread in self.spreads.items()}
        return verdicts(scores, reference=self.baseline, design=self.design, spreads=spreads)

    def compare_predictions(self, predictions: Mapping[tuple[str, int], Predictions]) -> None:
        """Record on how many test examples each candidate differs from the baseline, seed by seed,
        and on which most often.

        Where the score is the accuracy or the micro F1 of the predictions, the spread of the
        differences is recorded too.
        """
        scores, score = self.scores(), self.score.rpartition("/")[2]
        self.spreads, self.disagreed = {}, {}
        differing = []
        for name, pairs in prediction_pairs(predictions, self.baseline).items():
            shares, scored = [], []
            for seed, (own, base) in pairs.items():
                shares.append(float(np.asarray(own.differing(base)).mean()))
                self.disagreed[name] = fmean(shares), len(own.ids)
                pair = own.scored(score), base.scored(score)
                error = abs(pair[0].score - scores[name][seed] / 100)
                base_error = abs(pair[1].score - scores[self.baseline][seed] / 100)
                if error < ROUNDING and base_error < ROUNDING:
                    scored.append(pair)
                if name != self.half:
                    differing.append(_differing(own, base, self.baseline, name))
            if len(scored) == len(pairs):
                self.spreads[name] = example_spread(scored)
                if scored[0][0].strata is not None and (rare := own.rare_classes):
                    self.notes = list(dict.fromkeys([*self.notes, rare]))
        self.examples = []
        if differing:
            table = pd.concat(differing)
            counts = table.groupby([*table], sort=False).size()
            most_often = counts.sort_values(ascending=False, kind="stable").head(EXAMPLES)
            self.examples = most_often.reset_index(name="runs").to_dict("records")

    def add(self, result: Result, candidate: str, score: float, phase: str = "final") -> None:
        """Add a run as one of ``candidate``, with the score that it counts by."""
        made = {"machine": result.machine, "versions": result.versions}
        if made not in self.made_on:
            self.made_on.append(made)
        row: dict[str, Any] = {"candidate": candidate, "seed": result.seed, "phase": phase}
        row |= {"trial": result.trial, "score": score, "train_seconds": result.train_seconds}
        row["session"] = result.session
        for name in COUNTED:
            if getattr(result, name) is not None:
                row[name] = getattr(result, name)
        epochs = [f"{epoch['masked_samples']}/{epoch['samples']}" for epoch in result.masking]
        row |= {"masking": " ".join(epochs), "made_on": self.made_on.index(made)}
        settings: Mapping[str, Any] = result.settings
        if candidate in self.same_as:
            settings = self.settings[candidate]
        for name, value in settings.items():
            row[SETTING + name] = value if isinstance(value, str) else json.dumps(value)
        for name, value in result.metrics.items():
            row[METRIC * (name in row) + name] = value
        if result.score in result.metrics and phase == "final":
            row[METRIC * (result.score in ABOUT) + result.score] = score
        self.rows.append(row)

    def add_failed(self, candidate: str, seed: int) -> None:
        """Add a final run that has ended in an error."""
        self.rows.append({"candidate": candidate, "seed": seed, "phase": "final"})

    def write(self, directory: str | Path) -> None:
        """Write ``runs.csv``, and what it does not have to ``design.json``."""
        own = {**vars(self), "tuning": {}}
        for name in OF_TABLE:
            del own[name]
        for name, trials in self.tuning.items():
            own["tuning"][name] = [trial._asdict() for trial in trials]
        # of objects, else an empty cell makes 1.0 from 1
        table = pd.DataFrame(self.rows, columns=list(self.runs), dtype=object)
        with whole_file(Path(directory) / TABLE_FILE) as partial:
            table.to_csv(partial, index=False)
        path = Path(directory) / DESIGN_FILE
        facts = read_design(directory) if path.exists() else {}
        write_design(directory, self, facts | {"record": own})

    @classmethod
    def read(cls, directory: str | Path) -> ComparisonRecord:
        """Read the record of a comparison that has ended; a ValueError names the folder of none."""
        try:
            content = read_design(directory)
            record = cls(design=content["design"], **content["record"])
            for name, trials in content["record"]["tuning"].items():
                record.tuning[name] = [Trial(**fields) for fields in trials]
            for name, spread in record.spreads.items():
                record.spreads[name] = ExampleSpread(*spread)
            for name, (share, examples) in record.disagreed.items():
                record.disagreed[name] = share, examples
            table = pd.read_csv(Path(directory) / TABLE_FILE, dtype=str, keep_default_na=False)
            for cells in table.to_dict("records"):
                row = _row(cells)
                record.rows.append(row)
                if row["phase"] == "final" and "score" in row:
                    record.settings.setdefault(row["candidate"], settings_of(row))
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(
                f"{directory} is not the folder of a comparison that has ended: {error}"
            ) from error
        return record


def write_design(directory: str | Path, plan: Planned, facts: Mapping[str, Any]) -> None:
    """Write ``design.json``: the design of a comparison, and what else is to be known of it."""
    content = {**facts, "design": asdict(plan.design)}
    with whole_file(Path(directory) / DESIGN_FILE) as partial:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")


def read_design(directory: str | Path) -> dict[str, Any]:
    """Return what `write_design` has written, the `Design` at ``design``."""
    content = dict(json.loads((Path(directory) / DESIGN_FILE).read_text(encoding="utf-8")))
    return content | {"design": Design.read(content["design"])}


def settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tuned settings of a run, of its row in the table."""
    settings = {}
    for column, text in row.items():
        if column.startswith(SETTING) and isinstance(text, str):
            try:
                settings[column.removeprefix(SETTING)] = json.loads(text)
            except ValueError:
                settings[column.removeprefix(SETTING)] = text
    return settings


def _row(cells: Mapping[str, str]) -> dict[str, Any]:
    """A run of a file's table: numbers as such, none of an empty cell."""
    row: dict[str, Any] = {}
    for column, text in cells.items():
        if column in TEXTS or (text and column.startswith(SETTING)):
            row[column] = text
        elif text:
            row[column] = int(text) if text.isdecimal() else float(text)
    return row


def prediction_pairs(
    predictions: Mapping[tuple[str, int], Predictions], baseline: str
) -> dict[str, dict[int, tuple[Predictions, Predictions]]]:
    """Return the predictions of each candidate beside the baseline's, by seed, where both are of
    the same test examples.
    """
    pairs: dict[str, dict[int, tuple[Predictions, Predictions]]] = {}
    for (name, seed), own in predictions.items():
        base = predictions.get((baseline, seed))
        if name != baseline and base is not None and own.differing(base) is not None:
            pairs.setdefault(name, {})[seed] = own, base
    return pairs


def _differing(own: Predictions, base: Predictions, baseline: str, candidate: str) -> pd.DataFrame:
    """The examples on which a run predicts unlike the baseline's, each once."""
    unlike = own.table["predicted"] != base.table["predicted"]
    rows = own.table[unlike].drop(columns="predicted")
    rows["example"] = rows["example"].str[:SHOWN]
    rows[f"{baseline} predicts"] = base.table["predicted"][unlike]
    rows["candidate"], rows["it predicts"] = candidate, own.table["predicted"][unlike]
    return rows.drop_duplicates()
