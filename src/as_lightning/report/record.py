"""``comparison.json``: all that a comparison knows, from which its report is written."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result, read_runs, renamed, whole_file
from as_lightning.statistics.example_spread import ExampleSpread, example_spread
from as_lightning.statistics.pairing import TEST_SHARE, paired_differences, unpaired
from as_lightning.statistics.verdicts import Arm, Design, Verdict, verdicts

COMPARISON_FILE = "comparison.json"
FORMAT = 2
BASELINES = ("softmax", "multilabel_softmax")  # the default baselines
FEW_PERCENT = 2.0  # scores above 1 and up to this are rather of another unit
ROUNDING = 1e-5  # of a score that is computed in float32
EXAMPLES, SHOWN = 20, 300  # how many examples a page lists, and how many characters of them


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
    by_seed: tuple[float, ...] = ()  # the score of each of its tuning seeds

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


@dataclass
class ComparisonRecord:
    """All that a comparison knows: its design, trials, chosen settings and final runs."""

    name: str
    score: str  # what the arms are compared by
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
    settings: dict[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # the chosen ones of each candidate
    same_as: dict[str, str] = field(
        default_factory=dict
    )  # candidates that these make the same as another
    tuning: dict[str, list[Trial]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)  # final runs
    # what each candidate changes: names of settings, each with the baseline's value and the
    # candidate's
    changes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)  # runs that have ended in an error, in words
    missing: list[tuple[str, int]] = field(default_factory=list)  # final runs: candidate, seed
    notes: list[str] = field(default_factory=list)  # sentences for the page
    stopped: str = ""  # why the comparison ended before all was decided
    commands: list[str] = field(default_factory=list)
    # for an arm and a baseline's arm the spread of their difference, as their test examples show it
    spreads: dict[tuple[Arm, Arm], ExampleSpread] = field(default_factory=dict)
    # the mean share of test examples on which they differ, and of how many
    disagreed: dict[tuple[Arm, Arm], tuple[float, int]] = field(default_factory=dict)
    examples: list[Example] = field(
        default_factory=list
    )  # on which candidates differ most often from the baseline

    @classmethod
    def of_runs(
        cls,
        runs: Sequence[Result],
        baseline: str,
        *,
        equal_within: float = Design.equal_within,
        looks: Sequence[int] = (),
        **facts: Any,
    ) -> ComparisonRecord:
        """The record of runs that differ in candidate and seed alone; without ``looks`` its design
        is fixed.
        """
        run_counts = Counter((run.candidate, run.seed) for run in runs)
        (arm, seed), most = run_counts.most_common(1)[0]
        if most > 1:
            raise ValueError(
                f"two results are of {runs[0].name}, {arm}, seed {seed}, with the same "
                "settings: a report "
                "compares one run of each; leave one of their folders out"
            )
        candidates = sorted(
            dict.fromkeys(run.candidate for run in runs),
            key=lambda candidate: candidate != baseline,
        )
        seeds = sorted({run.seed for run in runs})
        design = Design(equal_within=equal_within, looks=tuple(looks) or (len(seeds),))
        record = cls(runs[0].name, runs[0].score, baseline, candidates, design, **facts)
        record.results = list(runs)
        last = dict(sorted(run_counts))  # the last seed of each arm
        ends = (
            last if looks else dict.fromkeys(last, seeds[-1])
        )  # with looks an arm may stop before others
        record.missing = [
            (a, seed)
            for a in last
            for seed in seeds
            if (a, seed) not in run_counts and seed <= ends[a]
        ]
        record.commands = list(
            dict.fromkeys(" ".join(run.command.split()) for run in runs if run.command)
        )
        if independent := ", ".join(sorted(record.unpaired)):
            reason = f"Without a seed in common with {baseline}, and compared as independent samples (Welch's t-test)"
            record.notes.append(f"{reason}: {independent}.")
        return record

    @property
    def known_unit(self) -> str:
        """The unit of the score; ``auto`` goes by the largest score, and is a share where less is
        better.
        """
        scores = [run.metrics[run.score] for run in self.results if self.mode == "max"]
        highest = max(filter(math.isfinite, scores), default=0.0)
        return (
            self.unit
            if self.unit != "auto"
            else "share"
            if highest <= 1
            else "percent"
            if highest <= 100
            else "raw"
        )

    @property
    def mixed_units(self) -> str:
        """A warning where candidates may log scores of different units, or no share and no
        percentage; else empty.
        """
        highest: dict[str, float] = {}
        for run in self.results:
            if 0 < (score := run.metrics[self.score]) < math.inf:
                highest[run.candidate] = max(score, highest.get(run.candidate, 0.0))
        small, large = (
            choose(highest, key=highest.__getitem__, default="") for choose in (min, max)
        )
        if self.mode == "min" or self.unit != "auto" or not highest.get(large, 0.0) > 1:
            return ""
        if highest[small] <= 1:
            maxima = (
                f"{small} has scores up to {highest[small]:g}, {large} up to {highest[large]:g}"
            )
            return f"{maxima}: shares and percents are not compared; let all candidates log {self.score} in one unit."
        if highest[large] <= FEW_PERCENT:
            reading = f"{self.score} is at most {highest[large]:g}, and was read in percent"
            return f"{reading}: if it is no percentage, log it so that it lies between 0 and 1."
        return ""

    @property
    def points(self) -> float:
        """How many points a score of 1 is: 100 if it is a share."""
        return 100.0 if self.known_unit == "share" else 1.0

    @property
    def unpaired(self) -> set[Arm]:
        """The arms of a fixed design that have runs, but no seed in common with the baseline."""
        return unpaired(self.scores(), self.baseline) if len(self.design.looks) == 1 else set()

    def scores(self) -> dict[Arm, dict[int, float]]:
        """The score of each seed of each arm, in points; NaN where a run ended in an error."""
        scores: dict[Arm, dict[int, float]] = {}
        points = self.points
        for result in self.results:
            score = points * result.metrics[result.score]
            scores.setdefault(result.candidate, {})[result.seed] = score
        for candidate, seed in self.missing:
            scores.setdefault(candidate, {})[seed] = math.nan
        return scores

    def verdicts(self) -> list[Verdict]:
        """The verdict on each arm, from all runs; a positive difference is better, also of a loss.

        Arms without a seed in common, and repeated splits, are judged by differences that allow for
        it (`paired_differences`).
        """
        sign = 1.0 if self.mode == "max" else -1.0
        scores = {
            arm: {seed: sign * score for seed, score in by.items()}
            for arm, by in self.scores().items()
        }
        design, repeated = self.design, self.splits == "repeated"
        if repeated or self.unpaired:
            ratio = self.test_share / (1.0 - self.test_share) if repeated else 0.0
            scores = paired_differences(scores, self.baseline, ratio)
            design = replace(design, looks=(len(scores[self.baseline]),))
        return verdicts(scores, reference=self.baseline, design=design, spreads=self.spreads)

    def compare_predictions(
        self, predictions: Mapping[tuple[Arm, int], Predictions], names: Mapping[int, str]
    ) -> None:
        """Record on how many test examples each arm differs from the baseline, seed by seed, and on
        which most often.

        ``names`` has the text or the file of each test example, by its id. Where the score is the
        accuracy or the micro F1 of the predictions, the spread of the differences is recorded too.
        """
        scores = {
            (run.candidate, run.seed): self.points / 100 * run.metrics[self.score]
            for run in self.results
        }
        shares: dict[tuple[Arm, Arm], list[float]] = {}
        scored: dict[
            tuple[Arm, Arm], list[tuple[Predictions, Predictions]]
        ] = {}  # that give the runs' scores
        differing: dict[int, Counter[str]] = {}
        for (arm, seed), own in predictions.items():
            against = self.baseline
            other = predictions.get((against, seed))
            differs = None if other is None or against == arm else own.differing(other)
            if other is None or differs is None:
                continue
            shares.setdefault((arm, against), []).append(float(differs.mean()))
            if arm != self.half:
                for example in set(own.ids[differs].tolist()):  # equal texts have one id
                    differing.setdefault(example, Counter())[arm] += 1
            self.disagreed[arm, against] = fmean(shares[arm, against]), len(differs)
            pair = ((arm, own), (against, other))
            if all(
                abs(part.score - scores.get((of, seed), math.nan)) < ROUNDING for of, part in pair
            ):
                scored.setdefault((arm, against), []).append((own, other))
        complete = {
            arms: pairs for arms, pairs in scored.items() if len(pairs) == len(shares[arms])
        }
        self.spreads = {arms: example_spread(pairs) for arms, pairs in complete.items()}
        most_often = sorted(differing, key=lambda example: (-differing[example].total(), example))[
            :EXAMPLES
        ]
        self.examples = [
            Example(names.get(n, f"test example {n}")[:SHOWN], dict(differing[n]))
            for n in most_often
        ]

    def add(self, result: Result, candidate: str, score: float) -> None:
        """Add a final run as one of ``candidate``, with the score that it counts by."""
        metrics = {**result.metrics, result.score: score}
        settings = dict(self.settings[candidate]) if candidate in self.same_as else result.settings
        self.results.append(
            replace(result, name=self.name, candidate=candidate, metrics=metrics, settings=settings)
        )

    def write(self, directory: str | Path) -> None:
        """Write ``comparison.json``; the final runs have their own ``result.json``
        below ``runs/``.
        """
        content = {name: value for name, value in vars(self).items() if name != "results"}
        content["design"] = asdict(self.design)
        content["tuning"] = {
            name: [trial._asdict() for trial in tried] for name, tried in self.tuning.items()
        }
        for name in ("disagreed", "spreads"):
            content[name] = [[*pair, *numbers] for pair, numbers in content[name].items()]
        content["runs"] = [
            [run.candidate, run.seed, run.metrics[run.score], run.session] for run in self.results
        ]
        with whole_file(Path(directory) / COMPARISON_FILE) as partial:
            partial.write_text(
                json.dumps(content | {"format": FORMAT}, indent=1) + "\n", encoding="utf-8"
            )

    @classmethod
    def read(cls, directory: str | Path) -> ComparisonRecord:
        """Read a comparison's folder: its ``comparison.json``, and the runs that it lists; errors
        name a bad file.
        """
        path = Path(directory) / COMPARISON_FILE
        try:
            content = renamed(json.loads(path.read_text(encoding="utf-8")))
            if content.pop("format", None) != FORMAT:
                raise ValueError(
                    f"expected format {FORMAT}: make the comparison again with this version"
                )
            runs = content.pop("runs")
            content["design"] = Design.read(content["design"])
            content["tuning"] = {
                candidate: [
                    Trial(**trial | {"by_seed": tuple(trial.get("by_seed", ()))}) for trial in tried
                ]
                for candidate, tried in content["tuning"].items()
            }
            content["missing"] = list(map(tuple, content["missing"]))
            content["disagreed"] = {(a, b): (share, n) for a, b, share, n in content["disagreed"]}
            spreads = content.get("spreads", [])
            content["spreads"] = {(a, b): ExampleSpread(*numbers) for a, b, *numbers in spreads}
            content["examples"] = [Example(*row) for row in content["examples"]]
            record = cls(**content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a comparison of as-lightning: {error}") from error
        results = read_runs(directory)
        for candidate, seed, score, *session in runs:
            folder = f"{record.same_as.get(candidate, candidate)}/seed={seed}"
            if folder not in results:
                raise FileNotFoundError(
                    f"{path} lists the run {folder}, which is not below {directory}"
                )
            result = results[folder]
            measured = result.metrics.get(
                result.score, math.nan
            )  # for a diverged run another score is listed
            if (math.isfinite(measured) and measured != score) or session not in (
                [],
                [result.session],
            ):
                raise ValueError(
                    f"the run {folder} was made anew after {path} was written: give the command, "
                    "or call, of the "
                    "comparison again, which goes on and writes the report"
                )
            record.add(result, candidate, score)
        return record
