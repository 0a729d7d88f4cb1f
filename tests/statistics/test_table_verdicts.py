"""Verdicts on tables of scores: which test a table gets, and what is no replicate."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import as_lightning
from as_lightning.statistics.judge import Question, answers_of
from as_lightning.statistics.pairing import differences
from as_lightning.statistics.runs import Columns, Unnamed, runs_of
from as_lightning.statistics.score_names import known_direction
from as_lightning.statistics.verdicts import LOW

SGD, ADAMW = (90.1, 90.4, 89.9, 90.2, 90.0), (93.2, 93.3, 93.1, 93.4, 93.0)
LONG = pd.DataFrame(
    {"candidate": ["sgd"] * 5 + ["adamw"] * 5, "seed": [*range(5)] * 2, "accuracy": [*SGD, *ADAMW]}
)
WIDE = pd.DataFrame({"seed": range(5), "sgd": SGD, "adamw": ADAMW})


def judged(frame: pd.DataFrame, **asked) -> pd.DataFrame:
    return as_lightning.verdicts(frame, **{"baseline": "sgd", **asked})


def table(**scores: list[float]) -> pd.DataFrame:
    """A long table of candidates' scores, without a seed."""
    rows = [(name, score) for name, of in scores.items() for score in of]
    return pd.DataFrame(rows, columns=["candidate", "accuracy"])


def test_tables_of_any_shape_unit_and_names_are_judged_alike():
    expected = judged(LONG)
    assert expected[["candidate", "word", "pairs"]].values.tolist() == [["adamw", "better", 5]]
    assert expected["difference"].tolist() == pytest.approx([3.08])
    names = LONG.set_axis(["kind of", "number", "high"], axis=1)
    named = {"candidate": "kind of", "seed": "number", "score": "high", "unit": "points"}
    lower = LONG.assign(accuracy=100 - LONG["accuracy"]).rename(columns={"accuracy": "error"})
    for found in (
        judged(WIDE, wide=True, score="accuracy"),
        judged(WIDE.set_index("seed"), wide=True, score="accuracy"),
        judged(LONG.assign(accuracy=LONG["accuracy"] / 100)),
        judged(lower, unit="points"),
        judged(LONG.astype(str)),
        judged(LONG.assign(seed=[str(2**70 + seed) for seed in LONG["seed"]])),
        judged(WIDE.assign(note="x"), wide=True, score="accuracy", aside="note"),
        judged(LONG.astype({"candidate": "category"})),
        judged(LONG.assign(accuracy=[f"{score}%" for score in LONG["accuracy"]])),
        judged(LONG.assign(accuracy=[f"{score}".replace(".", ",") for score in LONG["accuracy"]])),
        judged(names, **named, higher_is_better=True),
        judged(
            LONG.assign(seed=[0, 1, 0, 1, 0] * 2, half=[0, 0, 1, 1, 2] * 2), seed=["seed", "half"]
        ),
    ):
        pd.testing.assert_frame_equal(found.drop(columns="mean"), expected.drop(columns="mean"))
    tiny = judged(LONG.assign(accuracy=LONG["accuracy"] / 1e9), unit="raw", equal_within=5e-10)
    assert (tiny["low"] * 1e9).tolist() == pytest.approx(expected["low"].tolist())


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("val/acc", "max"),
        ("Test Accuracy", "max"),
        ("Macro F1", "max"),
        ("val_loss", "min"),
        ("val_bpb", "min"),
        ("1-acc", None),
        ("ner_f1", None),
        ("train_acc-test_acc", None),
    ],
)
def test_the_direction_is_known_by_the_whole_name_alone(name, mode):
    assert known_direction(name) == mode
    if mode is None:
        with pytest.raises(Unnamed, match="--lower-is-better"):
            judged(LONG.rename(columns={"accuracy": name}), score=name)


def test_differences_of_independent_samples_give_the_standard_error_of_welch():
    rng = np.random.default_rng(0)
    own, other = rng.normal(0, 1, 6), rng.normal(1, 3, 9)
    found = pd.Series(differences(pd.Series(other, range(100, 109)), pd.Series(own)))
    welch = stats.ttest_ind(other, own, equal_var=False)
    assert found.mean() / found.sem() == pytest.approx(welch.statistic)
    assert len(found) - 1 == math.floor(welch.df)


@pytest.mark.parametrize("name", ["fold", "Split", "repeat"])
def test_folds_and_splits_of_the_same_examples_are_no_seeds(name):
    folds = LONG.rename(columns={"seed": name})
    for seed in ("", name):
        with pytest.raises(ValueError, match=f"{name} is no seed.*--aside {name}"):
            judged(folds, seed=seed)


