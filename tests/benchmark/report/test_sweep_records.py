"""Only runs that are alike share a table; what they differ in is named, and how to choose."""

from __future__ import annotations

import pytest

from as_lightning.benchmark.report.advice import advice
from as_lightning.benchmark.report.findings import findings
from as_lightning.benchmark.report.sweep_records import sweep_records
from as_lightning.benchmark.run.settings import SettingError


def config(seed: int = 0, *, epochs: int = 4, lr: float = 0.1, noise: float = 0.0, **method) -> dict:
    return {
        "seed": seed,
        "method": {"_target_": "x", **method},
        "optimizer": {"lr": lr},
        "lr_scheduler": {"max_lr": lr},
        "data": {"label_noise": noise, "num_workers": seed},
        "trainer": {"max_epochs": epochs, "enable_progress_bar": bool(seed)},
        "output_dir": f"/somewhere/{seed}",
    }


def tables(results) -> dict[str, list[str]]:
    return {record.name: sorted(record.candidates) for record in sweep_records(results)[0]}


def test_runs_of_one_setting_share_a_row_and_a_table(result):
    runs = [result(method, seed, 0.8, config=config(seed)) for method in ("softmax", "m") for seed in range(3)]
    ((record,), notes) = sweep_records(runs)
    assert [(run.name, run.candidate, run.seed) for run in record.results] == [
        ("set", r.candidate, r.seed) for r in runs
    ]
    assert not notes


@pytest.mark.parametrize(
    ("command", "tuned"),
    [
        (
            "as-lightning -m experiment=a,b method=softmax,m seed=0,1 method.delta=1 +data.x=3",
            "experiment=set +data.x=3",
        ),
        ("as-lightning -m data=digits hydra/launcher=joblib trainer.max_epochs=2", "data=digits trainer.max_epochs=2"),
        ("", "experiment=set"),
    ],
)
def test_a_sweep_says_that_nothing_is_tuned_and_by_which_command_it_would_be(result, command, tuned):
    runs = [result(method, seed, 0.8, command=command) for method in ("softmax", "m") for seed in range(3)]
    ((record,), _) = sweep_records(runs)
    expected = f"One setting for all, not tuned: no advice. For advice: as-lightning-compare {tuned} methods=softmax,m"
    assert advice(findings(record))[0] == record.untuned == expected


def test_runs_of_a_method_that_differ_in_its_settings_have_a_row_each_also_with_other_seeds(result):
    runs = [result("as_softmax", seed, 0.8, config=config(seed, delta=delta)) for seed, delta in ((0, 0.1), (1, 0.2))]
    assert tables(runs) == {"set": ["as_softmax (delta=0.1)", "as_softmax (delta=0.2)"]}
    runs = [result("m", 0, 0.8, config=config(k=k, tau=tau)) for k in (1, 2) for tau in (3, 4)]
    assert tables(runs) == {"set": [f"m (k={k}, tau={tau})" for k in (1, 2) for tau in (3, 4)]}


@pytest.mark.parametrize(
    ("deltas", "shown"), [((0.123456789, 0.25), ("0.1235", "0.25")), ((0.5, 0.50001), ("0.5", "0.50001"))]
)
def test_names_have_rounded_numbers_where_these_tell_them_apart(result, deltas, shown):
    runs = [result("m", 0, 0.8, config=config(delta=delta)) for delta in deltas]
    assert tables(runs) == {"set": [f"m (delta={delta})" for delta in shown]}


@pytest.mark.parametrize(
    ("change", "name", "value"), [({"epochs": 1}, "trainer.max_epochs", 4), ({"noise": 0.4}, "data.label_noise", 0.0)]
)
def test_runs_that_differ_in_budget_or_data_are_never_in_one_table(result, change, name, value):
    runs = [result("softmax", seed, 0.5, config=config(seed, **change)) for seed in range(3)]
    runs += [result("as_softmax", seed, 0.8, config=config(seed)) for seed in range(3)]
    (changed,) = change.values()
    assert tables(runs) == {f"set ({name}={changed})": ["softmax"], f"set ({name}={value})": ["as_softmax"]}
    (note,) = sweep_records(runs)[1]
    assert f"differ in {name} (" in note


