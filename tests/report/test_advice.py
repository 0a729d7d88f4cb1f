"""The advice is a rule: what it recommends, and what it says of the rest."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from as_lightning.bench.run.predictions import Predictions
from as_lightning.report.advice import NEW_DATA, advice, recommended
from as_lightning.report.findings import Findings, Row, TimeRatio, findings, time_ratio
from as_lightning.report.record import ComparisonRecord, Trial
from as_lightning.statistics.example_spread import ExampleSpread
from as_lightning.statistics.verdicts import Design, Verdict

SOFTMAX = "softmax"
SAME_TIME, LESS, EVEN_LESS = (
    TimeRatio(1.0, 0.97, 1.03),
    TimeRatio(0.7, 0.66, 0.74),
    TimeRatio(0.5, 0.48, 0.52),
)


def row(
    arm: str,
    word: str | None,
    time: TimeRatio,
    *,
    difference: float = 0.0,
    sure: bool = True,
    **metrics: float,
) -> Row:
    verdict = None
    if word is not None:
        low, high = difference - 0.3, difference + 0.3
        verdict = Verdict(arm, SOFTMAX, 5, 1, difference, low, high, word, 0.8, 0.5, sure)
    return Row(
        arm,
        6 if arm == HALF else 12,
        {"lr": 0.1, "delta": 0.3},
        5,
        80.0,
        0.5,
        time,
        verdict,
        metrics,
    )


def found(*rows: Row, baseline: dict[str, float] | None = None, **settings) -> Findings:
    record = ComparisonRecord("set", "accuracy", "softmax", ["softmax"], Design(), **settings)
    reference = row(SOFTMAX, None, TimeRatio(1.0, 1.0, 1.0), **(baseline or {}))
    return Findings(record, (reference, *rows))


A, B, HALF = "a", "b", "softmax_half"


@pytest.mark.parametrize(
    ("rows", "chosen", "says"),
    [
        ([], SOFTMAX, "No advice: there is nothing to compare with softmax, 12 epochs."),
        (
            [row(A, "worse", LESS, sure=False)],
            SOFTMAX,
            "Stay with softmax, 12 epochs: nothing here",
        ),
        (
            [row(A, "better", SAME_TIME, difference=1.0)],
            A,
            "Use a, 12 epochs (delta 0.3): +0.7 to +1.3 points: better",
        ),
        (
            [row(A, "better", SAME_TIME, difference=1.0), row(B, "better", LESS, difference=0.9)],
            A,
            "Use a",
        ),
        ([row(A, "better", SAME_TIME, difference=1.0), row(B, "equal", LESS)], A, "Use a"),
        ([row(A, "not worse", LESS)], A, "points, 30% less time: not worse by 0.5 points."),
        ([row(A, "equal", LESS), row(B, "not worse", EVEN_LESS)], B, "Use b"),
        ([row(A, "not worse", LESS, sure=False)], SOFTMAX, "Stay"),
        ([row(A, "equal", SAME_TIME)], SOFTMAX, "Stay"),
        ([row(A, "equal", TimeRatio(0.5))], SOFTMAX, "Stay"),  # one seed has no interval
        ([row(A, "no gain", EVEN_LESS, sure=False)], SOFTMAX, "Stay"),
        (
            [row(A, "worse", EVEN_LESS, sure=False), row(B, "undecided", LESS, sure=False)],
            SOFTMAX,
            "Stay",
        ),
        ([row(HALF, "equal", EVEN_LESS)], HALF, "Use softmax_half, 6 epochs (delta 0.3): "),
    ],
)
def test_the_rule_of_the_advice(rows, chosen, says):
    findings = found(*rows)
    assert recommended(findings).arm == chosen
    assert says in advice(findings)[0]


def test_what_can_be_decided_is_said():
    sentences = advice(found(row(A, "undecided", SAME_TIME, difference=0.2, sure=False)))
    assert "A true difference of 0.8 points would be decided with 80% probability." in sentences


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ("per_seed", "for other random splits of these"),
        ("official", "test split that the data come with"),
        ("fixed", "one split"),
    ],
)
def test_the_reach_of_the_words_is_said_and_last_why_it_stopped_and_the_notes(splits, says):
    kept = {"splits": splits, "stopped": "max_seeds=12 reached.", "notes": ["A note."]}
    *_, reach, stopped, note = advice(found(row(A, "equal", SAME_TIME), **kept))
    assert says in reach
    assert (stopped, note) == ("max_seeds=12 reached.", "A note.")


def test_worse_calibration_is_said_with_what_a_temperature_makes_of_it():
    own = {"calibration_error_unscaled": 0.3, "calibration_error_scaled": 0.02}
    base = {"calibration_error_unscaled": 0.1, "calibration_error_scaled": 0.01}
    (said,) = [
        sentence
        for sentence in advice(found(row(A, "equal", SAME_TIME, **own), baseline=base))
        if sentence.startswith("The probabilities of a are worse calibrated (0.30 against 0.10)")
    ]
    assert "temperature" in said
    assert "0.020 and 0.010" in said
    sentences = advice(
        found(row(A, "equal", SAME_TIME, calibration_error_unscaled=0.11), baseline=base)
    )
    assert not any("calibrated" in sentence for sentence in sentences)


def test_what_weakens_a_verdict_is_said():
    early = row(A, "better", SAME_TIME, difference=1.0)
    too_large = "a stopped early as better: its difference is on average too large."
    assert too_large in advice(found(early))
    late = replace(early, verdict=replace(early.verdict, look=16))
    assert not any("too large" in sentence for sentence in advice(found(late)))
    skewed = replace(early, verdict=replace(early.verdict, skewed=True))
    said = "a: the differences are skewed; this verdict is wrong more often than stated."
    assert said in advice(found(skewed))
    tried = [Trial({"lr": rate}, 0.8) for rate in (0.1, 0.2, 0.4)]
    at = {
        "tuning": dict.fromkeys("abc", tried),
        "settings": {"a": {"lr": 0.4}, "b": {"lr": 0.2}, "c": {"lr": 0.1}},
    }
    said = "a, c: the best learning rate is the smallest or largest that was tried: a better one may lie beyond it."
    assert said in advice(found(early, **at))


def test_without_a_better_candidate_the_odds_of_the_best_one_are_said():
    ahead = row(A, "undecided", SAME_TIME, difference=0.2, sure=False)
    ahead = replace(ahead, verdict=replace(ahead.verdict, ahead=0.812))
    behind = row(B, "undecided", SAME_TIME, difference=-0.2, sure=False)
    behind = replace(behind, verdict=replace(behind.verdict, ahead=0.3))
    assert "a is ahead with probability 0.81" in advice(found(ahead, behind))[0]
    assert "ahead with" not in advice(found(behind))[0]


def test_a_change_is_advised_with_what_it_does_to_the_other_scores():
    own = {"accuracy": 0.9, "balanced_accuracy": 0.772, "f1_macro": 0.599, "loss": 0.3}
    base = {"accuracy": 0.8, "balanced_accuracy": 0.798, "f1_macro": 0.602, "loss": 0.4}
    better = row(A, "better", SAME_TIME, difference=1.0, **own)
    first, *_ = advice(found(better, baseline=base))
    assert "accuracy +0.7 to +1.3 points: better" in first
    assert first.endswith("(balanced accuracy 79.8 → 77.2, macro F1 60.2 → 59.9).")


def test_the_time_ratio_is_a_geometric_mean_over_shared_seeds_and_said_where_its_interval_lies_below_95_percent():
    ratio = time_ratio({0: 5.0, 1: 20.0, 2: 9.0, 3: 10.0}, {0: 10.0, 1: 10.0, 3: 10.0, 7: 1.0})
    assert ratio.ratio == pytest.approx(1.0)
    assert math.log(ratio.high) == pytest.approx(4.30265 * math.log(2) / math.sqrt(3), rel=1e-4)
    assert time_ratio({0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.0}).in_words == ""  # two seeds say nothing
    assert math.isnan(time_ratio({0: 0.0}, {0: 1.0}).ratio)
    assert math.isnan(time_ratio({0: 1.0}, {1: 1.0}).ratio)
    assert TimeRatio(0.9, 0.86, 0.94).in_words == ", 10% less time"
    assert (TimeRatio(0.97, 0.96, 0.98).clearly_less, TimeRatio(0.97, 0.96, 0.98).in_words) == (
        False,
        "",
    )


BASE = [0.80, 0.81, 0.79, 0.82, 0.80]


def comparison(result, **scores: list[float]) -> ComparisonRecord:
    record = ComparisonRecord("set", "accuracy", "softmax", list(scores), Design(looks=(5,)))
    for method, values in scores.items():
        for seed, score in enumerate(values):
            about: dict[str, Any] = {"epochs": 4, "settings": {}}
            seconds = (7.0 if method == "quick" else 10.0) + 0.01 * seed
            record.add(result(method, seed, score, seconds=seconds, **about), method, score)
    return record


def test_times_are_compared_within_a_session_alone(result) -> None:
    record = comparison(result, softmax=[80.0] * 3, quick=[80.0] * 3)
    for row in record.rows[-2:]:
        row["session"] = "yesterday"
    time = findings(record).rows[1].time
    assert time.ratio == pytest.approx(0.7)
    assert math.isnan(time.low)  # of one seed


def test_findings_are_those_of_the_runs_and_too_few_seeds_give_no_advice(result):
    record = comparison(
        result, softmax=BASE, quick=[score + 0.0001 * i for i, score in enumerate(BASE)]
    )
    both = findings(record)
    assert [each.arm for each in both.rows] == ["softmax", "quick"]
    assert both.reference.mean == pytest.approx(80.4)
    assert both.rows[1].verdict.word == "equal"
    assert both.rows[1].time.clearly_less
    assert advice(both)[0].startswith("Use quick, 4 epochs: ")
    few = comparison(result, softmax=[0.8, 0.81], other=[0.9, 0.92])
    few.design = Design(looks=(2,))
    assert advice(findings(few))[0] == "No advice: at least 3 runs of each are needed."


def test_of_a_loss_lower_is_better_and_test_examples_set_the_smallest_spread_and_the_interval_for_new_data(
    result,
):
    record = comparison(result, softmax=BASE, other=[0.90, 0.91, 0.89, 0.92, 0.901])
    assert record.verdicts()[0].word == "better"
    lower = replace(record, mode="min").verdicts()[0]
    assert (lower.word, lower.difference) == ("worse", pytest.approx(-10.02))
    record.spreads = {"other": ExampleSpread(20.0, 5.0)}
    wide = record.verdicts()[0]
    assert wide.word == "undecided"
    assert wide.low < wide.same_low
    assert NEW_DATA in advice(findings(record))


def test_without_a_run_of_the_baseline_there_are_no_findings_but_its_failures(result):
    record = comparison(result, softmax=[0.8] * 5, other=[0.8] * 5)
    record.failures = ["softmax, seed 0: RuntimeError: out of memory"]
    record.rows = record.rows[5:]
    with pytest.raises(ValueError, match=r"no final run of 'softmax'(.|\n)*out of memory"):
        findings(record)


def test_of_balanced_accuracy_examples_are_drawn_within_classes_and_rare_classes_are_named(result):
    generator = np.random.default_rng(0)
    target = np.repeat([*"abc"], [300, 60, 1])
    record = ComparisonRecord("set", "balanced_accuracy", SOFTMAX, [SOFTMAX, A], Design(looks=(5,)))
    predictions = {}
    for name, share in ((SOFTMAX, 0.7), (A, 0.85)):
        for seed in range(5):
            right = generator.random(len(target)) < share
            table = {"example": np.arange(len(target)).astype(str), "target": target}
            table["predicted"] = np.where(right, target, "a")
            predictions[name, seed] = Predictions.of(pd.DataFrame(table))
            score = predictions[name, seed].scored("balanced_accuracy").score
            made = result(name, seed, score, epochs=4, settings={})
            record.add(replace(made, score="balanced_accuracy"), name, score)
    record.compare_predictions(predictions)
    assert record.notes == [predictions[A, 0].rare_classes]
    assert "one test example: c." in record.notes[0]
    (verdict,) = record.verdicts()
    assert verdict.low < verdict.same_low < verdict.same_high < verdict.high


def test_of_several_labels_each_example_counts_and_no_class_is_rare(result):
    record = comparison(result, softmax=[2 / 3, 2 / 3], better=[1.0, 1.0])
    predictions = {}
    for name, guess in (("softmax", "a"), ("better", "a|b")):
        table = pd.DataFrame({"example": ["x", "y"], "targets": "a|b", "predicted": [guess, guess]})
        for seed in (0, 1):
            predictions[name, seed] = Predictions.of(table)
    record.compare_predictions(predictions)
    assert record.notes == []
    assert [row["example"] for row in record.examples] == ["x", "y"]
