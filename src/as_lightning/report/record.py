"""All that a comparison knows, from which its report is written: ``design.json`` has what was
asked and said, ``runs.csv`` a row for each run.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pandas as pd

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result, whole_file
from as_lightning.statistics.example_spread import ExampleSpread, ScoredExamples, example_spread
from as_lightning.statistics.pairing import TEST_SHARE, paired_differences, unpaired
from as_lightning.statistics.verdicts import Design, Verdict, verdicts

DESIGN_FILE, TABLE_FILE = "design.json", "runs.csv"
BASELINES = ("softmax", "multilabel_softmax")  # the default baselines
ROUNDING = 1e-5  # of a score that is computed in float32
EXAMPLES, SHOWN = 20, 300  # how many examples a page lists, and how many characters of them
SETTING = "setting."  # before the name of a tuned setting, in a table of runs
METRIC = "metric."  # before the name of a metric that is that of another column
COUNTED = ("epochs", "parameters", "optimizer_steps", "loss_accuracy_correlation")
OTHERS = {"candidate", "seed", "phase", "trial", "score", "train_seconds", "session", *COUNTED}
OTHERS |= {"masking", "made_on"}
# fields that the table has
OF_TABLE = {"design", "results", "tuned", "settings", "missing"}


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

    def mean_of(self, seeds: int) -> float:
        """Return the mean score of the first tuning seeds."""
        return fmean(self.by_seed[:seeds] or [self.score])


class Example(NamedTuple):
    """A test example: its text or file, and for each candidate how many runs predict it unlike the
    baseline's.
    """

    name: str
    differing: dict[str, int]
    target: str = ""  # its true label
    predicted: Mapping[str, str] = {}  # what most runs of each candidate predict


@dataclass
class ComparisonRecord:
    """All that a comparison knows: its design, trials, chosen settings and final runs."""

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
    splits: Literal["per_seed", "official", "fixed", "repeated", ""] = "fixed"
    test_share: float = TEST_SHARE  # of the examples, in repeated random splits
    pairs: str = "seed"  # what runs are paired by
    unit: Literal["auto", "share", "percent", "raw"] = "auto"  # of the score
    untuned: str = ""  # why there is no advice
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the chosen ones
    same_as: dict[str, str] = field(default_factory=dict)  # those that tuning made another one
    tuning: dict[str, list[Trial]] = field(default_factory=dict)
    tuned: list[Result] = field(default_factory=list)  # runs of the tuning
    results: list[Result] = field(default_factory=list)  # final runs
    # what each candidate changes: names of settings, each with the baseline's value and its own
    changes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)  # runs that have ended in an error, in words
    missing: list[tuple[str, int]] = field(default_factory=list)  # final runs: candidate and seed
    notes: list[str] = field(default_factory=list)  # sentences for the page
    stopped: str = ""  # why the comparison ended before all was decided
    behind: list[str] = field(default_factory=list)  # candidates that a race did not pursue
    commands: list[str] = field(default_factory=list)
    # of each candidate beside the baseline, as their test examples show it: the spread of their
    # difference, and the mean share of examples on which they differ, and of how many
    spreads: dict[str, ExampleSpread] = field(default_factory=dict)
    disagreed: dict[str, tuple[float, int]] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)  # on which candidates differ most often

    @classmethod
    def from_runs(
        cls,
        runs: Sequence[Result],
        baseline: str,
        *,
        equal_within: float = Design.equal_within,
        looks: Sequence[int] = (),
        **facts: Any,
    ) -> ComparisonRecord:
        """Return the record of runs that differ in candidate and seed alone; without ``looks`` its
        design is fixed.
        """
        seeds_of: dict[str, list[int]] = {}
        for run in runs:
            seeds = seeds_of.setdefault(run.candidate, [])
            if run.seed in seeds:
                raise ValueError(
                    f"two results are of {run.name}, {run.candidate}, seed {run.seed}, with the "
                    "same settings: a report compares one run of each; leave one of their folders "
                    "out"
                )
            seeds.append(run.seed)
        candidates = sorted(seeds_of, key=lambda candidate: candidate != baseline)
        all_seeds = sorted({run.seed for run in runs})
        design = Design(equal_within=equal_within, looks=tuple(looks) or (len(all_seeds),))
        record = cls(runs[0].name, runs[0].score, baseline, candidates, design, **facts)
        record.results = list(runs)
        for candidate, seeds in sorted(seeds_of.items()):
            last = max(seeds) if looks else all_seeds[-1]  # with looks it may stop before others
            due = [seed for seed in all_seeds if seed <= last]
            record.missing += [(candidate, seed) for seed in due if seed not in seeds]
        commands = dict.fromkeys(" ".join(run.command.split()) for run in runs)
        record.commands = [*filter(None, commands)]
        if independent := ", ".join(sorted(record.unpaired)):
            record.notes.append(
                f"Without a seed in common with {baseline}, and compared as independent samples "
                f"(Welch's t-test): {independent}."
            )
        return record

    @property
    def known_unit(self) -> str:
        """The unit of the score; ``auto`` goes by the largest score, and is a share where less is
        better.
        """
        if self.unit != "auto":
            return self.unit
        scores = [run.metrics[run.score] for run in self.results]
        highest = max(filter(math.isfinite, scores), default=0.0)
        if self.mode == "min" or highest <= 1:
            return "share"
        return "percent" if highest <= 100 else "raw"

    @property
    def points(self) -> float:
        """How many points a score of 1 is: 100 if it is a share."""
        return 100.0 if self.known_unit == "share" else 1.0

    @property
    def unpaired(self) -> set[str]:
        """The candidates of a fixed design that have runs, but no seed in common with the
        baseline.
        """
        return unpaired(self.scores(), self.baseline) if len(self.design.looks) == 1 else set()

    def scores(self, sign: float = 1.0) -> dict[str, dict[int, float]]:
        """Return the score of each seed of each candidate, in points times ``sign``; NaN where a
        run ended in an error.
        """
        scores: dict[str, dict[int, float]] = {}
        points = sign * self.points
        for run in self.results:
            scores.setdefault(run.candidate, {})[run.seed] = points * run.metrics[run.score]
        for candidate, seed in self.missing:
            scores.setdefault(candidate, {})[seed] = math.nan
        return scores

    def verdicts(self) -> list[Verdict]:
        """Return the verdict on each candidate, from all runs; a positive difference is better,
        also of a loss.

        Candidates without a seed in common, and repeated splits, are judged by differences that
        allow for it (`paired_differences`).
        """
        scores = self.scores(1.0 if self.mode == "max" else -1.0)
        design, ratio = self.design, 0.0
        if self.splits == "repeated":
            ratio = self.test_share / (1.0 - self.test_share)
        if ratio or self.unpaired:
            scores = paired_differences(scores, self.baseline, ratio)
            design = replace(design, looks=(len(scores[self.baseline]),))
        spreads = {(name, self.baseline): spread for name, spread in self.spreads.items()}
        return verdicts(scores, reference=self.baseline, design=design, spreads=spreads)

    def compare_predictions(
        self, predictions: Mapping[tuple[str, int], Predictions], names: Mapping[int, str]
    ) -> None:
        """Record on how many test examples each candidate differs from the baseline, seed by seed,
        and on which most often.

        ``names`` has the text or the file of each test example, by its id. Where the score is the
        accuracy or the micro F1 of the predictions, the spread of the differences is recorded too.
        """
        scores = self.scores()
        shares: dict[str, list[float]] = {}
        scored: dict[str, list[tuple[ScoredExamples, ScoredExamples]]] = {}
        differing: dict[int, Counter[str]] = {}
        self.spreads, self.disagreed, self.examples = {}, {}, []
        for (name, seed), own in predictions.items():
            base = predictions.get((self.baseline, seed))
            differs = None
            if base is not None and name != self.baseline:
                differs = own.differing(base)
            if base is None or differs is None:
                continue
            shares.setdefault(name, []).append(float(differs.mean()))
            self.disagreed[name] = fmean(shares[name]), len(differs)
            if name != self.half:
                for example in set(own.ids[differs].tolist()):  # equal texts have one id
                    differing.setdefault(example, Counter())[name] += 1
            score = self.score.rpartition("/")[2]
            pair = own.scored(score), base.scored(score)
            error = abs(pair[0].score - scores[name][seed] / 100)
            base_error = abs(pair[1].score - scores[self.baseline][seed] / 100)
            if error < ROUNDING and base_error < ROUNDING:
                scored.setdefault(name, []).append(pair)
        for name, pairs in scored.items():
            if len(pairs) == len(shares[name]):
                self.spreads[name] = example_spread(pairs)
                if pairs[0][0].strata is not None and (rare := own.rare_classes):
                    self.notes = list(dict.fromkeys([*self.notes, rare]))
        most_often = sorted(differing, key=lambda example: (-differing[example].total(), example))
        for number in most_often[:EXAMPLES]:
            text = names.get(number, f"test example {number}")[:SHOWN]
            words = _predicted(number, predictions)
            self.examples.append(Example(text, dict(differing[number]), *words))

    def add(self, result: Result, candidate: str, score: float) -> None:
        """Add a final run as one of ``candidate``, with the score that it counts by."""
        metrics = {**result.metrics, result.score: score}
        added = replace(result, name=self.name, candidate=candidate, metrics=metrics)
        if candidate in self.same_as:
            added.settings = dict(self.settings[candidate])
        self.results.append(added)

    def write(self, directory: str | Path) -> None:
        """Write ``runs.csv``, and what it does not have to ``design.json``."""
        own = {name: value for name, value in vars(self).items() if name not in OF_TABLE}
        for name, trials in self.tuning.items():
            own["tuning"] = own["tuning"] | {name: [trial._asdict() for trial in trials]}
        own["made_on"] = []
        table = runs_table([*self.tuned, *self.results], self.mode, own["made_on"])
        table = table.astype(object)  # else an empty cell makes numbers of a column 1.0 from 1
        for place in self.missing:
            table.loc[len(table), ["candidate", "seed", "phase"]] = *place, "final"
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
            facts = content["record"]
            made_on = facts.pop("made_on")
            record = cls(design=content["design"], **facts)
            for name, trials in facts["tuning"].items():
                record.tuning[name] = [Trial(**fields) for fields in trials]
            for name, (share, examples) in record.disagreed.items():
                record.disagreed[name] = share, examples
            for name in record.spreads:
                record.spreads[name] = ExampleSpread(*record.spreads[name])
            record.examples = [Example(*example) for example in record.examples]
            table = pd.read_csv(Path(directory) / TABLE_FILE, dtype=str, keep_default_na=False)
            for row in table.to_dict("records"):
                record._take(row, made_on)
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(
                f"{directory} is not the folder of a comparison that has ended: {error}"
            ) from error
        return record

    def _take(self, row: dict[str, str], made_on: Sequence[dict[str, Any]]) -> None:
        """Take over a row of ``runs.csv``."""
        if not row["made_on"]:
            self.missing.append((row["candidate"], int(row["seed"])))
            return
        result = _result(row, self.name, self.score, made_on)
        if result.phase == "tuning":
            self.tuned.append(result)
        else:
            self.results.append(result)
            self.settings.setdefault(result.candidate, result.settings)


def write_design(directory: str | Path, plan: Planned, facts: Mapping[str, Any]) -> None:
    """Write ``design.json``: the design of a comparison, and what else is to be known of it."""
    content = {**facts, "design": asdict(plan.design)}
    with whole_file(Path(directory) / DESIGN_FILE) as partial:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")


def read_design(directory: str | Path) -> dict[str, Any]:
    """Return what `write_design` has written, the `Design` at ``design``."""
    content = dict(json.loads((Path(directory) / DESIGN_FILE).read_text(encoding="utf-8")))
    return content | {"design": Design.read(content["design"])}


def runs_table(
    results: Sequence[Result], mode: str = "max", made_on: list[dict[str, Any]] | None = None
) -> pd.DataFrame:
    """Return a row for each run; ``made_on`` collects the machines and versions that it counts.

    The score of a run of the tuning is that of its best validation.
    """
    made_on = [] if made_on is None else made_on
    rows = []
    for run in results:
        made = {"machine": run.machine, "versions": run.versions}
        if made not in made_on:
            made_on.append(made)
        score = run.metrics.get(run.score)
        if run.phase == "tuning":
            score = best_validation(run, mode)
        row = {"candidate": run.candidate, "seed": run.seed, "phase": run.phase or "final"}
        row |= {"trial": run.trial, "score": score}
        row |= {"train_seconds": run.train_seconds, "session": run.session or run.command}
        row |= {name: getattr(run, name) for name in COUNTED}
        epochs = [f"{epoch['masked_samples']}/{epoch['samples']}" for epoch in run.masking]
        row |= {"masking": " ".join(epochs), "made_on": made_on.index(made)}
        for name, value in run.settings.items():
            row[SETTING + name] = value if isinstance(value, str) else json.dumps(value)
        for name, value in run.metrics.items():
            row[METRIC * (name in row) + name] = value
        rows.append(row)
    return pd.DataFrame(rows)


def _result(
    row: dict[str, str], name: str, score: str, made_on: Sequence[dict[str, Any]]
) -> Result:
    """Return the run of a row of a table."""
    values = {column: _value(text) for column, text in row.items() if text}
    settings: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    for column, value in values.items():
        if column.startswith(SETTING):
            settings[column.removeprefix(SETTING)] = value
        elif column not in OTHERS:
            metrics[column.removeprefix(METRIC)] = value
    if "score" in values:
        metrics[score] = values["score"]
    masking = []
    for counts in row["masking"].split():
        masked, samples = map(int, counts.split("/"))
        masking.append({"masked_samples": masked, "samples": samples})
    return Result(
        name=name,
        score=score,
        candidate=row["candidate"],
        seed=values["seed"],
        phase="tuning" if row["phase"] == "tuning" else "final",
        trial=values["trial"],
        train_seconds=values.get("train_seconds", math.nan),
        session=row["session"],
        command="",
        metrics=metrics,
        settings=settings,
        masking=masking,
        epochs=values.get("epochs"),
        parameters=values.get("parameters"),
        optimizer_steps=values.get("optimizer_steps"),
        loss_accuracy_correlation=values.get("loss_accuracy_correlation"),
        **made_on[values["made_on"]],
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def best_validation(run: Result, mode: str) -> float:
    """Return the best finite validation score of a run; NaN for none."""
    scores = [row["score"] for row in run.evaluations if math.isfinite(row["score"])]
    best = max if mode == "max" else min
    return best(scores, default=run.metrics.get(run.score, math.nan))


def _predicted(
    number: int, predictions: Mapping[tuple[str, int], Predictions]
) -> tuple[str, dict[str, str]]:
    """The target of an example, and what most runs of each candidate predict."""
    target = ""
    counts: dict[str, Counter[str]] = {}
    for (name, _), own in predictions.items():
        places = np.flatnonzero(own.ids == number)
        if len(places) and len(own.table):
            _, target, predicted = own.in_words(int(places[0]))
            counts.setdefault(name, Counter())[predicted] += 1
    return target, {name: count.most_common(1)[0][0] for name, count in counts.items()}
