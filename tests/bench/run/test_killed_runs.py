"""A run that was killed, at whatever moment, ends as it would have without; what a full disk left
does not stop it.
"""

import random
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock, Timeout
from harness.killed_run import CALLS_FILE, hold_the_lock, run
from harness.prepared_processes import context, exit_status
from harness.run_findings import found

from as_lightning.bench.run.result import Result
from as_lightning.bench.run.runner import LOCK_FILE, run_lock
from as_lightning.bench.run.train import train

LIMITS = "limit_train_batches=12 limit_val_batches=2 limit_test_batches=2 enable_progress_bar=false"
SETTINGS = ["experiment=digits", "method=as_speed", "optimizer.lr=1e-2", "trainer.max_epochs=3"]
SETTINGS += ["logger=none", *(f"trainer.{limit}" for limit in LIMITS.split())]
INSIDE = ("trainer.val_check_interval=5",)  # validations after batches 5 and 10 of 12
SOFTMAX = ("method=softmax",)


def ended(folder: Path) -> dict[str, Any]:
    """What a run has found, with its best and its last weights."""
    content = found(folder)
    for name in ("best", "last"):
        state = torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)
        content[name] = {key: value.tolist() for key, value in state["state_dict"].items()}
    return content


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Callable[..., tuple[dict[str, Any], int]]:
    """What a run of these settings finds undisturbed, and the number of its Python calls."""

    @cache
    def of(*settings: str) -> tuple[dict[str, Any], int]:
        folder = tmp_path_factory.mktemp("undisturbed")
        assert exit_status(run, settings, folder) == 0
        return ended(folder), int((folder / CALLS_FILE).read_text())

    return of


@pytest.fixture
def killed(tmp_path, undisturbed) -> Callable[..., dict[str, Any]]:
    """Kill a run after this share of its Python calls; gives what it should have found."""

    def kill(share: float, *settings: str) -> dict[str, Any]:
        expected, calls = undisturbed(*settings)
        (tmp_path / "run").mkdir()
        assert exit_status(run, settings, tmp_path / "run", int(share * calls)) == -signal.SIGKILL
        assert not (tmp_path / "run" / "result.json").exists()
        return expected

    return kill


@pytest.fixture
def killed_and_resumed(tmp_path, killed) -> Callable[..., Result]:
    """Kill a run and start it again, which ends as an undisturbed one."""

    def kill_and_resume(share: float, *settings: str) -> Result:
        start = time.perf_counter()
        expected = killed(share, *settings)
        assert exit_status(run, settings, tmp_path / "run") == 0
        assert ended(tmp_path / "run") == expected
        result = Result.read(tmp_path / "run" / "result.json")
        assert len(result.epoch_seconds) == 3
        assert 0 < sum(result.epoch_seconds) <= result.train_seconds < time.perf_counter() - start
        return result

    return kill_and_resume


@pytest.mark.parametrize("settings", [(), INSIDE, ("trainer.accumulate_grad_batches=3", *SOFTMAX)])
@pytest.mark.parametrize("share", [0.05, 0.7])
def test_a_killed_run_ends_with_the_results_and_weights_of_an_undisturbed_one(
    killed_and_resumed, share, settings
):
    assert killed_and_resumed(share, *SETTINGS, *settings).resumed == (share > 0.5)


def test_a_killed_run_that_has_moved_starts_anew(composed, tmp_path, killed, caplog):
    expected = killed(0.8, *SETTINGS)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert not train(composed(*SETTINGS, output="moved")).resumed
    assert "last.ckpt is of another folder: the run starts anew" in caplog.text
    assert ended(tmp_path / "moved") == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_twenty_kills_at_random_moments_change_nothing(killed_and_resumed, number, record_property):
    share = random.Random(number).uniform(0.02, 0.99)
    killed_and_resumed(share, *SETTINGS, *(INSIDE if number % 2 else ()))
    record_property("runs killed at a random moment end as the undisturbed one", 1)


def test_a_checkpoint_that_cannot_be_read_is_set_aside_and_the_run_starts_anew(
    composed, tmp_path, caplog
):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    last = folder / "checkpoints" / "last.ckpt"
    last.write_text("cut off")
    result = train(composed(*SETTINGS, "trainer.max_epochs=1"))
    assert f"{last} cannot be read" in caplog.text
    assert last.with_name("last.ckpt.unreadable").read_text() == "cut off"
    assert not result.resumed
    assert Result.read(folder / "result.json") == result
    (folder / "result.json").write_text("cut off")
    with pytest.raises(ValueError, match=r"result\.json"):
        train(composed(*SETTINGS))


def test_a_folder_is_locked_while_a_run_is_in_it_and_free_once_the_process_is_killed(tmp_path):
    held = context().Event()
    process = context().Process(target=hold_the_lock, args=(tmp_path, held))
    process.start()
    while not held.wait(1):
        assert process.is_alive()
    with pytest.raises(Timeout):
        FileLock(tmp_path / LOCK_FILE).acquire(timeout=0)
    process.kill()
    process.join()
    with run_lock(tmp_path):
        pass
