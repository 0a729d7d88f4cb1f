"""``as-lightning-compare`` as its users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2]
SHORT = ["trials=1", "trainer.limit_train_batches=3", "trainer.max_epochs=1", "budgets=1", "seeds=3"]


def as_lightning_compare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HARNESS), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "as_lightning.benchmark.compare.command", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def advice_in(folder: Path) -> list[str]:
    return json.loads((folder / "report" / "advice.json").read_text(encoding="utf-8"))


def test_a_comparison_ends_with_the_verdicts_the_advice_and_the_report(tmp_path: Path) -> None:
    command = ["experiment=digits", "methods=as_softmax", "method.delta=0.2", *SHORT]
    done = as_lightning_compare(tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "comparisons" / "digits"
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("result.json")]
    assert len(runs) == 2 * 3
    # the margin reaches the method that has one, and the baseline was added
    assert {run["method"]: run["config"]["method"].get("delta") for run in runs} == {"softmax": None, "as_softmax": 0.2}
    assert "6 runs" in done.stdout
    assert all(sentence.split()[0] in done.stdout for sentence in advice_in(folder))
    assert (folder / "report" / "report.html").exists()
    assert "as-lightning-compare experiment=digits" in (folder / "report" / "report.md").read_text(encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    again = as_lightning_compare(tmp_path, *command)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")} == before


def test_a_module_of_ones_own_is_compared_by_its_dotted_path(tmp_path: Path) -> None:
    done = as_lightning_compare(
        tmp_path,
        "module._target_=harness.own_modules.WithCriterion",
        "module.replaces=criterion",
        "+module.hidden=8",
        "data._target_=harness.own_modules.Points",
        "+data.rows=150",
        "methods=as_softmax",
        "trials=2",
        "tuning_seeds=1",
        "seeds=3",
        "budgets=1",
        "trainer.max_epochs=1",
        "name=own",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "comparisons" / "own"
    assert len(list((folder / "tuning").rglob("result.json"))) == 2 * 2
    assert len(list((folder / "runs").rglob("result.json"))) == 2 * 3
    assert advice_in(folder)


def test_failed_runs_are_named_and_the_report_is_of_the_others(tmp_path: Path) -> None:
    done = as_lightning_compare(tmp_path, "experiment=digits", "methods=as_softmax", "method.delta=7", *SHORT)
    assert done.returncode != 0
    assert "3 of 6 runs have failed" in done.stderr
    assert "delta" in done.stderr
    assert "3 of 6 runs have failed" in " ".join(advice_in(tmp_path / "comparisons" / "digits"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["methods=as_softmx"], "unknown method 'as_softmx': did you mean as_softmax"),
        (["budgets=3"], "in (0, 2], got 3"),
        (["trainer.max_epochs=1,2"], "cannot be swept in a comparison"),
        (["module._target_=harness.own_modules.Nothing"], "harness.own_modules.Nothing"),
    ],
    ids=["method", "budget", "sweep", "module"],
)
def test_bad_input_is_refused_before_the_first_run(arguments, message, tmp_path: Path) -> None:
    done = as_lightning_compare(tmp_path, "experiment=digits", *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("result.json"))
