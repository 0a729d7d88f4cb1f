"""What a comparison may be asked to do and what it does next, on runs whose scores are written
down.
"""

import inspect
import io
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from harness.run_findings import failed_runs, stored
from rich.console import Console

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.comparison.api import compare
from as_lightning.comparison.engine import execution, run_comparison
from as_lightning.comparison.make import Recipe
from as_lightning.comparison.next_runs import Replay, best_validation, next_runs
from as_lightning.comparison.plan import ComparisonPlan, Run, default_settings
from as_lightning.comparison.search import Choice, Range, Space, learning_rates
from as_lightning.report.advice import recommended
from as_lightning.report.findings import findings
from as_lightning.report.record import ComparisonRecord

RATE = learning_rates(0.01, 4.0)
SPACES: dict[str, Space] = {
    "softmax": {"lr": RATE},
    "as_softmax": {"lr": RATE, "delta": Range(0.1, 1.0, default=0.1, limits=(0.0, 1.0))},
    "sparsemax": {"lr": RATE},
    "entmax": {"lr": RATE},
    "fixed": {},
    "sparse": {"lr": RATE, "k": Choice(("all", 2, 3), "all")},
}


def planned(
    methods: Sequence[str], mode: str = "max", baseline: str = "softmax", **settings: Any
) -> ComparisonPlan:
    plan = ComparisonPlan(methods, baseline, 6, **settings)
    return plan.with_spaces(SPACES, name="set", score="accuracy", mode=mode)


class Made:
    """A comparison whose runs have the scores that a function gives, and what was made."""

    def __init__(
        self, result, score: Callable[[Run], float], methods: Sequence[str], **settings
    ) -> None:
        self.runs: list[Run] = []
        seconds = settings.pop("seconds", 10.0)
        asked = {"trials": 3, "tuning_seeds": 1, "half_epochs": False} | settings
        plan = planned(methods, **asked)
        finished: dict[Run, Result | str] = {}

        def run_one(run: Run) -> Result:
            self.runs.append(run)
            epochs = plan.epochs(run.candidate)
            shared = {"seconds": seconds * epochs / 6, **run.about(epochs)}
            return result(seed=run.seed, score=score(run), **shared)

        while runs := next_runs(plan, finished):
            finished |= dict(execution(run_one)(runs))
        self.record = Replay(plan, finished, {}).ended

    def seeds(self, method: str) -> int:
        return sum((run.phase, run.candidate) == ("final", method) for run in self.runs)


def compared(
    plan: ComparisonPlan, run_one: Callable[[Run], Result], folder, console=None
) -> ComparisonRecord:
    console = console or Console(quiet=True)
    return run_comparison(plan, Recipe("x", {}, {}), "x", folder, console, execution(run_one))


@pytest.fixture
def made(result) -> Callable[..., Made]:
    return lambda score, *methods, **settings: Made(
        result, score, methods or ("as_softmax",), **settings
    )


def noisy(run: Run, spread: float = 0.002) -> float:
    return random.Random(f"{run.candidate} 1.0 {run.seed}").gauss(0.0, spread)


def better_at_low_delta(run: Run) -> float:
    """AS-Softmax gains 3 points at delta 0.1; half the training loses 5."""
    gain = 0.03 * (run.settings.get("delta") == 0.1)
    return 0.8 + gain - 0.05 * (run.candidate == "softmax_half") + noisy(run)


def test_tuning_comes_first_and_a_candidate_that_is_decided_stops(made):
    comparison = made(better_at_low_delta)
    order = [run.phase for run in comparison.runs]
    assert order == sorted(order, reverse=True)
    seeds = {
        phase: {run.seed for run in comparison.runs if run.phase == phase}
        for phase in ("tuning", "final")
    }
    assert not seeds["tuning"] & seeds["final"]
    assert comparison.seeds("as_softmax") == comparison.seeds("softmax") < 8
    assert comparison.record.stopped == ""
    again = made(better_at_low_delta)  # what is decided depends on the results alone
    assert (again.runs, again.record) == (comparison.runs, comparison.record)


