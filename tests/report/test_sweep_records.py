"""Only runs that are alike share a table; what they differ in is named, and how to choose."""

import pytest

from as_lightning.bench.run.settings import SettingError
from as_lightning.report.advice import advice
from as_lightning.report.findings import findings
from as_lightning.report.sweep_records import sweep_records


def config(
    seed: int = 0, *, epochs: int = 4, lr: float = 0.1, noise: float = 0.0, **method
) -> dict:
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


READ = ("data", "model", "tokenizer", "ckpt_path", "python")
OF_JOB = ["method=m", "seed=1", "method.delta=1", "+data.x=3", "model.channels=[4,8]", "name=set"]


def test_a_sweep_says_that_nothing_is_tuned_and_by_which_command_each_table_would_be(result):
    made = [
        (method, seed, lr) for method in ("softmax", "m") for seed in range(3) for lr in (0.1, 0.3)
    ]
    runs = [
        result(
            method, seed, 0.8, config=config(seed, lr=lr), overrides=[*OF_JOB, f"optimizer.lr={lr}"]
        )
        for method, seed, lr in made
    ]
    for record, lr, number in zip(sweep_records(runs)[0], (0.1, 0.3), (1, 2), strict=True):
        tuned = f"+data.x=3 'model.channels=[4,8]' optimizer.lr={lr} name=set-{number} methods=softmax,m"
        expected = (
            f"One setting for all, not tuned: no advice. For advice: as-lightning-compare {tuned}"
        )
        assert advice(findings(record))[0] == record.untuned == expected


@pytest.mark.parametrize(
    ("name", "odd", "others"),
    [
        ("trainer.max_epochs=1", {"config": config(1, epochs=1)}, "trainer.max_epochs=4"),
        ("data.label_noise=0.4", {"config": config(1, noise=0.4)}, "data.label_noise=0.0"),
        ("optimizer.lr=0.3", {"config": config(1, lr=0.3)}, "optimizer.lr=0.1"),
        *(
            (f"inputs.{read}=ff00", {"inputs": {read: "ff00"}}, f"inputs.{read}=12ab")
            for read in READ
        ),
    ],
)
def test_runs_that_differ_in_budget_or_data_or_have_read_something_else_are_never_in_one_table(
    result, name, odd, others
):
    inputs = dict.fromkeys(odd.get("inputs", ()), "12ab")
    runs = [
        result(m, 0, 0.8, config=config(), inputs=inputs | {"method.code": m})
        for m in ("softmax", "m")
    ]
    runs += [result("softmax", 1, 0.8, **{"config": config(1), "inputs": inputs, **odd})]
    assert tables(runs) == {f"set ({others})": ["m", "softmax"], f"set ({name})": ["softmax"]}
    (note,) = sweep_records(runs)[1]
    assert f"differ in {name.partition('=')[0]} (" in note
    assert ("What they have read has changed between them." in note) == ("inputs" in odd)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (
            [("m", config(delta=0.1)), ("m", config(1, delta=0.2))],
            ["m (delta=0.1)", "m (delta=0.2)"],
        ),
        (
            [("m", config(k=k, tau=tau)) for k in (1, 2) for tau in (3, 4)],
            ["m (k=1, tau=3)", "m (k=1, tau=4)", "m (k=2, tau=3)", "m (k=2, tau=4)"],
        ),
        (
            [("m", config(delta=0.123456789)), ("m", config(delta=0.25))],
            ["m (delta=0.1235)", "m (delta=0.25)"],
        ),
        (
            [("m", config(delta=0.5)), ("m", config(delta=0.50001))],
            ["m (delta=0.5)", "m (delta=0.50001)"],
        ),
    ],
)
def test_each_setting_of_a_method_has_a_row_with_numbers_rounded_where_they_are_told_apart(
    result, runs, expected
):
    made = [result(method, of_run["seed"], 0.8, config=of_run) for method, of_run in runs]
    assert tables(made) == {"set": expected}


def test_the_same_run_counts_once_whatever_has_no_effect_and_one_that_found_something_else_is_refused(
    result,
):
    runs = [
        result(method, seed, 0.8, config=config(seed))
        for method in ("softmax", "m")
        for seed in (0, 1)
    ]
    again = config()
    again["trainer"]["log_every_n_steps"] = 7
    ((record,), notes) = sweep_records(
        [*runs, result("softmax", 0, 0.8, config=again, seconds=11.0)]
    )
    assert [(run.candidate, run.seed, run.train_seconds) for run in record.results] == [
        *(("softmax", 0, 10.0), ("softmax", 1, 10.0), ("m", 0, 10.0), ("m", 1, 10.0))
    ]
    assert not notes
    with pytest.raises(
        ValueError, match="two results are of set, softmax, seed 0, with the same settings"
    ):
        sweep_records([*runs, result("softmax", 0, 0.9, config=config())])
    with pytest.raises(
        SettingError, match=r"no run is of the candidate sofmax: did you mean softmax\?"
    ):
        sweep_records(runs, baseline="sofmax")


def test_runs_of_two_files_are_not_said_to_be_of_one_that_has_changed(result):
    configs = config(), config()
    for each, path in zip(configs, ("a.csv", "b.csv"), strict=True):
        each["data"]["path"] = path
    runs = [
        result("softmax", 0, 0.8, config=each, inputs={"data": each["data"]["path"]})
        for each in configs
    ]
    assert tables(runs) == {
        "set (data.path=a.csv)": ["softmax"],
        "set (data.path=b.csv)": ["softmax"],
    }
    assert "have changed" not in sweep_records(runs)[1][0]
    runs.append(result("softmax", 1, 0.8, config=configs[0], inputs={"data": "another"}))
    assert "What they have read has changed between them." in sweep_records(runs)[1][0]
