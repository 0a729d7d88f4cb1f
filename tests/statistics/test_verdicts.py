"""The words of a comparison: what each needs, look by look, and how often they are wrong."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from as_lightning.comparison.engine import changes
from as_lightning.comparison.race import still_open
from as_lightning.statistics.boundaries import nominal_levels
from as_lightning.statistics.example_spread import ExampleSpread
from as_lightning.statistics.verdicts import (
    HIGH,
    LOW,
    WORDS,
    Design,
    Verdict,
    detectable_difference,
    estimate,
    verdicts,
)
from results.statistics import simulation

SOFTMAX, OTHER, THIRD = "softmax", "other", "third"


def runs(
    *effects: float, seeds: int = 5, noise: float = 0.3, state: int = 0
) -> dict[str, dict[int, float]]:
    """Scores of the baseline, and of methods with these true differences."""
    generator = np.random.default_rng(state)
    names = (SOFTMAX, OTHER, THIRD, *(f"method {index}" for index in range(len(effects))))
    table = (
        90 + generator.normal(0, 1.0, seeds) + generator.normal(0, noise, (len(effects) + 1, seeds))
    )
    table[1:] += np.array(effects)[:, None]
    return {arm: dict(enumerate(row.tolist())) for arm, row in zip(names, table, strict=False)}


def judge(
    scores: dict[str, dict[int, float]], design: Design | None = None, **kwargs
) -> list[Verdict]:
    seeds = len(scores[SOFTMAX])
    return verdicts(scores, reference=SOFTMAX, design=design or Design(looks=(seeds,)), **kwargs)


def test_one_method_at_one_look_has_the_interval_of_the_paired_t_test_and_the_word_that_it_shows():
    seen = set()
    for state, effect in enumerate([0.4] * 50 + [3.0, -3.0, 0.0, -0.6, -1.2] * 6):
        scores = runs(effect, noise=(0.1, 0.4, 0.8)[state % 3], seeds=6, state=state)
        paired = np.array([scores[OTHER][seed] - scores[SOFTMAX][seed] for seed in range(6)])
        error = stats.sem(paired)
        low = paired.mean() - stats.t.isf(LOW[0] * 0.05, 5) * error
        high = paired.mean() + stats.t.isf(HIGH[0] * 0.05, 5) * error
        held = (low > -0.5 and high < 0.5, low > 0, high < 0, low > -0.5, high < 0.5, True)
        (verdict,) = judge(scores)
        assert (
            verdict.word
            == ("equal", "better", "worse", "not worse", "no gain", "undecided")[held.index(True)]
        )
        assert (verdict.low, verdict.high) == pytest.approx((low, high))
        seen.add(verdict.word)
    assert seen == set(WORDS)


def test_an_arm_that_has_stopped_keeps_its_word_whatever_seeds_and_methods_follow():
    full = runs(2.0, 0.3, seeds=20, noise=0.6)
    stopped = dict(list(full[OTHER].items())[:9])
    at_stop = {arm: dict(list(by_seed.items())[:9]) for arm, by_seed in full.items()}
    first = {verdict.arm: verdict for verdict in judge(at_stop, Design())}
    assert first[OTHER].word == "better"
    full[THIRD][12] -= 80.0  # a run that diverges
    for seeds in range(9, 21):
        now = {arm: dict(list(by_seed.items())[:seeds]) for arm, by_seed in full.items()}
        other, third = judge(now | {OTHER: stopped}, Design())
        assert other == first[OTHER]
        assert third.seeds == seeds


@given(shift=st.floats(-50, 50), scale=st.sampled_from([0.5, 2.0, 10.0]), state=st.integers(0, 20))
def test_words_move_with_the_scores_and_their_unit_and_not_with_the_order_of_methods_and_seeds(
    shift, scale, state
):
    scores = runs(0.6, -0.2, noise=0.4, seeds=7, state=state)
    moved = {
        arm: {seed: scale * scores[arm][seed] + shift for seed in reversed(scores[arm])}
        for arm in reversed(scores)
    }
    found = {verdict.arm: verdict for verdict in judge(moved, Design(0.5 * scale, looks=(5,)))}
    for verdict in judge(scores, Design(looks=(5,))):  # of the first five seeds
        assert found[verdict.arm].word == verdict.word
        assert found[verdict.arm].low == pytest.approx(scale * verdict.low)


def test_a_copy_of_the_baseline_is_equal_and_counts_for_nothing_also_where_both_have_failed():
    scores = runs(0.7, noise=0.5, seeds=7, state=2)
    scores[SOFTMAX][3] = scores[OTHER][3] = math.nan
    (alone,) = judge(scores)
    other, copy = judge(scores | {"copy": dict(scores[SOFTMAX])})
    assert (other.word, other.low) == (alone.word, alone.low)
    assert (copy.word, copy.difference) == ("equal", 0.0)
    assert copy.reason == "the scores of every seed are the same"


def test_a_method_that_is_the_same_at_the_first_look_alone_or_as_often_right_on_other_examples_is_not_a_copy():
    scores = runs(-3.0, noise=0.2, seeds=12)
    scores[OTHER] |= {seed: scores[SOFTMAX][seed] for seed in range(5)}
    (verdict,) = judge(scores, Design(looks=(5, 12)))
    assert (verdict.seeds, verdict.word, verdict.difference < -1) == (12, "worse", True)
    scores = {SOFTMAX: dict.fromkeys(range(5), 80.0), OTHER: dict.fromkeys(range(5), 80.0)}
    assert judge(scores)[0].reason == "the scores of every seed are the same"
    (verdict,) = judge(scores, spreads={(OTHER, SOFTMAX): ExampleSpread(floor=2.0)})
    assert (verdict.word, verdict.reason, verdict.high > 1) == ("undecided", "", True)


def test_flips_of_single_test_examples_set_the_smallest_spread():
    scores = {SOFTMAX: {seed: 80 + 0.3 * seed for seed in range(5)}}
    scores[OTHER] = {seed: score + 0.6 + 0.001 * seed for seed, score in scores[SOFTMAX].items()}
    assert judge(scores)[0].word == "better"
    # 10% of 360 examples differ: sqrt(0.1 / 360) is 1.67 points a run
    (floored,) = judge(
        scores, spreads={(OTHER, SOFTMAX): ExampleSpread(floor=100 * math.sqrt(0.1 / 360))}
    )
    assert floored.word == "undecided"
    half = float(stats.t.isf(HIGH[0] * 0.05, 4)) * 100 * math.sqrt(0.1 / 360) / math.sqrt(5)
    assert floored.high - floored.difference == pytest.approx(half)


def test_the_word_is_read_off_the_interval_for_new_data_where_the_error_of_examples_is_known():
    scores = runs(1.0, noise=0.3, seeds=9)
    (seeds_alone,) = judge(scores)
    (verdict,) = judge(scores, spreads={(OTHER, SOFTMAX): ExampleSpread(error=0.6)})
    assert (seeds_alone.word, verdict.word) == ("better", "not worse")
    assert math.isnan(seeds_alone.same_low)
    assert (verdict.same_low, verdict.same_high) == (seeds_alone.low, seeds_alone.high)
    paired = [scores[OTHER][seed] - scores[SOFTMAX][seed] for seed in range(9)]
    error, level = stats.sem(paired), LOW[0] * 0.05
    below = math.hypot(stats.t.isf(level, 8) * error, stats.norm.isf(level) * 0.6)
    assert verdict.low == pytest.approx(verdict.difference - below)
    assert verdict.detectable > math.hypot(seeds_alone.detectable, 0.6 * stats.norm.isf(level))
    assert 0.5 < verdict.ahead < seeds_alone.ahead


def test_what_a_design_can_see_is_of_its_last_look_wherever_an_arm_has_stopped():
    scores = runs(2.0, noise=0.3, seeds=7)
    (early,) = judge(scores, Design(looks=tuple(range(5, 41))))
    (fixed,) = judge(scores, Design(looks=(7,)))
    assert early.seeds == 7
    assert early.detectable < 0.5 * fixed.detectable


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ((80.0, 81.0), "at least 3 runs of each are needed"),
        ([math.nan] * 5, "at least 3 runs of each are needed"),
        ((82.0, 83.0, 81.0, 80.0, 84.0), "the difference is the same for every seed"),
    ],
)
def test_what_cannot_be_tested_is_undecided_with_its_reason_and_is_not_continued(scores, reason):
    base = dict(enumerate((80.0, 81.0, 79.0, 78.0, 82.0)))
    (verdict,) = judge({SOFTMAX: base, OTHER: dict(enumerate(scores))})
    assert (verdict.word, verdict.reason) == ("undecided", reason)
    assert still_open([verdict]) == []


def test_a_failed_run_leaves_its_seed_out_and_skewed_differences_are_named():
    scores = runs(3.0, 0.0, seeds=6)
    scores[OTHER][2] = math.nan
    scores[THIRD][3] -= 20.0
    found = {verdict.arm: verdict for verdict in judge(scores)}
    assert (found[OTHER].seeds, found[THIRD].seeds) == (5, 6)
    assert (found[OTHER].skewed, found[THIRD].skewed) == (False, True)
    assert found[OTHER].word == "better"
    kept = [scores[OTHER][seed] - scores[SOFTMAX][seed] for seed in (0, 1, 3, 4, 5)]
    assert found[OTHER].difference == pytest.approx(np.mean(kept))


BEGUN = Design(looks=(5,), seeds=(0, 1, 2, 3, 4), candidates=("softmax", "a", "b"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"candidates": ("softmax", "a", "b", "c")}, []),
        ({"candidates": ("softmax", "b")}, ["candidates"]),
        ({"candidates": ("a", "softmax", "b")}, ["candidates"]),
        ({"equal_within": 1.0}, ["equal_within"]),
        ({"looks": (6,), "seeds": (0, 1, 2, 3, 4, 9)}, ["looks", "seeds"]),
    ],
)
def test_a_design_says_what_cannot_be_changed(change, said):
    found = changes(replace(BEGUN, **change), BEGUN)
    assert [sentence.split()[0] for sentence in found] == said
    assert Design.read(json.loads(json.dumps(asdict(BEGUN)))) == BEGUN


def test_an_arm_goes_on_while_that_can_change_what_one_does():
    def verdict(word: str, **facts) -> Verdict:
        return Verdict(OTHER, SOFTMAX, 5, 1, 0.0, -1.0, 1.0, word, **facts)

    def going(found: Verdict, *cheaper: str) -> bool:
        return still_open([found], cheaper=cheaper) == [OTHER]

    assert [word for word in WORDS if going(verdict(word))] == ["not worse", "undecided"]
    assert not going(verdict("not worse", in_reach=False))
    # one that takes less time goes on until it is worse, or surely not worse
    assert [word for word in WORDS if not going(verdict(word), OTHER)] == ["worse"]
    assert not any(going(verdict(word, sure=True), OTHER) for word in WORDS)
    assert not going(verdict("no gain", sure_in_reach=False), OTHER)


def test_what_is_out_of_reach_is_hardly_ever_reached():
    design = Design()
    scores = simulation.Cell("plain", (0.25,), 0.8, 0.0).scores(4000, 20, np.random.default_rng(0))
    differences = (scores[:, 1:] - scores[:, :1])[:, 0]
    at, last = (
        estimate(differences[:, :count], design, 1, look) for look, count in ((7, 12), (15, 20))
    )
    settled = np.isin(
        last.word, [WORDS.index(word) for word in ("better", "worse", "equal", "no gain")]
    )
    assert 0.1 < np.mean(~at.in_reach) < 0.9
    assert 3 * settled[~at.in_reach].mean() < settled[at.in_reach].mean()


def test_the_detectable_difference_is_found_in_four_of_five_simulated_tests():
    generator, degrees, level = np.random.default_rng(0), 7, 0.01
    true = detectable_difference(1.0, degrees, level)
    t = (true + generator.standard_normal(200_000)) / np.sqrt(
        generator.chisquare(degrees, 200_000) / degrees
    )
    assert float((t > stats.t.isf(level, degrees)).mean()) == pytest.approx(0.8, abs=0.005)


@pytest.mark.parametrize(("cheaper", "race"), [(False, False), (False, True), (True, True)])
def test_simulated_comparisons_are_those_that_the_command_makes(cheaper, race):
    design = simulation.DESIGNS[race]
    cell = simulation.Cell("unequal", (0.5, 0.0, -0.5, 1.0, 0.2), 0.8, 0.5)
    scores = cell.scores(8, design.looks[-1], np.random.default_rng(0))
    made = simulation.judged(scores, design, cheaper, race)
    for index, of_one in enumerate(scores):
        found = simulation.judged_one_by_one(of_one, design, cheaper, race)
        assert [WORDS[word] for word in made.word[index]] == [verdict.word for verdict in found]
        for name in ("sure", "seeds", "low", "high"):
            assert getattr(made, name)[index] == pytest.approx(
                [getattr(verdict, name) for verdict in found]
            )


def at_most(share: float, bar: float, comparisons: int) -> bool:
    """Whether the lower end of the exact 99.9% interval lies below the bar."""
    found = stats.binomtest(round(share * comparisons), comparisons)
    return found.proportion_ci(0.998, method="exact").low <= bar


@pytest.mark.parametrize("race", [False, True])
@pytest.mark.parametrize(
    ("case", "effects", "noise"),
    [
        ("plain", (0.5, -0.5), 1.2),
        ("plain", (0.0,) * 8, 0.6),
        ("unequal", (0.5, 0.0), 0.6),
        ("alike", (0.0, 0.0), 0.6),
        ("noisy baseline", (0.5, 0.5), 0.3),
        ("rounded", (-0.5, 0.0), 0.3),
        ("crashes", (0.0, 0.5), 0.6),
    ],
)
def test_wrong_words_and_advice_are_rare_and_intervals_hold_where_an_arm_stops(
    case, effects, noise, race
):
    for cheaper in (False, True):
        cell = simulation.Cell(case, effects, noise, 0.5, cheaper, race)
        found = simulation.simulate(cell, 2000, seed=1)
        assert at_most(found["wrong_word"], 0.05, 2000)
        assert at_most(found["wrong_advice"], 0.02, 2000)
        assert at_most(1 - found["covered"], 0.05, 2000)


def test_a_true_gain_of_one_of_eight_is_seen_twice_as_often_in_a_race_with_no_more_trainings():
    cells = [simulation.Cell("plain", (0.5, *[0.0] * 7), 0.6, 0.0, race=race) for race in (0, 1)]
    without, race = (simulation.simulate(cell, 1000, seed=2) for cell in cells)
    assert race["seen"] > 0.5
    assert race["seen"] > 1.8 * without["seen"]
    assert race["trainings"] < without["trainings"]


@pytest.mark.parametrize("size", [2, 8])
def test_words_about_new_data_are_rarely_false_where_the_examples_decide(size):
    found = simulation.new_data(0.0, 500, size, 300)
    assert at_most(found["new_false_better"], 0.025, 300)
    assert found["these_false_better"] > 0.1
    assert simulation.new_data(3.0, 2000, size, 100)["new_seen"] > 0.8


def test_a_folder_that_is_judged_twice_as_if_planned_errs_twice_as_often_as_one_design():
    refused, kept = simulation.peeking(2000)
    assert 2 * kept < 0.05 < refused


@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("looks", [tuple(range(5, 21)), (3, 4, 5, 6, 7, 8), (1, 100)])
def test_the_chance_of_a_false_positive_at_any_look_is_the_stated_one(looks, power):
    generator, paths, alpha = np.random.default_rng(0), 400_000, 0.025
    total, crossed = np.zeros(paths), np.zeros(paths, dtype=bool)
    for before, count, level in zip(
        (0, *looks), looks, nominal_levels(looks, alpha, power), strict=False
    ):
        total += np.sqrt(count - before) * generator.standard_normal(paths)
        crossed |= total / np.sqrt(count) > stats.norm.isf(level)
        if count == looks[0]:
            assert crossed.mean() == pytest.approx(alpha * (count / looks[-1]) ** power, abs=1e-3)
    found = stats.binomtest(int(crossed.sum()), paths).proportion_ci(0.9999, method="exact")
    assert found.low <= alpha <= found.high