LEADS = {"sparsemax": 0.005, "as_softmax": 0.003, "sparse": 0.002, "entmax": 0.001}
NOISE = (0.006, -0.006, 0.003, -0.003, 0.0)  # none in the mean of any five seeds in a row


def in_a_race(run: Run) -> float:
    phase = len(run.candidate) + run.candidate.count("a")
    noise = NOISE[(run.seed + phase) % 5]
    return 0.8 + LEADS.get(run.candidate, 0.0) + noise


def test_in_a_race_three_candidates_go_on_until_ten_seeds_and_then_one_until_it_is_decided(made):
    comparison = made(in_a_race, *LEADS, trials=1)
    seeds = [comparison.seeds(name) for name in LEADS]
    assert seeds[1:] == [10, 10, 5]
    assert 10 < seeds[0] == comparison.seeds("softmax") <= 40
    assert comparison.record.behind == ["as_softmax", "sparse", "entmax"]
    finals = [max(run.seed, 4) for run in comparison.runs]
    assert finals == sorted(finals)  # after five seeds one at a time
    described = made(in_a_race, *LEADS, trials=1, race=False)
    assert described.record.behind == []
    assert described.seeds("entmax") > 5


def test_a_race_that_reaches_its_most_seeds_says_what_is_still_open(made):
    def score(run: Run) -> float:
        lead = 0.003 + 0.0055 * (-1) ** run.seed
        return 0.8 + lead * (run.candidate == "sparsemax") + noisy(run, 0.0005)

    comparison = made(score, "sparsemax", trials=1, max_seeds=20)
    assert comparison.seeds("sparsemax") == comparison.seeds("softmax") == 20
    assert comparison.record.stopped == "max_seeds=20 was reached with sparsemax still open."


def test_a_candidate_in_less_time_is_in_no_race_and_one_that_is_better_ends_it(made):
    def score(run: Run) -> float:
        return in_a_race(run) + 0.03 * (run.candidate == "sparsemax")

    comparison = made(score, *LEADS, trials=1)
    assert max(map(comparison.seeds, LEADS)) <= 10
    assert comparison.record.behind == ["as_softmax", "sparse", "entmax"]
    assert recommended(findings(comparison.record)).arm == "sparsemax"
    half = made(in_a_race, *LEADS, trials=1, half_epochs=True)
    (found,) = [v for v in half.record.verdicts() if v.arm == "softmax_half"]
    assert half.seeds("softmax_half") > 10
    assert found.word == "worse" or found.sure or not found.sure_in_reach


def test_half_the_epochs_is_an_untuned_candidate_with_the_settings_of_the_baseline(made):
    comparison = made(better_at_low_delta, half_epochs=True)
    halves = [run for run in comparison.runs if run.candidate == "softmax_half"]
    assert {(run.phase, *run.settings.values()) for run in halves} == {
        ("final", comparison.record.settings["softmax"]["lr"])
    }
    final = comparison.record.final
    assert set(final["epochs"][final["candidate"] == "softmax_half"]) == {3}
    assert comparison.seeds("softmax_half") == 5
    words = {verdict.arm: verdict.word for verdict in comparison.record.verdicts()}
    assert words == {"as_softmax": "better", "softmax_half": "worse"}
    plan = planned(["as_softmax"], half_epochs=True)
    plan.own_epochs["softmax"] = 2
    assert [plan.epochs(name) for name in ("softmax", "softmax_half")] == [2, 1]


def test_each_candidate_makes_the_same_number_of_trials_and_says_which_values_it_has_not_tried(
    made,
):
    record = made(better_at_low_delta, "as_softmax", "sparsemax", "sparse", "fixed").record
    assert {name: len(trials) for name, trials in record.tuning.items()} == dict.fromkeys(
        ("softmax", "as_softmax", "sparsemax", "sparse"), 3
    )
    assert record.settings["fixed"] == {}  # of which nothing is tuned
    assert record.settings["as_softmax"]["delta"] == 0.1
    assert "not tried with k=3: ask for more trials" in str(
        made(lambda run: 0.8, "sparse", trials=2).record.notes
    )