def test_runs_without_seeds_in_common_are_independent_samples():
    for frame in (LONG.drop(columns="seed"), LONG.assign(seed=range(10))):
        found = judged(frame).iloc[0]
        assert (found["pairs"], found["word"]) == (0, "better")


@pytest.mark.parametrize("runs", [1, 2])
def test_fewer_than_three_runs_get_no_verdict_and_the_seeds_that_are_missing(runs):
    few = LONG[LONG["seed"] < runs]
    for frame in (few, few.drop(columns="seed")):
        found = judged(frame).iloc[0]
        assert found["reason"] == "at least 3 runs of each are needed"
        assert (found["action"], found["next_seeds"]) == ("more_seeds", 3 - runs)


def test_few_common_seeds_are_not_the_only_ones_that_count():
    rng = np.random.default_rng(1)
    base, few = rng.normal(90, 1, 7), rng.normal(91, 1, 3)
    frame = table(sgd=list(base), few=list(few)).assign(seed=[*range(7), *range(3)])
    found = judged(frame).iloc[0]
    welch = stats.ttest_ind(few, base, equal_var=False)
    error = (few.mean() - base.mean()) / welch.statistic
    quantile = stats.t.isf(LOW[0] * 0.05, math.floor(welch.df))
    assert (found["pairs"], found["missing"]) == (0, 4)
    assert found["low"] == pytest.approx(few.mean() - base.mean() - quantile * error)
    most = judged(frame[~frame["seed"].isin([4, 5, 6])].reset_index(drop=True)).iloc[0]
    assert most["pairs"] == 3


def test_rows_of_one_run_are_averaged_and_never_paired_with_each_other():
    rng = np.random.default_rng(0)
    rows = [
        (name, seed, episode, 90 + seed + rng.normal())
        for name in ("sgd", "adamw")
        for seed in range(4)
        for episode in range(25)
    ]
    frame = pd.DataFrame(rows, columns=["candidate", "seed", "episode", "return"])
    with pytest.raises(Unnamed, match="differ in episode"):
        judged(frame)
    runs = runs_of(frame, Columns(aside=["episode"]))
    assert any("200 rows to 8 runs" in note for note in runs.notes)
    means = frame.groupby(["candidate", "seed"], as_index=False)["return"].mean()
    pd.testing.assert_frame_equal(judged(frame, aside="episode"), judged(means[::-1]))


def test_a_setting_that_differs_within_a_candidate_is_named_and_refused():
    rng = np.random.default_rng(0)
    sweep = pd.DataFrame(
        {
            "opt": ["sgd"] * 32 + ["adamw"] * 32,
            "seed": 0,
            "lr": 10 ** rng.uniform(-4, -1, 64),
            "id": [f"run-{number}" for number in range(64)],
            "accuracy": rng.normal(90, 1, 64),
        }
    )
    with pytest.raises(Unnamed, match=r"32 runs of .* differ in lr: .*--candidate opt,lr") as error:
        judged(sweep, candidate="opt")
    assert error.value.hint == ("--candidate", "opt,lr")
    both = LONG.assign(lr=[0.1, 0.1, 0.1, 0.3, 0.3] * 2)
    found = judged(both, candidate=["candidate", "lr"], baseline="sgd, lr=0.1")
    assert found["candidate"].tolist() == ["sgd, lr=0.3", "adamw, lr=0.1", "adamw, lr=0.3"]


def test_lost_runs_are_counted_for_their_candidate():
    lost = LONG.assign(accuracy=[*SGD, *ADAMW[:4], None])
    crashed = LONG.assign(status=["keep"] * 9 + ["crash"], accuracy=[*SGD, *ADAMW[:4], 0.0])
    for frame in (lost, crashed, LONG[:9]):
        found = judged(frame).iloc[0]
        assert (found["missing"], found["pairs"], found["word"]) == (1, 4, "better")
        assert found["difference"] == pytest.approx(3.1)
        assert found["action"] == "rerun"
    unknown = LONG.assign(status=["done"] * 8 + ["ran", "hung"])
    assert judged(unknown).loc[0, "missing"] == 2
    assert "status" in runs_of(unknown, Columns()).notes[0]


def test_each_data_set_has_its_verdict():
    groups = [
        LONG.assign(dataset=name, accuracy=LONG["accuracy"] - lower)
        for lower, name in enumerate("abc")
    ]
    groups[0].loc[0, "accuracy"] -= 30  # of a seed that the other lacks
    groups[0] = groups[0].drop(index=5)
    groups[2] = groups[2][5:]  # without a run of the baseline
    found = judged(pd.concat(groups, ignore_index=True))
    assert found["dataset"].tolist() == ["a", "b", "c"]
    assert found["difference"].tolist() == pytest.approx([3.075, 3.08, math.nan], nan_ok=True)
    assert found["word"].tolist() == ["better", "better", "undecided"]


