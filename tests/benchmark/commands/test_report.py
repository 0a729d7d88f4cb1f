"""``as-lightning-report`` on what is no plain sweep: comparisons, tables, and runs that were not tested."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from as_lightning.benchmark.commands.report import main
from as_lightning.benchmark.report.page import write_report
from as_lightning.benchmark.report.record import ComparisonRecord, run_folder
from as_lightning.benchmark.report.verdicts import Design
from as_lightning.benchmark.run.result import read_runs


@pytest.fixture
def comparison(result, tmp_path) -> Path:
    """The folder of a finished comparison of two methods, with a run of its tuning."""
    folder = tmp_path / "comparisons" / "digits"
    record = ComparisonRecord("digits", "accuracy", "softmax", ["softmax", "as_softmax"], Design(looks=(3,)))
    record.commands = ["as-lightning-compare experiment=digits"]
    record.settings = {method: {} for method in record.candidates}
    for number, (method, seed) in enumerate((method, seed) for method in record.candidates for seed in range(3)):
        about: dict[str, Any] = {"phase": "final", "budget": 1.0, "epochs": 4, "settings": {}}
        made = result(method, seed, 0.8 + number / 100, **about)
        (folder / run_folder(method, 1.0, seed)).mkdir(parents=True)
        made.write(folder / run_folder(method, 1.0, seed))
        record.add(made, method, made.metrics[made.score])
    tuned = folder / "tuning" / "softmax" / "trial=0,seed=1000"
    tuned.mkdir(parents=True)
    about: dict[str, Any] = {"phase": "tuning", "budget": 1.0, "epochs": 4, "settings": {}}
    result("softmax", 1000, 0.8, metrics={}, **about).write(tuned)
    record.write(folder)
    write_report([record], folder / "report")
    return folder


def refused(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 1
    return capsys.readouterr().err


def test_the_folder_of_a_comparison_gives_the_report_of_the_comparison(comparison, capsys):
    report = comparison / "report" / "report.md"
    before = report.read_text(encoding="utf-8")
    report.unlink()
    main([str(comparison)])
    assert report.read_text(encoding="utf-8") == before
    printed = capsys.readouterr().out
    assert "differences to softmax, 4 epochs" in printed
    assert str(report) in printed


def test_a_comparison_whose_runs_are_in_one_file_gives_the_same_report(comparison):
    report = comparison / "report" / "report.md"
    before = report.read_text(encoding="utf-8")
    report.unlink()
    lines = [json.dumps(asdict(run) | {"path": path}) for path, run in read_runs(comparison).items()]
    shutil.rmtree(comparison / "runs")
    (comparison / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    main([str(comparison)])
    assert report.read_text(encoding="utf-8") == before


def test_a_comparison_is_reported_whole_and_alone(comparison, capsys):
    for arguments in (["--baseline", "as_softmax"], [str(comparison.parent)]):
        said = refused(capsys, str(comparison), *arguments)
        assert f"{comparison} is a comparison, which is reported whole and alone" in said


def test_runs_of_comparisons_are_refused(comparison, capsys):
    for path in (comparison.parent, comparison / "runs"):
        assert "these are runs of comparisons: give the folder of one that has ended" in refused(capsys, str(path))


def test_runs_without_test_metrics_are_left_out_and_named(result, tmp_path, capsys):
    for seed in range(3):
        for method, metrics in (("softmax", {"accuracy": 0.8}), ("as_softmax", {} if seed == 1 else {"accuracy": 0.9})):
            folder = tmp_path / f"{method}{seed}"
            folder.mkdir()
            result(method, seed, 0.8, metrics=metrics).write(folder)
    main([str(tmp_path)])
    note = "Without test metrics, as made with test=false, and left out: as_softmax, seed 1."
    assert note in " ".join(capsys.readouterr().out.split())
    assert note in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")


def test_a_report_of_runs_without_test_metrics_alone_is_refused(result, tmp_path, capsys):
    result("softmax", 0, 0.8, metrics={}).write(tmp_path)
    assert "has test metrics: make the runs with test=true" in refused(capsys, str(tmp_path))
    assert not (tmp_path / "report").exists()


TABLE = "model,run,test_acc\n" + "".join(
    f"{model},{run},{accuracy * (1 + run / 1000)}\n"
    for model, accuracy in (("small", 0.8), ("wide", 0.7))
    for run in range(4)
)


def test_a_table_is_judged_without_writing_a_file_unless_a_folder_is_given(tmp_path, capsys):
    (tmp_path / "scores.csv").write_text(TABLE)
    asked = [str(tmp_path / "scores.csv"), "--baseline", "wide", "--columns", "method=model", "seed=run"]
    main(asked)
    printed = capsys.readouterr().out
    assert "which does not say whether the candidates were tuned alike: no advice." in printed
    assert "8 runs were read: method from model, seed from run, score from test_acc." in printed
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]
    main([*asked, "--output", str(tmp_path / "page")])
    assert {path.name for path in (tmp_path / "page").glob("*.*")} == {
        *(f"report.{kind}" for kind in ("csv", "html", "md")),
        "runs.csv",
    }
    capsys.readouterr()
    main([str(tmp_path / "page" / "runs.csv"), "--baseline", "wide", "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["candidate"], found["word"], found["pairs"]) == ("small", "better", 4)


@pytest.mark.parametrize(
    ("form", "first"), [("json", "["), ("md", "# scores"), ("html", "<!doctype html>"), ("latex", r"\begin{tabular}")]
)
def test_a_format_prints_that_alone(tmp_path, capsys, form, first):
    (tmp_path / "scores.csv").write_text(TABLE)
    main([str(tmp_path / "scores.csv"), "--baseline", "wide", "--format", form])
    printed = capsys.readouterr().out
    assert printed.startswith(first)
    assert "better" in printed


def test_a_word_can_fail_the_command(tmp_path, capsys):
    (tmp_path / "scores.csv").write_text(TABLE)
    main([str(tmp_path / "scores.csv"), "--baseline", "wide", "--fail-if", "worse"])
    refused(capsys, str(tmp_path / "scores.csv"), "--baseline", "small", "--fail-if", "worse")


def test_a_table_that_cannot_be_judged_is_named_and_so_are_options_that_are_not_for_folders(
    comparison, tmp_path, capsys
):
    (tmp_path / "scores.csv").write_text(TABLE.replace("0.8008", "n/a"))
    said = refused(capsys, str(tmp_path / "scores.csv"), "--baseline", "wide")
    assert f"{tmp_path}/scores.csv: row 3: expected a number in the column test_acc, got 'n/a'" in said
    said = refused(capsys, str(tmp_path / "score.csv"), "--baseline", "wide")
    assert f"there is no file and no folder {tmp_path}/score.csv: did you mean {tmp_path}/scores.csv?" in said
    said = refused(capsys, str(tmp_path / "scores.csv"), "--output", str(tmp_path / "scores.csv"))
    assert f"--output {tmp_path}/scores.csv is a file: name a folder" in said
    said = refused(capsys, str(comparison), "--mode", "min")
    assert f"{comparison} is no table of runs, for which alone --mode can be given" in said