def test_only_the_two_best_trials_of_each_method_get_the_second_tuning_seed(made):
    comparison = made(better_at_low_delta, "as_softmax", "sparsemax", trials=5, tuning_seeds=2)
    tuning = [run for run in comparison.runs if run.phase == "tuning"]
    assert sum(run.seed == 1000 for run in tuning) == 3 * 5
    for method, trials in comparison.record.tuning.items():
        firsts = sorted((trial.by_seed[0] for trial in trials), reverse=True)
        repeated = [trial for trial in trials if trial.seeds == 2]
        assert sorted((trial.by_seed[0] for trial in repeated), reverse=True) == firsts[:2]
        assert (
            comparison.record.settings[method]
            == max(repeated, key=lambda trial: trial.score).settings
        )
    assert len(tuning) == 15 + len({run for run in tuning if run.seed == 1001}) <= 21


def test_a_folder_keeps_the_design_of_its_first_run_and_takes_another_method_later(
    result, tmp_path
):
    def begun(*methods: str, **settings) -> ComparisonRecord:
        def run_one(run: Run) -> Result:
            return stored(
                result(seed=run.seed, score=0.8 + noisy(run), **run.about(6)), tmp_path / run.folder
            )

        return compared(
            planned(methods, **({"trials": 1, "half_epochs": False, "seeds": 5} | settings)),
            run_one,
            tmp_path,
        )

    before = begun("sparsemax")
    said = (
        "looks (5,) (now (6,)); seeds (0, 1, 2, 3, 4) (now (0, 1, 2, 3, 4, 5)): a comparison keeps "
        "the design of its first final run"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        begun("sparsemax", seeds=6)
    assert begun("sparsemax").verdicts() == before.verdicts()
    assert len(begun("sparsemax", "as_softmax").verdicts()) == 2
    with pytest.raises(ValueError, match=r"candidates .*as_softmax.* \(now "):
        begun("sparsemax")


def test_one_trial_makes_no_tuning_run_and_takes_the_defaults_and_of_fixed_seeds_all_are_made(made):
    comparison = made(better_at_low_delta, trials=1, seeds=[2, 9, 4])
    assert {(run.phase, run.seed) for run in comparison.runs} == {
        ("final", seed) for seed in (2, 4, 9)
    }
    assert comparison.record.settings["as_softmax"] == {"lr": 0.01, "delta": 0.1}
    assert comparison.seeds("as_softmax") == 3


def test_failed_runs_are_recorded_and_the_others_go_on_without_a_method_that_never_trains(
    made, tmp_path
):
    def score(run: Run) -> float:
        if run.candidate == "sparse" or (run.phase, run.seed, run.candidate) == (
            "final",
            1,
            "as_softmax",
        ):
            raise RuntimeError("out of memory")
        return better_at_low_delta(run)

    comparison = made(score, "sparse", "as_softmax")
    record = comparison.record
    assert failed_runs(record) == [("as_softmax", 1)]
    record.write(tmp_path)
    again = ComparisonRecord.read(tmp_path)
    assert (failed_runs(again), again.verdicts()) == (failed_runs(record), record.verdicts())
    assert math.isnan(record.scores()["as_softmax"][1])
    assert "RuntimeError: out of memory" in record.failures[0]
    assert "sparse is left out: no trial of it has finished." in record.notes
    assert record.notes[-1].startswith("4 of ")
    assert comparison.seeds("sparse") == 0


@pytest.mark.parametrize("lost", ["as_softmax", "softmax"])
@pytest.mark.parametrize(
    ("mode", "score", "worst"),
    [("max", 0.8, 0.0), ("min", 0.8, 80.0), ("max", -1.5, -150.0), ("min", 1.5, 1.5)],
)
def test_a_final_run_that_diverges_counts_as_the_worst_score_seen_and_not_as_absent(
    made, mode, score, worst, lost
) -> None:
    settings = {"trials": 1, "mode": mode, "seeds": 5}
    record = made(
        lambda run: math.nan if (run.candidate, run.seed) == (lost, 1) else score, **settings
    ).record
    assert record.scores()[lost][1] == pytest.approx(worst)
    assert (record.failures, failed_runs(record)) == ([], [])
    assert "1 final runs diverged and count as the worst score." in record.notes
    both = made(lambda run: math.nan if run.seed == 2 else score + noisy(run), **settings).record
    lost_for_good = [2, 2] if mode == "min" else []  # there is no finite loss of this seed
    assert [seed for _, seed in failed_runs(both)] == lost_for_good
    assert "2 final runs diverged and count as the worst score." in both.notes


@pytest.mark.parametrize("failing", ["softmax", "sparsemax"])
def test_without_a_trial_of_the_baseline_or_another_no_final_run_is_made_and_failures_named(
    result, tmp_path, failing
):
    def run_one(run: Run) -> Result:
        assert run.phase == "tuning"
        if run.candidate == failing:
            raise RuntimeError("no rain")
        return result(run.candidate, run.seed, 0.5 + run.settings["lr"])

    with pytest.raises(
        ValueError, match=rf"no final run of .softmax.(.|\n)*{failing}, tuning.*no rain"
    ):
        compared(planned(["sparsemax"], trials=2, half_epochs=False), run_one, tmp_path)


def test_no_look_begins_that_would_exceed_the_hours(made):
    comparison = made(
        lambda run: 0.8 + noisy(run, 0.02), "sparsemax", trials=1, max_hours=0.05, seconds=12.0
    )
    assert comparison.seeds("softmax") == comparison.seeds("sparsemax") == 7
    said = "max_hours=0.05 was reached with sparsemax still open; 8 seeds would take 2 more runs"
    assert said in comparison.record.stopped


def test_runs_are_counted_failures_named_at_once_and_no_text_is_markup(result, tmp_path):
    def run_one(run: Run) -> Result:
        if run.seed == 2:
            raise RuntimeError("the class [/b] is empty")
        return result(seed=run.seed, score=0.5, **run.about(6))

    output = io.StringIO()
    compared(
        planned(["sparsemax"], trials=1, seeds=3),
        run_one,
        tmp_path,
        Console(file=output, width=200),
    )
    assert "softmax, sparsemax, softmax_half: at most 9 runs. Equal means within 0.5." in (
        printed := output.getvalue()
    )
    assert (
        "failed: sparsemax, final, seed 2, lr=0.01: RuntimeError: the class [/b] is empty"
        in printed
    )
    assert "9/9" in printed


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize(("sign", "best"), [(1.0, 0.6), (-1.0, 0.4)])
def test_a_validation_of_nan_counts_for_nothing_wherever_it_stands(result, position, sign, best):
    evaluations = [{"score": 0.4}, {"score": 0.6}]
    evaluations.insert(position, {"score": math.nan})
    assert best_validation(result("softmax", 0, 0.5, evaluations=evaluations), sign) == best


def test_a_record_is_read_as_it_was_written_and_says_where_methods_differ(result, tmp_path):
    def run_one(run: Run) -> Result:
        folder = tmp_path / run.folder
        made = stored(result(seed=run.seed, score=0.5 + noisy(run), **run.about(6)), folder)
        # two examples of one text have one id
        twice = "ab"[run.seed > 0 and run.candidate == "as_softmax"]
        columns = {"example": ["one", "two", *["the fourth"] * 2], "target": [*"abaa"]}
        table = pd.DataFrame(columns | {"predicted": ["a", "b", twice, twice]})
        Predictions.of(table).write(folder)
        return made

    facts = {"splits": "official", "notes": ["a note"], "commands": ["a command"]}
    facts |= {
        "name": "set",
        "score": "accuracy",
        "changes": {"as_softmax": {"method.name": ["softmax", "as_softmax"]}},
    }
    plan = ComparisonPlan(["as_softmax"], "softmax", 6, trials=1, seeds=3).with_spaces(
        SPACES, **facts
    )
    record = compared(plan, run_one, tmp_path)
    assert record.spreads == {}  # these scores are not the accuracies of these predictions
    assert record.examples == [
        {
            "example": "the fourth",
            "target": "a",
            "softmax predicts": "a",
            "candidate": "as_softmax",
            "it predicts": "b",
            "runs": 2,
        }
    ]
    again = ComparisonRecord.read(tmp_path)
    assert again.verdicts() == record.verdicts()
    assert replace(again, rows=[]) == replace(record, rows=[])
    pd.testing.assert_frame_equal(again.runs, record.runs, check_dtype=False)
    (tmp_path / "design.json").write_text('{"data"')
    with pytest.raises(ValueError, match=r"design.json cannot be read"):
        compared(plan, run_one, tmp_path)
    (tmp_path / "design.json").unlink()
    with pytest.raises(ValueError, match=r"is not the folder of a comparison that has ended"):
        ComparisonRecord.read(tmp_path)


def plan(*methods: str, epochs: int = 12, **settings) -> ComparisonPlan:
    return ComparisonPlan(
        methods or ("as_softmax",), **({"baseline": "softmax", "full_epochs": epochs} | settings)
    )


def test_by_default_seeds_are_added_look_by_look_and_the_baseline_is_also_trained_by_half():
    found = plan("as_softmax", "as_speed")
    assert found.candidates == ("softmax", "as_softmax", "as_speed")
    assert found.design.candidates == found.family == (*found.candidates, "softmax_half")
    assert (found.seeds, found.tuning_seeds) == (tuple(range(40)), (1000, 1001))
    assert [found.epochs(name) for name in found.family] == [12, 12, 12, 6]
    assert (plan(epochs=3).epochs("softmax_half"), plan(epochs=1).half) == (2, None)
    assert plan("as_softmax", baseline="as_softmax").family == ("as_softmax", "as_softmax_half")
    reordered = plan("softmax", "as_softmax", baseline="as_softmax")
    assert reordered.candidates == ("as_softmax", "softmax")


def test_looks_end_at_the_most_seeds_and_given_seeds_are_one_look():
    for most in (5, 8, 40):
        assert plan(max_seeds=most).design.looks == tuple(range(5, most + 1))
    assert plan(race=False).design.looks == tuple(range(5, 21))
    assert (plan(seeds=4).design.looks, plan(seeds=[7, 3]).design.looks) == ((4,), (2,))


@pytest.mark.parametrize(
    ("space", "tuning"), [({"lr": RATE}, 12 + 4), (SPACES["as_softmax"], 12 + 4)]
)
def test_the_most_runs_are_counted(space, tuning):
    asked = plan("as_softmax", trials=6)
    assert asked.most_runs() == 40 * 3  # nothing is tuned
    tuned = asked.with_spaces({"softmax": {"lr": RATE}, "as_softmax": space})
    assert tuned.most_runs() == tuning + 40 * 3


def test_the_defaults_of_a_comparison_are_stated_once():
    parameters = inspect.signature(compare).parameters
    shared = parameters.keys() & default_settings().keys() - {"methods"}
    assert len(shared) == 10
    assert {parameters[name].default for name in shared} == {None}
    assert default_settings()["trials"] == plan().trials


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": ["softmax"], "half_epochs": False}, "needs two candidates"),
        ({"candidates": ["softmax_half"]}, "got softmax, softmax_half, softmax_half"),
        ({"trials": 0}, "trials must be an integer of at least 1"),
        ({"seeds": [1, 1]}, "a list of different whole numbers"),
        ({"seeds": [-1]}, r"whole numbers of at least 0, got \[-1\]"),
        ({"seeds": [1000]}, "are in seeds and in tuning_seeds"),
        ({"max_seeds": 3}, "max_seeds=3 .*5 to 40"),
        ({"max_seeds": 30, "race": False}, "max_seeds=30 .*5 to 20"),
        ({"max_seeds": 5.5}, "max_seeds must be an integer"),
        ({"max_hours": 0}, "max_hours must be a positive number of hours, got 0"),
        ({"equal_within": 0}, "equal_within must be a positive number of points, got 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings, message):
    with pytest.raises((TypeError, ValueError), match=message) as refused:
        ComparisonPlan(
            **({"candidates": ["as_softmax"], "baseline": "softmax", "full_epochs": 12} | settings)
        )
    assert "\n" not in str(refused.value)
