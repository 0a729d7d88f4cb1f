"""Sweeps whose jobs run in other processes, are chosen by Optuna, or take several
processes each.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from harness.prepared_processes import exit_status, run
from harness.run_findings import reported

from as_lightning.bench.commands import console
from as_lightning.bench.run.result import Result

pytestmark = pytest.mark.slow

DIGITS = ("-m", "experiment=digits", "trainer.max_epochs=1")
DDP = ("trainer=ddp", "trainer.accelerator=cpu")
SEARCH = "multirun/digits/hparams_search=delta_optuna,trainer.max_epochs=1"
OWN = ("call=harness.own_modules.comparison_of_losses",)
QUIET = "trainer.enable_progress_bar=false"


def quiet(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Without a bar, which a function of ``call=`` leaves out itself."""
    return arguments if arguments[0].startswith("call=") else (*arguments, QUIET)


def run_here(command: str, folder: Path, *arguments: str) -> str:
    """Run a command in ``folder``, without progress bars, and give what it has printed,
    errors too.
    """
    main = console.train if command == "as-lightning" else console.compare
    finished = run(main, command, *quiet(arguments), folder=folder, OMP_NUM_THREADS="1")
    assert finished.returncode == 0, finished.stderr
    return finished.stdout + finished.stderr


def in_an_interpreter(command: str, folder: Path, *arguments: str) -> str:
    """The same in a process of its own, which Lightning repeats, and with which joblib's processes
    end.
    """
    words = [str(Path(sys.executable).with_name(f"as-lightning-{command}"))]
    if command == "train":
        words = [sys.executable, "-m", "as_lightning.bench.commands.train"]
    finished = subprocess.run(
        [*words, *quiet(arguments)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def results(folder: Path) -> list[Result]:
    return [Result.read(path) for path in sorted(folder.rglob("result.json"))]


@pytest.fixture(scope="module")
def search(tmp_path_factory) -> tuple[Path, str]:
    """Two trials of Optuna's at a time, in processes of joblib's; with what the command printed."""
    folder = tmp_path_factory.mktemp("search")
    side_by_side = ("hydra.sweeper.n_jobs=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    trials = ("hparams_search=delta_optuna", "hydra.sweeper.n_trials=2")
    return folder, in_an_interpreter("train", folder, *DIGITS, *trials, *side_by_side)


def test_optuna_looks_for_the_margin_of_the_best_validation_score(search):
    folder, _ = search
    runs = results(folder)
    assert len(runs) == 2
    (session,) = {run.session for run in runs}
    assert session
    best_scores = {}
    for result in runs:
        scores = [evaluation["score"] for evaluation in result.evaluations]
        best_scores[result.config["method"]["delta"]] = max(scores)
    assert len(best_scores) == 2
    assert all(0.01 <= delta <= 1.0 for delta in best_scores)
    found = yaml.safe_load((folder / SEARCH / "optimization_results.yaml").read_text())
    best = best_scores[found["best_params"]["method.delta"]]
    assert found["best_value"] == max(best_scores.values()) == best


def test_the_table_of_jobs_in_other_processes_has_a_candidate_for_each_margin(search):
    folder, printed = search
    deltas = [run.config["method"]["delta"] for run in results(folder)]
    names = {f"as_softmax, delta={delta}": 1 for delta in deltas}
    assert reported(folder / SEARCH) == names
    assert f"{SEARCH}/runs.csv" in printed


def test_the_table_of_submitted_jobs_is_of_their_runs_alone(search):
    folder, _ = search
    words = ("method=softmax", "seed=0,1", "hydra/launcher=submitit_local")
    run_here("as-lightning", folder, *DIGITS, *words)
    shared = folder / "multirun/digits/method=softmax,trainer.max_epochs=1"
    assert len(results(shared)) == 2
    assert reported(shared) == {"softmax": 2}


def test_a_run_in_two_processes_writes_one_result_of_all_samples(tmp_path):
    in_an_interpreter("train", tmp_path, *DIGITS[1:], *DDP, "method=as_speed")
    (run,) = results(tmp_path)
    assert run.masking[0]["samples"] == 2 * 20 * 32 - 2 * 11
    assert len(run.evaluations) == 1


def test_a_sweep_of_runs_in_two_processes_runs_each_job_once_in_its_own_folder(tmp_path):
    printed = run_here("as-lightning", tmp_path, *DIGITS, *DDP, "method=as_speed", "seed=0,1")
    assert [run.seed for run in results(tmp_path)] == [0, 1]
    assert all(run.masking[0]["samples"] == 2 * 20 * 32 - 2 * 11 for run in results(tmp_path))
    shared = "method=as_speed,trainer.accelerator=cpu,trainer.max_epochs=1,trainer=ddp"
    assert reported(tmp_path / "multirun/digits" / shared) == {"as_speed": 2}
    for seed in (0, 1):  # the sweep says it, and each of the two processes
        assert printed.count(f"digits, method as_speed, seed {seed}") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["multirun"]


@pytest.mark.parametrize("own", [False, True], ids=["digits", "a module of one's own"])
def test_a_comparison_whose_runs_go_side_by_side_has_the_scores_of_one_whose_runs_take_turns(
    tmp_path, monkeypatch, own
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    plan = ["methods=softmax,as_softmax", "half_epochs=false"]
    plan += ["trials=1", "tuning_seeds=1", "seeds=1"]
    limits = ("trainer.max_epochs=1", "trainer.limit_train_batches=5")
    short = OWN if own else (*limits, "experiment=digits")
    run_here("as-lightning-compare", tmp_path, *short, *plan, "hydra.sweep.dir=turns")
    side_by_side = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=sides")
    in_an_interpreter("compare", tmp_path, *short, *plan, *side_by_side)
    scores: dict[str, Any] = {"turns": {}, "sides": {}}
    for name, found in scores.items():
        for result in results(tmp_path / name):
            found[result.candidate, result.seed] = result.metrics
    assert len(scores["turns"]) == 2
    assert scores["turns"] == scores["sides"]


def test_the_weights_that_two_processes_test_are_those_of_the_best_mean_score(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    call = "call=harness.own_modules.comparison_of_two_ranks"
    in_an_interpreter("compare", tmp_path, call, "trials=1", "seeds=3", "half_epochs=false")
    assert {round(10 * run.metrics[run.score]) for run in results(tmp_path)} == {1}


def one_run_of_a_process_group(folder: Path) -> None:
    os.chdir(folder)
    sys.argv = ["as-lightning", *DIGITS[1:], *DDP, "trainer.devices=1", QUIET]
    console.train()
    assert not torch.distributed.is_initialized()


def test_a_run_leaves_no_process_group_to_the_end_of_its_process_whose_threads_may_abort_it(
    tmp_path,
):
    assert exit_status(one_run_of_a_process_group, tmp_path) == 0
