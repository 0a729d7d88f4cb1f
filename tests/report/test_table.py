"""Tables of runs from anywhere: what is read, which test it gets, and what is refused, each in one
sentence.
"""

import csv
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import as_lightning
from as_lightning.report.record import ComparisonRecord
from as_lightning.report.table import (
    WRITTEN,
    checked_mode,
    numbers,
    read_table,
    table_records,
    write_runs,
)
from as_lightning.statistics.example_spread import ExampleSpread
from as_lightning.statistics.pairing import paired_differences

SGD, ADAMW = (90.1, 90.4, 89.9, 90.2, 90.0), (93.2, 93.3, 93.1, 93.4, 93.0)
LONG = pd.DataFrame(
    {"method": ["sgd"] * 5 + ["adamw"] * 5, "seed": [*range(5)] * 2, "accuracy": [*SGD, *ADAMW]}
)
WIDE = pd.DataFrame({"seed": range(5), "sgd": SGD, "adamw": ADAMW})


def judged(frame: pd.DataFrame, **asked) -> pd.DataFrame:
    return as_lightning.verdicts(frame, **{"baseline": "sgd", **asked})


def test_tables_of_any_shape_unit_type_and_names_are_judged_alike():
    expected = judged(LONG)
    assert expected[["candidate", "word", "pairs"]].values.tolist() == [["adamw", "better", 5]]
    assert expected["difference"].tolist() == pytest.approx([3.08])
    roles = {"method": "kind of", "seed": "number", "score": "high"}
    for found in (
        judged(WIDE),
        judged(WIDE.set_index("seed")),
        judged(LONG.assign(accuracy=LONG["accuracy"] / 100)),
        judged(LONG.assign(accuracy=100 - LONG["accuracy"]), mode="min", unit="percent"),
        judged(LONG.astype(str)),
        judged(LONG.astype({"method": "category"})),
        judged(LONG.assign(seed=[str(2**70 + seed) for seed in LONG["seed"]])),
        judged(LONG.assign(seed=[*"0123", "last", 0.0, 1.0, 2.0, 3.0, "last"])),
        judged(
            LONG.assign(fold=[0, 1, 0, 1, 0] * 2, repeat=[0, 0, 1, 1, 2] * 2),
            columns={"seed": "fold,repeat"},
        ),
        judged(LONG.set_axis(roles.values(), axis=1), columns=roles, mode="max"),
    ):
        pd.testing.assert_frame_equal(found, expected)
    tiny = judged(LONG.assign(accuracy=LONG["accuracy"] / 1e9), unit="raw", equal_within=5e-10)
    assert (tiny["low"] * 1e9).tolist() == pytest.approx(expected["low"].tolist())
    assert judged(LONG.assign(method=[1] * 5 + [2] * 5), baseline=1)["word"].tolist() == ["better"]
    timed = table_records(LONG.assign(seconds=[60, None] * 5), "", "sgd")[0]
    assert numbers(timed)["seconds"].tolist() == [60.0, 60.0]  # of the runs that have a time


def test_more_is_better_of_scores_that_are_known_and_of_no_others():
    known = "val/acc testAcc accuracy_top-5 rougeL top5 macro_f1 MulticlassF1Score mIoU BinaryAUROC mAP50 r2 sacrebleu"
    unknown = (
        "val_loss fpr_at_95_recall ner_f1 1-acc train_acc-test_acc -acc testMAE steps_to_reward"
    )
    assert {
        checked_mode(None, name) for name in [*known.split(), "Test Accuracy", "val/score"]
    } == {"max"}
    for name in unknown.split():
        with pytest.raises(
            ValueError, match=f"say whether less of {name} is better, mode min, or more, mode max"
        ):
            checked_mode(None, name)
        assert checked_mode("min", name) == "min"


def test_differences_give_the_standard_errors_of_welch_and_of_nadeau_and_bengio():
    base, arm, rng = "base", "arm", np.random.default_rng(0)
    own, other = rng.normal(0, 1, 6), rng.normal(1, 3, 9)
    made = paired_differences(
        {base: dict(enumerate(own)), arm: {100 + n: x for n, x in enumerate(other)}}, base
    )
    welch = stats.ttest_ind(other, own, equal_var=False)
    found = pd.Series(made[arm]).dropna()
    assert found.mean() / found.sem() == pytest.approx(welch.statistic)
    assert len(found) - 1 == math.floor(welch.df)
    assert set(made[base].values()) == {0.0}
    differences = other[:6] - own
    made = paired_differences(
        {base: dict(enumerate(own)), arm: dict(enumerate(other[:6]))}, base, ratio=0.25
    )
    found = pd.Series(made[arm])
    assert found.mean() == pytest.approx(differences.mean())
    assert found.sem() ** 2 == pytest.approx((1 / 6 + 0.25) * differences.var(ddof=1))


