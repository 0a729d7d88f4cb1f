"""The words of a comparison: what each needs, look by look, and how often they are wrong."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from as_lightning.benchmark.report.verdicts import (
    SIGN_SHARE,
    SMALL_SAMPLES,
    WORDS,
    Arm,
    Design,
    Verdict,
    detectable_difference,
    still_open,
    verdicts,
)

SOFTMAX, OTHER, THIRD = Arm("softmax"), Arm("other"), Arm("third")


def runs(*effects: float, seeds: int = 5, noise: float = 0.3, state: int = 0) -> dict[Arm, dict[int, float]]:
    """Scores of the baseline, and of methods with these true differences."""
    generator = np.random.default_rng(state)
    names = (SOFTMAX, OTHER, THIRD, *(Arm(f"method {index}") for index in range(len(effects))))
    table = 90 + generator.normal(0, 1.0, seeds) + generator.normal(0, noise, (len(effects) + 1, seeds))
    table[1:] += np.array(effects)[:, None]
    return {arm: dict(enumerate(row.tolist())) for arm, row in zip(names, table, strict=False)}


def judge(scores: dict[Arm, dict[int, float]], design: Design | None = None, **kwargs) -> list[Verdict]:
    seeds = len(scores[SOFTMAX])
    return verdicts(scores, reference=SOFTMAX, design=design or Design(looks=(seeds,)), **kwargs)


@pytest.mark.parametrize(
    ("effect", "noise", "seeds", "word"),
    [
        (3.0, 0.3, 5, "better"),
        (-3.0, 0.3, 5, "worse"),
        (0.0, 0.1, 8, "equal"),
        (0.3, 0.1, 8, "equal"),  # a difference within the bounds, shown or not, is none
        (-0.6, 0.8, 8, "not worse"),
        (-1.2, 0.8, 8, "no gain"),
        (0.0, 3.0, 5, "undecided"),
    ],
)
def test_each_word_is_given_where_it_is_shown(effect, noise, seeds, word):
    (verdict,) = judge(runs(effect, noise=noise, seeds=seeds))
    assert verdict.word == word
    assert verdict.decided == (word != "undecided")
    assert verdict.low < verdict.difference < verdict.high


def test_one_method_at_one_look_is_judged_by_the_paired_t_tests_themselves():
    for state in range(200):
        scores = runs(0.4, noise=0.4, seeds=6, state=state)
        paired = np.array([scores[OTHER][seed] - scores[SOFTMAX][seed] for seed in range(6)])

        def holds(shift: float, side: str, share: float = 1.0, paired: np.ndarray = paired) -> bool:
            return bool(stats.ttest_1samp(paired, shift, alternative=side).pvalue <= share * SMALL_SAMPLES * 0.05)

        not_worse, no_gain = holds(-0.5, "greater"), holds(0.5, "less")
        better, worse = holds(0.0, "greater", SIGN_SHARE), holds(0.0, "less", SIGN_SHARE)
        held = (not_worse and no_gain, better, worse, not_worse, no_gain, True)
        (verdict,) = judge(scores)
        assert verdict.word == ("equal", "better", "worse", "not worse", "no gain", "undecided")[held.index(True)]
        interval = stats.ttest_1samp(paired, 0.0).confidence_interval()
        assert (verdict.low, verdict.high) == pytest.approx((interval.low, interval.high))


def test_the_first_look_needs_more_evidence_than_a_fixed_design_of_its_seeds():
    words = [
        [judge(scores, design)[0].word for design in (Design(looks=(5,)), Design())]
        for scores in (runs(0.9, noise=0.4, state=state) for state in range(60))
    ]
    fixed, first = ([pair[index] == "undecided" for pair in words] for index in (0, 1))
    assert sum(fixed) < sum(first)
    assert all(later for earlier, later in zip(fixed, first, strict=True) if earlier)


def test_a_word_that_has_fallen_stays_whatever_seeds_and_methods_follow():
    full = runs(2.0, 0.3, seeds=20, noise=0.6)
    stopped = dict(list(full[OTHER].items())[:5])
    first = {arm: dict(list(by_seed.items())[:5]) for arm, by_seed in full.items()}
    at_first = {verdict.arm: verdict for verdict in judge(first, Design())}
    assert at_first[OTHER].word == "better"
    assert at_first[THIRD].word == "undecided"
    third = {}
    for seeds in (5, 6, 8, 11, 12, 20):
        now = {arm: dict(list(by_seed.items())[:seeds]) for arm, by_seed in full.items()} | {OTHER: stopped}
        other, third[seeds] = judge(now, Design())
        assert other == at_first[OTHER]
    assert (third[6], third[11]) == (third[5], third[8])  # half a look changes nothing


def test_the_order_of_methods_and_seeds_does_not_matter():
    scores = runs(0.5, -0.3, 1.0, seeds=8, state=5)
    turned = {arm: dict(reversed(scores[arm].items())) for arm in reversed(scores)}
    found, again = ({v.arm: v for v in judge(some)} for some in (scores, turned))
    for arm, verdict in found.items():
        assert again[arm].word == verdict.word
        assert again[arm].low == pytest.approx(verdict.low)


@given(shift=st.floats(-50, 50), scale=st.sampled_from([0.5, 2.0, 10.0]), state=st.integers(0, 20))
def test_words_move_with_the_scores_and_their_unit(shift, scale, state):
    scores = runs(0.6, -0.2, noise=0.4, state=state)
    moved = {arm: {seed: scale * score + shift for seed, score in by.items()} for arm, by in scores.items()}
    words = [verdict.word for verdict in judge(scores)]
    assert [verdict.word for verdict in judge(moved, Design(0.5 * scale, looks=(5,)))] == words


def test_copies_of_a_method_count_once_and_a_copy_of_the_baseline_is_equal():
    scores = runs(0.7, noise=0.5, seeds=6, state=2)
    alone = judge(scores)[0]
    copied = scores | {Arm("copy"): dict(scores[OTHER]), Arm("baseline again"): dict(scores[SOFTMAX])}
    found = {verdict.arm.method: verdict for verdict in judge(copied)}
    for method in ("other", "copy"):
        assert (found[method].word, found[method].low) == (alone.word, alone.low)
    assert (found["baseline again"].word, found["baseline again"].difference) == ("equal", 0.0)
    assert found["baseline again"].reason == "the scores of every seed are the same"


def test_what_is_the_same_at_the_first_look_alone_is_not_a_copy():
    scores = runs(-3.0, noise=0.2, seeds=12)
    scores[OTHER] |= {seed: scores[SOFTMAX][seed] for seed in range(5)}
    (verdict,) = judge(scores, Design(looks=(5, 12)))
    assert (verdict.seeds, verdict.word) == (12, "worse")
    assert verdict.difference < -1


def test_a_method_that_is_as_often_right_on_other_examples_is_not_a_copy():
    scores = {SOFTMAX: dict.fromkeys(range(5), 80.0), OTHER: dict.fromkeys(range(5), 80.0)}
    assert judge(scores)[0].reason == "the scores of every seed are the same"
    (verdict,) = judge(scores, floors={(OTHER, SOFTMAX): 2.0})
    assert (verdict.word, verdict.reason) == ("undecided", "")
    assert verdict.high > 1


def test_smaller_budgets_are_a_family_of_their_own_and_compared_at_the_full_and_at_their_own_budget():
    scores = runs(0.4, noise=0.4, seeds=8)
    full = judge(scores)
    half = {Arm(arm.method, 0.5): {seed: value - 2 for seed, value in by.items()} for arm, by in scores.items()}
    found = judge(scores | half)
    assert found[: len(full)] == full
    pairs = {(v.arm, v.against): v for v in found[len(full) :]}
    assert set(pairs) == {
        (Arm("softmax", 0.5), SOFTMAX),
        (Arm("other", 0.5), SOFTMAX),
        (Arm("other", 0.5), Arm("softmax", 0.5)),
    }
    assert pairs[Arm("other", 0.5), Arm("softmax", 0.5)].difference == pytest.approx(full[0].difference)
    assert pairs[Arm("other", 0.5), SOFTMAX].word == "worse"


def test_flips_of_single_test_examples_set_the_smallest_spread():
    scores = {SOFTMAX: {seed: 80 + 0.3 * seed for seed in range(5)}}
    scores[OTHER] = {seed: score + 0.6 + 0.001 * seed for seed, score in scores[SOFTMAX].items()}
    assert judge(scores)[0].word == "better"
    # 10% of 360 examples differ: sqrt(0.1 / 360) is 1.67 points a run
    (floored,) = judge(scores, floors={(OTHER, SOFTMAX): 100 * math.sqrt(0.1 / 360)})
    assert floored.word == "undecided"
    half = float(stats.t.isf(0.025, 4)) * 100 * math.sqrt(0.1 / 360) / math.sqrt(5)
    assert floored.high - floored.difference == pytest.approx(half)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda scores: {0: scores[0], 1: scores[1]}, "2 seeds in common, at least 3 are needed"),
        (lambda scores: dict.fromkeys(scores, math.nan), "0 seeds in common, at least 3 are needed"),
        (
            lambda scores: {seed: score + 2 for seed, score in scores.items()},
            "the difference is the same for every seed",
        ),
    ],
)
def test_what_cannot_be_tested_is_undecided_with_its_reason_and_is_not_continued(change, reason):
    scores = {SOFTMAX: dict(enumerate((80.0, 81.0, 79.0, 78.0, 82.0)))}
    scores[OTHER] = change(scores[SOFTMAX])
    (verdict,) = judge(scores)
    assert (verdict.word, verdict.reason) == ("undecided", reason)
    assert still_open([verdict], Design()) == []


def test_a_failed_run_leaves_its_seed_out():
    scores = runs(3.0, 0.0, seeds=6)
    scores[OTHER][2] = math.nan
    found = {verdict.arm: verdict for verdict in judge(scores)}
    assert (found[OTHER].seeds, found[THIRD].seeds) == (5, 6)
    assert found[OTHER].word == "better"
    kept = [scores[OTHER][seed] - scores[SOFTMAX][seed] for seed in (0, 1, 3, 4, 5)]
    assert found[OTHER].difference == pytest.approx(np.mean(kept))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"equal_within": 0}, "equal_within must be a positive number of points, got 0"),
        ({"equal_within": math.nan}, "equal_within must be a positive number"),
    ],
)
def test_a_design_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Design(**settings)


def test_an_arm_goes_on_while_that_can_change_what_one_does():
    def verdict(word: str, difference: float = 0.0, *, look: int = 1, sure: bool = False) -> Verdict:
        return Verdict(OTHER, SOFTMAX, 5, look, difference, -1.0, 1.0, word, 1.0, 0.5, sure)

    def goes_on(found: Verdict, *cheaper: Arm) -> bool:
        return still_open([found], Design(), cheaper=cheaper) == [OTHER]

    assert goes_on(verdict("undecided"))
    assert [word for word in WORDS if goes_on(verdict(word))] == ["undecided"]
    assert goes_on(verdict("not worse", 1.0))  # it may be better
    assert goes_on(verdict("no gain"), OTHER)  # it takes less time, and may be as good
    assert not goes_on(verdict("equal", sure=True), OTHER)
    assert not goes_on(verdict("worse"), OTHER)


def test_the_detectable_difference_is_found_in_four_of_five_simulated_tests():
    generator, degrees, level = np.random.default_rng(0), 7, 0.01
    true = detectable_difference(1.0, degrees, level)
    t = (true + generator.standard_normal(200_000)) / np.sqrt(generator.chisquare(degrees, 200_000) / degrees)
    assert float((t > stats.t.isf(level, degrees)).mean()) == pytest.approx(0.8, abs=0.005)


@pytest.fixture
def simulation(monkeypatch) -> ModuleType:
    """The committed script."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "results" / "statistics"))
    return importlib.import_module("simulation")


