"""The paired comparison, against SciPy and Holm's method by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from as_lightning.benchmark.report.comparison import baseline_of, compare, runs_frame, time_ratios
from as_lightning.benchmark.report.old_verdicts import paired_verdicts


def table(results, **arguments):
    return compare(runs_frame(results), **arguments).set_index(["name", "method"])


def runs(result, method, accuracies, **fields):
    return [result(method, seed, accuracy, **fields) for seed, accuracy in enumerate(accuracies)]


BASE = [0.80, 0.82, 0.78, 0.81, 0.79]


def test_difference_and_interval_are_the_paired_t_tests(result):
    other = [0.83, 0.84, 0.80, 0.85, 0.80]
    row = table(runs(result, "softmax", BASE) + runs(result, "as_softmax", other)).loc[("set", "as_softmax")]
    interval = stats.ttest_rel(other, BASE).confidence_interval(0.95)
    assert row["difference"] == pytest.approx(np.mean(other) - np.mean(BASE))
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["p"] == pytest.approx(stats.ttest_rel(other, BASE).pvalue)
    assert row["verdict"] == "better"


def test_pairing_goes_by_seed_and_not_by_order(result):
    base = runs(result, "softmax", BASE)
    other = runs(result, "as_softmax", [value + 0.01 + 0.001 * (seed % 2) for seed, value in enumerate(BASE)])
    pd.testing.assert_frame_equal(table(base + other), table(base + other[::-1]))
    assert table(base + other[::-1]).loc[("set", "as_softmax"), "verdict"] == "better"


def test_holm_corrects_for_all_comparisons_of_the_report(result):
    generator = np.random.default_rng(0)
    results = runs(result, "softmax", BASE)
    others = {f"m{k}": np.array(BASE) + 0.004 * k + generator.normal(0, 0.006, 5) for k in range(5)}
    for method, accuracies in others.items():
        results += runs(result, method, accuracies.tolist())
    raw = {method: stats.ttest_rel(accuracies, BASE).pvalue for method, accuracies in others.items()}
    expected, running = {}, 0.0
    for rank, method in enumerate(sorted(raw, key=raw.get)):
        running = max(running, min(1.0, (len(raw) - rank) * raw[method]))
        expected[method] = running
    rows = table(results)
    for method, p in expected.items():
        assert rows.loc[("set", method), "p"] == pytest.approx(p)
        assert (rows.loc[("set", method), "verdict"] == "better") == (p < 0.05)
    verdicts = {rows.loc[("set", method), "verdict"] for method in others}
    assert verdicts == {"better", "equal", "inconclusive"}


def test_thirty_comparisons_of_noise_give_no_verdict_though_single_tests_would(result):
    generator = np.random.default_rng(1)
    results, raw = [], []
    for index in range(30):
        base, other = generator.normal(0.8, 0.01, (2, 5)).tolist()
        results += runs(result, "softmax", base, name=f"set{index}") + runs(result, "same", other, name=f"set{index}")
        raw.append(stats.ttest_rel(other, base).pvalue)
    assert min(raw) < 0.05  # without the correction one of them would be called
    assert set(table(results)["verdict"]) == {"baseline", "inconclusive"}


def test_a_method_that_loses_is_called_worse(result):
    rows = table(runs(result, "softmax", BASE) + runs(result, "bad", [v - 0.1 - 0.01 * v for v in BASE]))
    assert rows.loc[("set", "bad"), "verdict"] == "worse"


def test_the_words_are_those_of_a_tuned_comparison(result):
    """All of them: a method of each kind beside the others."""
    leads = {
        "better": [0.020, 0.021, 0.019, 0.022, 0.020],
        "worse": [-0.020, -0.021, -0.019, -0.022, -0.020],
        "equal": [0.001, 0.0011, 0.0009, 0.001, 0.0012],  # significant, and smaller than what matters
        "inconclusive": [0.02, -0.015, 0.005, 0.01, -0.01],
        "no verdict": [0.01] * 5,
    }
    results = runs(result, "softmax", BASE)
    for method, lead in leads.items():
        results += runs(result, method, [score + more for score, more in zip(BASE, lead, strict=True)])
    rows = table(results).loc["set"]
    verdicts = paired_verdicts(leads)
    for word, verdict in verdicts.items():
        assert verdict.word == rows.loc[word, "verdict"] == word
        assert rows.loc[word, "in_words"] == verdict.in_words
    assert rows.loc["equal", "in_words"] == "equal within 0.5 points"
    assert rows.loc["inconclusive", "detectable"] == pytest.approx(verdicts["inconclusive"].detectable)
    assert rows.loc["equal", "p_equal"] == pytest.approx(verdicts["equal"].p_equal)


@pytest.mark.parametrize(("seeds", "in_common"), [(1, "1 seed"), (2, "2 seeds")])
def test_fewer_than_three_seeds_give_no_verdict(result, seeds, in_common):
    rows = table(runs(result, "softmax", BASE[:seeds]) + runs(result, "as_softmax", [0.9] * seeds))
    assert rows.loc[("set", "as_softmax"), "verdict"] == "no verdict"
    assert rows.loc[("set", "as_softmax"), "in_words"] == f"no verdict: {in_common} in common, at least 3 are needed"
    assert math.isnan(rows.loc[("set", "as_softmax"), "p"])


@pytest.mark.parametrize("lead", [0.0, 0.01])
def test_a_difference_that_is_the_same_for_every_seed_gives_no_verdict_as_in_a_tuned_comparison(result, lead: float):
    generator = np.random.default_rng(0)
    noisy = [score + 0.02 + change for score, change in zip(BASE, generator.normal(0, 0.001, 5), strict=True)]
    constant, other = [score + lead for score in BASE], runs(result, "other", noisy)
    rows = table(runs(result, "softmax", BASE) + runs(result, "constant", constant) + other).loc["set"]
    assert rows.loc["constant", "verdict"] == "no verdict"
    assert paired_verdicts({"constant": np.subtract(constant, BASE)})["constant"].word == "no verdict"
    assert rows.loc["constant", "difference"] == pytest.approx(lead)
    assert rows.loc["constant", ["low", "high", "p"]].isna().all()
    # and takes no part in the correction
    assert rows.loc["other", "p"] == pytest.approx(stats.ttest_rel(noisy, BASE).pvalue)


def test_without_a_baseline_there_is_no_comparison(result):
    assert table(runs(result, "as_softmax", BASE)).loc[("set", "as_softmax"), "verdict"] == "no baseline"


def test_time_ratios_are_medians_of_paired_ratios(result):
    results = [result("softmax", seed, 0.8, seconds=seconds) for seed, seconds in enumerate((10.0, 20.0, 40.0))]
    results += [result("fast", seed, 0.8, seconds=seconds) for seed, seconds in enumerate((5.0, 16.0, 10.0))]
    rows = time_ratios(results).set_index("method")
    assert rows.loc["fast", "train"] == pytest.approx(0.5)
    assert rows.loc["fast", "to_target"] == pytest.approx(0.5)
    assert rows.loc["fast", "target_score"] == pytest.approx(0.98 * 0.8)


def test_a_target_that_is_not_reached_is_said_so(result):
    rows = time_ratios(runs(result, "softmax", BASE) + runs(result, "bad", [0.1] * 5)).set_index("method")
    assert rows.loc["bad", "reached"] == 0
    assert math.isnan(rows.loc["bad", "to_target"])


def test_each_experiment_is_compared_with_the_baseline_of_its_kind(result):
    def labels(method: str, scores: list[float]):
        return runs(result, method, scores, name="labels", score_name="f1_micro")

    better = [value + 0.02 + 0.001 * index for index, value in enumerate(BASE)]
    results = [
        *labels("multilabel_as_softmax", better),
        *labels("bce", BASE),
        *labels("multilabel_softmax", BASE),
        *runs(result, "as_softmax", better),
        *runs(result, "softmax", BASE),
    ]
    rows = table(results)
    verdicts = {key: row["verdict"] for key, row in rows.iterrows()}
    assert verdicts == {
        ("labels", "multilabel_softmax"): "baseline",
        ("labels", "multilabel_as_softmax"): "better",
        ("labels", "bce"): "no verdict",
        ("set", "softmax"): "baseline",
        ("set", "as_softmax"): "better",
    }
    assert rows["difference"].dropna().tolist() == pytest.approx([0.022, 0.0, 0.022])
    assert [name for name, _ in rows.index[:1]] == ["labels"]
    ratios = time_ratios(results).set_index(["name", "method"])
    assert ratios.loc[("labels", "bce"), "train"] == pytest.approx(1.0)
    assert ratios.loc[("labels", "bce"), "target_score"] == pytest.approx(0.98 * np.mean(BASE))


def test_runs_are_compared_by_the_metric_that_they_name(result):
    metrics = {"accuracy": 0.1, "f1_micro": 0.2, "span_f1": 0.3}
    frame = runs_frame([result("softmax", 0, 0.0, score_name=name, metrics=metrics) for name in metrics])
    assert frame["score"].tolist() == [0.1, 0.2, 0.3]


def test_the_micro_f1_of_one_class_a_sample_is_the_accuracy(result):
    assert runs_frame([result("softmax", 0, 0.7)])["f1_micro"].tolist() == [0.7]


@pytest.mark.parametrize(
    ("methods", "asked", "baseline"),
    [
        (["as_softmax", "softmax"], None, "softmax"),
        (["bce", "multilabel_softmax"], None, "multilabel_softmax"),
        (["multilabel_softmax", "softmax"], None, "softmax"),
        (["bce", "as_softmax"], None, "softmax"),
        (["as_softmax", "softmax"], "as_softmax", "as_softmax"),
    ],
)
def test_the_baseline_is_the_one_asked_for_or_the_plain_method_that_is_there(methods, asked, baseline):
    assert baseline_of(methods, asked) == baseline