def test_without_seeds_or_common_ones_runs_are_independent_samples_and_it_says_so():
    no_seeds, other_seeds = LONG.drop(columns="seed"), LONG.assign(seed=range(10))
    unpaired = (
        (no_seeds, "No column is known as the seed"),
        (other_seeds, "Without a seed in common with sgd"),
    )
    for frame, said in unpaired:
        found = judged(frame).iloc[0]
        assert (found["pairs"], found["word"]) == (0, "better")
        (record,), notes = table_records(frame, "mine", "sgd")
        assert any(said in note for note in [*notes, *record.notes])
    assert judged(no_seeds.iloc[3:7]).iloc[0]["word"] == "undecided"  # two runs of each


def test_repeated_splits_widen_the_interval_by_the_share_that_is_tested():
    plain, repeated = (judged(LONG, **asked).iloc[0] for asked in ({}, {"splits": "repeated"}))
    ratio = (repeated["high"] - repeated["low"]) / (plain["high"] - plain["low"])
    assert ratio == pytest.approx(math.sqrt(1 + 5 * 0.25), rel=1e-3)


def test_each_group_has_its_verdict_and_three_or_more_one_of_their_means(tmp_path):
    groups = [
        LONG.assign(dataset=name, accuracy=LONG["accuracy"] - lower)
        for lower, name in enumerate("abc")
    ]
    groups[0].loc[0, "accuracy"] -= 30  # of a seed that the other lacks
    groups[0] = groups[0].drop(index=5)
    found = judged(pd.concat(groups, ignore_index=True))
    assert found["group"].tolist() == ["a", "b", "c", "Mean of 3 groups"]
    assert found["difference"].tolist() == pytest.approx(
        [3.075, 3.08, 3.08, (3.075 + 3.08 * 2) / 3]
    )
    records = table_records(pd.concat(groups), "", "sgd")[0]
    again = table_records(read_table(write_runs(records, tmp_path / "runs.csv")), "", "sgd")[0]
    assert [record.verdicts() for record in again] == [record.verdicts() for record in records]
    one_each = pd.concat([frame[frame["seed"] == 1] for frame in groups], ignore_index=True)
    assert judged(one_each)["pairs"].tolist() == [1, 1, 1, 3]


WANDB = "Name,Agent,State,Notes,User,Tags,Created,Runtime,Sweep,lr,optimizer,seed,test/accuracy\n"
MLFLOW_PAGE = (
    "Start Time,Duration,Run ID,Name,Source Type,Source Name,User,Status,optimizer,seed,accuracy\n"
)
MLFLOW_FRAME = "run_id,experiment_id,status,artifact_uri,start_time,end_time,metrics.acc,params.optimizer,params.seed\n"


def test_groups_and_seeds_of_the_index_as_pivot_leaves_them_are_those_of_columns():
    runs = pd.concat(
        [LONG, LONG.assign(accuracy=LONG["accuracy"] - 20)],
        keys=["a", "b"],
        names=["dataset", None],
    )
    wide = runs.reset_index("dataset").pivot(
        index=["dataset", "seed"], columns="method", values="accuracy"
    )
    pd.testing.assert_frame_equal(judged(wide), judged(wide.reset_index()))


@pytest.mark.parametrize(
    ("head", "line", "state"),
    [
        (
            WANDB,
            "bold-dew-{n},-,{state},-,me,,2026-01-01T00:00:00.000Z,12,,0.1,{method},{seed},{score}",
            "crashed",
        ),
        (
            MLFLOW_PAGE,
            "2026-01-01,1.2min,{n},bold,LOCAL,train.py,me,{state},{method},{seed},{score}",
            "FAILED",
        ),
        (
            MLFLOW_FRAME,
            "{n},0,{state},mlruns,2026-01-01,2026-01-01,{score},{method},{seed}",
            "RUNNING",
        ),
    ],
    ids=["wandb", "mlflow page", "mlflow frame"],
)
def test_exports_of_trackers_are_read_as_they_come_without_runs_that_have_not_finished(
    tmp_path, head, line, state
):
    runs = [*LONG.itertuples(index=False), ("adamw", 5, "")]
    lines = [
        line.format(
            n=n, state=state if n == 10 else "FINISHED", method=method, seed=seed, score=score
        )
        for n, (method, seed, score) in enumerate(runs)
    ]
    (tmp_path / "export.csv").write_text(head + "\n".join(lines), encoding="utf-8-sig")
    frame = read_table(tmp_path / "export.csv")
    pd.testing.assert_frame_equal(judged(frame), judged(LONG))
    assert (
        "Left out, since they have not finished: row 12." in table_records(frame, "mine", "sgd")[1]
    )