@pytest.mark.parametrize("cheaper", [False, True])
@pytest.mark.parametrize("methods", [3, 6])
def test_simulated_comparisons_are_those_that_the_command_makes(simulation, methods, cheaper):
    cell = simulation.Cell(0.5, "both", 0.8, 0.5, "unequal", methods, cheaper)
    scores = cell.scores(15, 20, np.random.default_rng(0))
    word, sure, seeds = simulation.judged(scores, Design(), cheaper)
    for index, of_one in enumerate(scores):
        found = simulation.judged_one_by_one(of_one, Design(), cheaper)
        assert [(WORDS.index(v.word), v.sure, v.seeds) for v in found] == [
            (int(w), bool(s), int(n)) for w, s, n in zip(word[index], sure[index], seeds[index], strict=True)
        ]


@pytest.mark.parametrize(
    ("cell", "most"),
    [
        ((0.5, "both", 1.2, 0.0, "equal", 3, False), 0.05),
        ((-0.5, "same", 0.6, 0.5, "equal", 6, True), 0.05),
        ((0.0, "same", 0.6, 0.0, "equal", 3, False), 0.05),
        ((0.5, "both", 1.2, 0.0, "unequal", 3, False), 0.07),
    ],
)
def test_wrong_words_and_wrong_advice_are_as_rare_as_stated(simulation, cell, most):
    comparisons = 4000
    found = simulation.simulate(simulation.Cell(*cell), Design(), comparisons, seed=1)
    for name, bar in (("wrong_word", most), ("wrong_advice", 0.02)):
        wrong = round(found[name] * comparisons)
        # refuted where the lower end of the exact 99.9% interval lies above the bar
        assert stats.binomtest(wrong, comparisons).proportion_ci(0.998, method="exact").low <= bar


def test_an_arm_that_is_the_baseline_is_equal_also_where_both_have_failed_in_a_seed():
    scores = runs(1.0, 0.0, seeds=5)
    scores[SOFTMAX][3] = scores[OTHER][3] = math.nan
    scores[OTHER] = dict(scores[SOFTMAX])
    found = {verdict.arm: verdict for verdict in judge(scores)}
    assert (found[OTHER].word, found[OTHER].reason) == ("equal", "the scores of every seed are the same")