def test_one_score_on_each_data_set_makes_data_sets_the_replicates():
    rng = np.random.default_rng(0)
    base, gain = rng.uniform(60, 90, 8), rng.normal(2, 0.5, 8)
    frame = pd.DataFrame(
        {
            "candidate": ["sgd"] * 8 + ["adamw"] * 8,
            "dataset": [*"abcdefgh"] * 2,
            "accuracy": [*base, *base + gain],
        }
    )
    found = judged(frame)
    assert len(found) == 1
    low = gain.mean() - stats.t.isf(LOW[0] * 0.05, 7) * stats.sem(gain)
    assert found.loc[0, "low"] == pytest.approx(low)


def test_a_target_is_a_t_test_of_one_sample():
    losses = np.array([3.21, 3.25, 3.24, 3.22, 3.23])
    frame = pd.DataFrame({"candidate": "new", "val_loss": losses})
    found = as_lightning.verdicts(frame, target=3.28).iloc[0]
    low = 3.28 - losses.mean() - stats.t.isf(LOW[0] * 0.05, 4) * stats.sem(losses)
    assert found["low"] == pytest.approx(low)
    assert found["word"] == "better"
    with pytest.raises(ValueError, match="target"):
        as_lightning.verdicts(frame, target=3.28, baseline="new")


@pytest.mark.parametrize("examples", [100, 5000])
def test_with_the_number_of_test_examples_the_interval_is_for_new_ones(examples):
    found = judged(LONG, test_examples=examples).iloc[0]
    differences = np.subtract(ADAMW, SGD)
    variance = sum(np.mean(of) * (100 - np.mean(of)) for of in (SGD, ADAMW)) / examples
    level = LOW[0] * 0.05
    of_seeds = stats.t.isf(level, 4) * stats.sem(differences)
    below = math.hypot(of_seeds, stats.norm.isf(level) * math.sqrt(variance))
    assert found["low"] == pytest.approx(differences.mean() - below)
    assert found["word"] == {100: "undecided", 5000: "better"}[examples]
    for given in ({"test_examples": -1}, {"test_examples": 500, "unit": "raw"}):
        with pytest.raises(ValueError, match="test_examples"):
            judged(LONG, **given)


def test_candidates_that_were_tried_before_divide_the_error():
    found = judged(LONG, tried=9).iloc[0]
    differences = np.subtract(ADAMW, SGD)
    low = differences.mean() - stats.t.isf(LOW[0] * 0.05 / 10, 4) * stats.sem(differences)
    assert found["low"] == pytest.approx(low)
    others = pd.concat([LONG, *(LONG[5:].assign(candidate=f"c{n}") for n in range(9))])
    others["accuracy"] += np.random.default_rng(0).normal(0, 1e-3, len(others))
    runs = runs_of(others.reset_index(drop=True), Columns())
    (answer,) = answers_of(runs, Question(baseline="sgd", only=["adamw"]))
    assert [row.arm for row in answer.candidates] == ["adamw"]
    assert answer.candidates[0].low == pytest.approx(low, abs=0.02)


def test_the_seeds_that_are_suggested_decide_a_true_difference_of_that_size():
    rng = np.random.default_rng(0)
    base, other = rng.normal(90, 0.6, 5), rng.normal(90.3, 0.6, 5)
    frame = table(sgd=list(base), other=list(other)).assign(seed=[*range(5)] * 2)
    (answer,) = answers_of(runs_of(frame, Columns()), Question(baseline="sgd"))
    (row,) = answer.candidates
    assert (row.word, row.action) == ("not worse", "more_seeds")
    seeds, size = 5 + row.next_seeds, row.next_difference
    spread = (other - base).std(ddof=1)
    level = LOW[0] * 0.05
    for count, enough in ((seeds, True), (seeds - 1, False)):
        power = stats.nct.sf(stats.t.isf(level, count - 1), count - 1, size / spread * count**0.5)
        assert (power >= 0.8) == enough


def test_a_loss_below_one_is_no_share_and_nothing_is_equal_without_a_size():
    rows = {"base": [0.5512, 0.5537, 0.5524, 0.5541], "new": [0.5501, 0.5530, 0.5509, 0.5535]}
    frame = table(**rows).rename(columns={"accuracy": "val_loss"}).assign(seed=[*range(4)] * 2)
    found = judged(frame, baseline="base").iloc[0]
    times_ten = judged(frame.assign(val_loss=10 * frame["val_loss"]), baseline="base").iloc[0]
    assert found["difference"] == pytest.approx(0.000975)
    assert times_ten["difference"] == pytest.approx(0.00975)
    assert found["word"] == times_ten["word"] == "better"
    assert judged(frame, baseline="base", equal_within=0.01).iloc[0]["word"] == "equal"