@pytest.mark.parametrize("read", ["data", "model", "ckpt_path", "python"])
def test_runs_that_have_read_other_data_encoders_or_checkpoints_or_had_another_python_are_never_in_one_table(
    result, read
):
    runs = [result(method, 0, 0.8, config=config(), inputs={read: "12ab"}) for method in ("softmax", "m")]
    runs += [result("softmax", 1, 0.8, config=config(1), inputs={read: "ff00"})]
    assert tables(runs) == {f"set (inputs.{read}=12ab)": ["m", "softmax"], f"set (inputs.{read}=ff00)": ["softmax"]}
    assert "What they have read has changed between them." in sweep_records(runs)[1][0]


def test_a_learning_rate_tuned_for_each_method_is_its_own_but_two_of_one_method_are_kept_apart(result):
    tuned = [result("softmax", 0, 0.8, config=config(lr=0.1)), result("m", 0, 0.8, config=config(lr=0.3))]
    assert tables(tuned) == {"set": ["m", "softmax"]}
    swept = [*tuned, result("m", 0, 0.9, config=config(lr=0.1))]
    assert tables(swept) == {"set (optimizer.lr=0.1)": ["m", "softmax"], "set (optimizer.lr=0.3)": ["m"]}


def test_the_same_run_of_two_sweeps_counts_once_and_one_that_found_something_else_is_refused(result):
    runs = [result("softmax", seed, 0.8) for seed in (0, 1)]
    (record,), _ = sweep_records([*runs, result("softmax", 0, 0.8, seconds=11.0)])
    assert [(run.seed, run.train_seconds) for run in record.results] == [(0, 10.0), (1, 10.0)]
    with pytest.raises(ValueError, match="two results are of set, softmax, seed 0, with the same settings"):
        sweep_records([*runs, result("softmax", 0, 0.9)])


def test_a_run_that_differs_in_what_has_no_effect_is_the_same_one(result):
    configs = config(), config()
    configs[1]["trainer"]["log_every_n_steps"] = 7
    (record,), _ = sweep_records([result("softmax", 0, 0.8, config=each) for each in configs])
    assert len(record.results) == 1


def test_runs_of_two_files_are_not_said_to_be_of_one_that_has_changed(result):
    configs = config(), config()
    for each, path in zip(configs, ("a.csv", "b.csv"), strict=True):
        each["data"]["path"] = path
    runs = [result("softmax", 0, 0.8, config=each, inputs={"data": each["data"]["path"]}) for each in configs]
    assert tables(runs) == {"set (data.path=a.csv)": ["softmax"], "set (data.path=b.csv)": ["softmax"]}
    assert "have changed" not in sweep_records(runs)[1][0]
    runs.append(result("softmax", 1, 0.8, config=configs[0], inputs={"data": "another"}))
    assert "What they have read has changed between them." in sweep_records(runs)[1][0]


def test_seeds_that_the_baseline_lacks_leave_those_of_the_others_their_verdict(result):
    runs = [result("softmax", seed, 0.70 + 0.01 * seed, config=config(seed)) for seed in range(4)]
    runs += [result("m", seed, 0.80 + 0.0101 * seed, config=config(seed)) for seed in range(6)]
    ((record,), _) = sweep_records(runs)
    (verdict,) = record.verdicts()
    assert (verdict.seeds, verdict.word) == (4, "better")


def test_a_baseline_that_no_run_has_is_refused_with_the_nearest(result):
    with pytest.raises(SettingError, match=r"no run is of the candidate sofmax: did you mean softmax\?"):
        sweep_records([result("softmax", 0, 0.8)], baseline="sofmax")
