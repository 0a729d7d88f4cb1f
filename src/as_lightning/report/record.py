"""What a comparison knows, as its folder holds it: ``design.json`` and ``runs.csv``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result, whole_file
from as_lightning.statistics.example_spread import ExampleSpread, ScoredExamples, example_spread
from as_lightning.statistics.score_names import known_unit
from as_lightning.statistics.verdicts import Design, Verdict, verdicts

DESIGN_FILE, TABLE_FILE = "design.json", "runs.csv"
ROUNDING = 1e-3  # of a score in points that is computed in float32
EXAMPLES, SHOWN = 10, 300  # how many of a candidate a page lists, and how many characters of each
SETTING = "setting."  # before the name of a tuned setting, in a table of runs
TEXTS = ["candidate", "phase", "session", "masking"]
# columns of the table that are no measure of a run
ABOUT = ("candidate", "seed", "phase", "trial", "score", "session", "epochs", "masking", "made_on")
MEASURED = ("train_seconds", "parameters", "optimizer_steps", "loss_accuracy_correlation")


class Trial(NamedTuple):
    """Settings that were tried, and the mean over its tuning seeds of the best validation score.

    The score is NaN where a run failed or did not record it.
    """

    settings: Mapping[str, Any]
    score: float
    by_seed: Sequence[float] = ()  # the score of each of its tuning seeds

    @property
    def seeds(self) -> int:
        return max(len(self.by_seed), 1)


@dataclass
class ComparisonRecord:
    """All that a comparison knows: its design, trials, chosen settings and runs."""

    name: str
    score: str  # what the candidates are compared by
    baseline: str
    candidates: list[str]  # the baseline first
    design: Design
    trials: int = 1  # of each candidate
    mode: Literal["max", "min"] = "max"  # whether more or less of the score is better
    split: str = "test"  # that the score is of
    splits: Literal["per_seed", "official", "fixed"] = "fixed"
    untuned: str = ""  # why there is no advice
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the chosen ones
    same_as: dict[str, str] = field(default_factory=dict)  # those that tuning made another one
    tuning: dict[str, list[Trial]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of ``runs.csv``, one for each run
    made_on: list[dict[str, Any]] = field(default_factory=list)  # machines and versions of runs
    changes: dict[str, dict[str, list[str]]] = field(
        default_factory=dict
    )  # the baseline's, its own
    failures: list[str] = field(default_factory=list)  # runs that have ended in an error, in words
    notes: list[str] = field(default_factory=list)  # sentences for the page
    stopped: str = ""  # why the comparison ended before all was decided
    behind: list[str] = field(default_factory=list)  # candidates that a race did not pursue
    commands: list[str] = field(default_factory=list)
    spreads: dict[str, ExampleSpread] = field(default_factory=dict)  # of the gap to the baseline
    examples: list[dict[str, Any]] = field(default_factory=list)  # on which most runs differ

    @property
    def runs(self) -> pd.DataFrame:
        """The table of the runs; a final run without a score has ended in an error."""
        table = pd.DataFrame(self.rows)
        table = table.reindex(columns=list(dict.fromkeys([*ABOUT, *MEASURED, *table])))
        table[TEXTS] = table[TEXTS].astype(object).fillna("")
        return table

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
        """Return the candidates' scores by seed, in points times ``sign``; NaN for an error."""
        scores: dict[str, dict[int, float]] = {}
        points = sign * self.points
        for row in self.rows:
            if row["phase"] == "final":
                score = points * row.get("score", math.nan)
                scores.setdefault(row["candidate"], {})[row["seed"]] = score
        return scores

    def verdicts(self) -> list[Verdict]:
        """Return the verdict on each candidate; a positive difference is better, also of a loss."""
        scores = self.scores({"max": 1.0, "min": -1.0}[self.mode])
        spreads = {(name, self.baseline): spread for name, spread in self.spreads.items()}
        return verdicts(scores, reference=self.baseline, design=self.design, spreads=spreads)

    def compare_predictions(self, predictions: Mapping[tuple[str, int], Predictions]) -> None:
        """Record on which test examples each candidate most often predicts unlike the baseline.

        Where the score is the accuracy, balanced accuracy or F1 of the predictions in each run, the
        spread of the differences is recorded too.
        """
        scores, score = self.scores(), self.score.rpartition("/")[2]
        scored: dict[str, dict[int, tuple[ScoredExamples, ScoredExamples]]] = {}
        other_scores, differing = set(), []
        for (name, seed), own in predictions.items():
            base = predictions.get((self.baseline, seed))
            if name == self.baseline or base is None or not own.comparable(base):
                continue
            differing.append(_differing(own, base, self.baseline, name))
            pair = own.scored(score), base.scored(score)
            scored.setdefault(name, {})[seed] = pair
            known = scores[name][seed], scores[self.baseline][seed]
            of_examples = 100 * pair[0].score, 100 * pair[1].score
            if not np.allclose(of_examples, known, rtol=0, atol=ROUNDING):
                other_scores.add(name)
        self.spreads = {}
        for name, pairs in scored.items():
            if name in other_scores:
                continue
            self.spreads[name] = example_spread([*pairs.values()])
            seed, *_ = pairs
            if pairs[seed][0].strata is not None:
                rare = predictions[name, seed].rare_classes
                self.notes += {rare} - {"", *self.notes}
        if differing:
            table = pd.concat(differing)
            counts = table.groupby([*table], sort=False).size().reset_index(name="runs")
            counts = counts.sort_values("runs", ascending=False, kind="stable")
            self.examples = counts.groupby("candidate").head(EXAMPLES).to_dict("records")

    def add(self, result: Result, candidate: str, score: float, phase: str = "final") -> None:
        """Add a run as one of ``candidate``, with the score that it counts by."""
        made = {"machine": result.machine, "versions": result.versions}
        if made not in self.made_on:
            self.made_on.append(made)
        row: dict[str, Any] = {"candidate": candidate, "seed": result.seed, "phase": phase}
        row |= {"trial": result.trial, "score": score, "session": result.session}
        for name in ("epochs", *MEASURED):
            if getattr(result, name) is not None:
                row[name] = getattr(result, name)
        epochs = [f"{epoch['masked_samples']}/{epoch['samples']}" for epoch in result.masking]
        row |= {"masking": " ".join(epochs), "made_on": self.made_on.index(made)}
        settings: Mapping[str, Any] = result.settings
        if phase == "final" and candidate in self.same_as:
            settings = self.settings[candidate]
        for name, value in settings.items():
            row[SETTING + name] = value
        self.rows.append({**result.metrics, **row})  # a metric of a column's name is left out

    def write(self, directory: str | Path) -> None:
        """Write ``runs.csv``, and what it does not have to ``design.json``."""
        own = {**vars(self), "tuning": {}}
        del own["design"], own["rows"]
        for name, trials in self.tuning.items():
            own["tuning"][name] = [trial._asdict() for trial in trials]
        # of objects, else an empty cell makes 1.0 from 1
        table = pd.DataFrame(self.rows, columns=list(self.runs), dtype=object)
        with whole_file(Path(directory) / TABLE_FILE) as partial:
            table.to_csv(partial, index=False)
        path = Path(directory) / DESIGN_FILE
        facts = read_design(directory) if path.exists() else {}
        write_design(directory, self.design, facts | {"record": own})

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
            table = pd.read_csv(
                Path(directory) / TABLE_FILE,
                dtype=dict.fromkeys(TEXTS, str),
                keep_default_na=False,
                na_values=[""],
            )
            for row in table.to_dict("records"):
                known = {name: value for name, value in row.items() if pd.notna(value)}
                record.rows.append(known)
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            message = f"{directory} is not the folder of a comparison that has ended: {error}"
            raise ValueError(message) from error
        return record


def write_design(directory: str | Path, design: Design, facts: Mapping[str, Any]) -> None:
    """Write ``design.json``: the design of a comparison, and what else is to be known of it."""
    content = {**facts, "design": asdict(design)}
    with whole_file(Path(directory) / DESIGN_FILE) as partial:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")


def read_design(directory: str | Path) -> dict[str, Any]:
    """Return what `write_design` has written, the `Design` at ``design``."""
    content = dict(json.loads((Path(directory) / DESIGN_FILE).read_text(encoding="utf-8")))
    return content | {"design": Design.read(content["design"])}


def _differing(own: Predictions, base: Predictions, baseline: str, candidate: str) -> pd.DataFrame:
    """The examples on which a run predicts unlike the baseline's, each once."""
    unlike = own.table["predicted"] != base.table["predicted"]
    rows = own.table[unlike].drop(columns="predicted")
    rows["example"] = rows["example"].str[:SHOWN]
    rows[f"{baseline} predicts"] = base.table["predicted"][unlike]
    rows["candidate"], rows["it predicts"] = candidate, own.table["predicted"][unlike]
    return rows.drop_duplicates()