def test_percents_below_one_are_told_by_their_sign_or_are_raw():
    scores = {"base": [0.91, 0.93, 0.92, 0.94], "new": [0.95, 0.98, 0.95, 0.99]}
    frame = table(**scores).rename(columns={"accuracy": "recall (%)"}).assign(seed=[*range(4)] * 2)
    asked = {"baseline": "base", "score": "recall (%)", "higher_is_better": True}
    assert judged(frame, **asked).loc[0, "difference"] == pytest.approx(0.0425)
    with pytest.raises(ValueError, match=r"new .*--unit"):
        judged(LONG.assign(accuracy=[*SGD, *np.divide(ADAMW, 100)]).replace("adamw", "new"))


BAD = {
    "a column that is not there": (LONG, {"score": "acuracy"}, "acuracy"),
    "no score": (LONG.drop(columns="accuracy"), {}, "score"),
    "two scores": (LONG.assign(f1=LONG.accuracy - 1), {}, "score"),
    "no candidate": (LONG.drop(columns="candidate"), {}, "candidate"),
    "text": (LONG.assign(accuracy=["n.a.", *SGD, *ADAMW[1:]]), {}, "row 1: .*'n.a.'"),
    "one percent sign": (LONG.assign(accuracy=["90.1%", *SGD[1:], *ADAMW]), {}, "row 1"),
    "one decimal comma": (LONG.assign(accuracy=["90,1", *SGD[1:], *ADAMW]), {}, "row 1"),
    "a bool": (LONG.assign(accuracy=True), {}, "row 1: .*'True'"),
    "a row of means": (LONG.assign(seed=[*range(4), "mean"] * 2), {}, "row 5: 'mean'"),
    "an empty seed": (LONG.assign(seed=[*range(4), None] * 2), {}, "row 5: .*seed"),
    "an empty candidate": (LONG.assign(candidate=["", *LONG.candidate[1:]]), {}, "row 1"),
    "a name twice": (LONG[[*LONG, "seed"]], {}, "seed"),
    "no row": (LONG[:0], {}, "no row"),
    "one candidate": (LONG[:5], {}, "--target"),
    "no baseline": (LONG, {"baseline": ""}, "baseline"),
    "another baseline": (LONG, {"baseline": "sdg"}, "'sdg'"),
    "a unit": (LONG, {"unit": "percent"}, "unit"),
    "no size": (LONG, {"equal_within": -0.5}, "equal_within"),
    "a word in a column of scores": (WIDE.assign(note="x"), {"wide": True}, "row 1: .*note"),
    "no column of scores": (WIDE[["seed"]], {"wide": True}, "no column"),
    "runs of a comparison": (LONG.assign(phase="final", trial=0), {}, "folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_or_would_mislead_is_refused(case):
    frame, asked, said = BAD[case]
    with pytest.raises(ValueError, match=said):
        judged(frame, **asked)


def test_a_data_set_with_runs_of_the_baseline_alone_is_named_and_left_out():
    both = [LONG.assign(dataset="both"), LONG[LONG["candidate"] == "sgd"].assign(dataset="begun")]
    runs = runs_of(pd.concat(both), Columns())
    (answer,) = answers_of(runs, Question(baseline="sgd"))
    assert (answer.title, answer.candidates[0].word) == ("both", "better")
    assert "begun has no run of a candidate." in runs.notes


def test_against_a_target_no_run_is_missing():
    found = judged(LONG.drop(columns="seed"), baseline="", target=92.0)
    assert found["missing"].tolist() == [0, 0]
    assert found["action"].tolist() == ["discard", "keep"]


def test_a_column_of_words_is_a_setting_whatever_its_name():
    losses = LONG.assign(loss=["ce", "focal"] * 5)
    with pytest.raises(Unnamed, match="differ in loss"):
        judged(losses, score="accuracy")
    assert judged(LONG.assign(loss=range(10)), score="accuracy")["word"].tolist() == ["better"]


def test_the_seeds_that_would_decide_are_those_of_candidate_and_baseline_together():
    noise = np.random.default_rng(0)
    five = noise.normal(size=(2, 5))
    base, own = (five - five.mean(1, keepdims=True)) / five.std(1, ddof=1, keepdims=True)
    (more,) = judged(table(sgd=90 + 0.6 * base, own=90.6 + 0.6 * own))["next_seeds"]
    found = 0
    for _ in range(200):
        scores = noise.normal([[90.0], [90.6]], 0.6, (2, 5 + more))
        found += judged(table(sgd=scores[0], own=scores[1]))["word"][0] == "better"
    assert found >= 160