def test_json_lines_with_nested_settings_and_other_delimiters_are_read(tmp_path):
    rows = [
        {"config": {"optimizer": m, "seed": s}, "summary": {"acc": a}}
        for m, s, a in LONG.itertuples(index=False)
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "runs.json").write_text(json.dumps(rows))
    LONG.to_csv(tmp_path / "runs.tsv", sep="\t", index=False)
    (tmp_path / "runs.csv").write_text(
        LONG.to_csv(sep=";", quoting=csv.QUOTE_ALL).replace(";", "; ")
    )
    for name in ("runs.jsonl", "runs.json", "runs.tsv", "runs.csv"):
        pd.testing.assert_frame_equal(judged(read_table(tmp_path / name)), judged(LONG))


def test_a_written_table_gives_the_verdicts_of_its_runs_without_those_of_tuning(result, tmp_path):
    arms = (
        ("sgd", 1.0, SGD + SGD),
        ("half", 0.5, ADAMW),
        ("None", 1.0, [score - 2 for score in ADAMW + SGD[:3]]),
    )
    runs = [
        result(method, seed, score / 100, phase="final", epochs=4 * budget)
        for method, budget, scores in arms
        for seed, score in enumerate(scores)
    ]
    record = ComparisonRecord.from_runs(
        runs, "sgd", looks=range(5, 21)
    )  # each stops where it is decided
    record.spreads = {"None": ExampleSpread(floor=1.5)}
    record.missing.append(("None", 8))  # its last run has failed
    runs.append(result("sgd", 1000, 0.1, metrics={}, phase="tuning", settings={"lr": 0.1}))
    record.results = runs
    (read,), notes = table_records(
        read_table(write_runs([record], tmp_path / "runs.csv")), "", "sgd"
    )
    assert "Left out, since they have failed: row 26." in notes
    found = [(verdict.arm, verdict.seeds, verdict.word) for verdict in read.verdicts()]
    record.results = runs[:-1]
    assert read.verdicts() == record.verdicts()
    assert found == [("half", 5, "better"), ("None", 8, "undecided")]


def changed(row: int, column: str, value: object) -> pd.DataFrame:
    frame = LONG.astype(object)
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "said", "difference"),
    [
        (LONG.assign(State=["crashed", *["completed"] * 9]), "not finished: row 0", 3.075),
        (WIDE.assign(adamw=[*ADAMW[:4], None]), "the cell is empty: row 4", 3.1),
        (WIDE.assign(lion="91,1"), "no cell is a number: the columns lion", 3.08),
        (WIDE.assign(lion=""), "the cell is empty: rows 0, 1, 2, 3, 4", 3.08),
        (
            pd.concat([LONG.assign(task="a"), LONG[5:].assign(task="b")], ignore_index=True),
            "no run of sgd: b",
            3.08,
        ),
    ],
)
def test_runs_that_are_left_out_are_said_and_those_of_seeds_that_both_have_paired(
    frame, said, difference
):
    with pytest.warns(UserWarning, match=said):
        found = judged(frame).iloc[0]
    assert (found["difference"], found["word"]) == (pytest.approx(difference), "better")
    assert found["pairs"] == (5 if difference == 3.08 else 4)


BAD = {
    "a column that is not there": (
        LONG,
        {"columns": {"score": "acuracy"}},
        "no column is named acuracy: did you mean",
    ),
    "two scores": (
        LONG,
        {"columns": {"score": "accuracy,seed"}},
        "score=accuracy,seed are several columns",
    ),
    "a role that is none": (
        LONG,
        {"columns": {"sed": "seed"}},
        "sed=seed is of no role: did you mean seed",
    ),
    "no column of scores": (
        LONG.drop(columns="accuracy"),
        {},
        "no column is known as the score: name it",
    ),
    "two metrics": (
        LONG.assign(**dict.fromkeys(WRITTEN, "final") | {"metric": [*"ab"] * 5}),
        {},
        "metrics, a and b",
    ),
    "two columns of scores": (
        LONG.assign(f1=LONG.accuracy - 1),
        {},
        "the score may be accuracy or f1: say it",
    ),
    "text": (
        changed(3, "accuracy", "n/a"),
        {},
        "row 3: expected a number in the column accuracy, got 'n/a'",
    ),
    "a percent sign": (changed(3, "accuracy", "90.1%"), {}, "got '90.1%': write 90.1"),
    "a decimal comma": (changed(3, "accuracy", "90,1"), {}, "got '90,1': write 90.1"),
    "thousands": (changed(3, "accuracy", "1,090"), {}, "got '1,090'$"),
    "a bool": (
        changed(3, "accuracy", True),
        {},
        "row 3: expected a number in the column accuracy, got 'True'",
    ),
    "a clock": (
        LONG.assign(seconds="1:02"),
        {},
        "expected a number in the column seconds, got '1:02'",
    ),
    "a clock set back": (
        LONG.assign(seconds=-60),
        {},
        "expected seconds of 0 or more in the column seconds, got -60",
    ),
    "a row of means": (
        changed(3, "seed", "AVG. (5)"),
        {},
        r"row 3: AVG. \(5\) is no seed: leave the row out",
    ),
    "parts of the data": (
        LONG.assign(seed=["train", "test"] * 5),
        {},
        "rows 0, 1, 2, .*: train is no seed: leave",
    ),
    "states": (
        LONG.assign(status=["ran", "hung"] * 5),
        {},
        "the column status has ran or hung: leave runs out that",
    ),
    "margins": (
        WIDE.assign(**{"": [*"0123", "All"]}),
        {},
        "row 4: All is no index: leave the row out",
    ),
    "means by pandas": (
        pd.concat([WIDE, WIDE[-1:].rename({4: "mean ±"})]),
        {},
        "row mean ±: mean ± is no index",
    ),
    "margins by pandas": (
        WIDE.set_index([["x", "x", "x", "x", "All"], "seed"]),
        {},
        "All is no index",
    ),
    "a missing score": (
        changed(7, "accuracy", None),
        {},
        "row 7: expected a number in the column accuracy",
    ),
    "a missing method": (changed(2, "method", " "), {}, "row 2: nothing is in the column method"),
    "a seed twice": (
        changed(6, "seed", 0),
        {},
        r"rows 5, 6 are of one run \(adamw, seed 0\), and differ in accuracy",
    ),
    "a name twice": (LONG[[*LONG, "seed"]], {}, "two columns are named seed: rename one of them"),
    "no finished run": (LONG[:0], {}, "the table has no run that has finished"),
    "a chart": (
        pd.DataFrame({"Step": [1], "a": [0.5], "a__MIN": [0.5]}),
        {},
        "this is the export of a chart",
    ),
    "one seed": (
        LONG[LONG.seed == 0],
        {},
        "each candidate has one score, .* give at least 3 runs of each",
    ),
    "one method": (
        LONG[:5],
        {},
        "nothing is compared: there is one candidate alone; there are: sgd",
    ),
    "no baseline": (
        LONG,
        {"baseline": None},
        "compared with, as in --baseline sgd; there are: sgd",
    ),
    "an unknown baseline": (
        LONG,
        {"baseline": "adam"},
        "no run is of the candidate adam: did you mean adamw",
    ),
    "shares and percents": (
        changed(4, "accuracy", 0.9),
        {},
        "row 4 has the score 0.9, row 0 90.1: write all as",
    ),
    "no share": (LONG, {"unit": "share"}, "row 0 has the score 90.1: a share is from 0 to 1"),
    "any unit": (
        LONG.assign(accuracy=LONG.accuracy * 2),
        {},
        "scores of 179.8 to 186.8 may be of any unit",
    ),
    "a loss or percents": (LONG, {"mode": "min"}, "scores of 89.9 to 93.4 may be of any unit"),
    "no pairs": (
        LONG.drop(columns="seed"),
        {"splits": "repeated"},
        "repeated splits are compared in pairs",
    ),
    "no such splits": (
        LONG,
        {"splits": "Repeated"},
        "splits must be one of 'fixed', 'repeated', got 'Repeated'",
    ),
    "no test share": (
        LONG,
        {"splits": "repeated", "test_share": 20},
        "test_share must be a share above 0 and below 1",
    ),
}


@pytest.mark.parametrize(("frame", "asked", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_judged_is_refused_in_one_sentence(frame, asked, said):
    with pytest.raises(ValueError, match=said) as error:
        judged(frame, **asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.csv",
            b"method,score\nsgd,1,2\n",
            "a.csv, line 2, is no table of runs: expected 2 cells",
        ),
        (
            "a.csv",
            b"\x89PNG\r\n\x1a\n\xff\xfe",
            "a.csv is no table of runs: expected CSV, TSV, JSON or JSON lines",
        ),
        ("a.jsonl", b'{"method": "sgd"}\n{"method":', "a.jsonl, line 2, is no table of runs"),
        ("a.csv", b"", "a.csv, line 1, is no table of runs: the file is empty"),
        (
            "a.csv",
            b"sgd,0,90.1\nsgd,1,90.4\n",
            "expected the names of the columns in the first line, got sgd, 0, 90.1",
        ),
    ],
)
def test_a_file_that_is_no_table_is_named_with_its_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        judged(read_table(tmp_path / name))
