"""A run that was killed, at whatever moment, ends as it would have without; what a full disk left
does not stop it.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from filelock import FileLock, Timeout
from harness.killed_run import CALLS_FILE, hold_the_lock, run
from harness.prepared_processes import context, exit_status
from harness.run_findings import found

from as_lightning.bench.commands.mistakes import is_mistake
from as_lightning.bench.run.checkpoint_io import WholeFileCheckpointIO
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.runner import LOCK_FILE, run_lock
from as_lightning.bench.run.settings import SettingError
from as_lightning.bench.run.train import train

SETTINGS = [
    "experiment=digits",
    "method=as_speed",
    "optimizer.lr=1e-2",
    "trainer.max_epochs=3",
    "trainer.limit_train_batches=12",
    "trainer.limit_val_batches=2",
    "trainer.limit_test_batches=2",
    "trainer.enable_progress_bar=false",
    "logger=none",
]
INSIDE_EPOCHS = [
    *SETTINGS,
    "trainer.val_check_interval=5",
]  # checkpoints after batches 5 and 10 of 12


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Callable[..., tuple[dict[str, Any], int]]:
    """What a run of these settings finds when nothing happens to it, and the number of its Python
    calls.
    """

    @cache
    def of(*settings: str) -> tuple[dict[str, Any], int]:
        folder = tmp_path_factory.mktemp("undisturbed")
        assert exit_status(run, settings, folder) == 0
        return found(folder), int((folder / CALLS_FILE).read_text())

    return of


@pytest.fixture
def killed(tmp_path, undisturbed) -> Callable[..., dict[str, Any]]:
    """Kill a run in ``tmp_path / "run"`` after this share of its Python calls; gives what it should
    have found.
    """

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
        assert found(tmp_path / "run") == expected
        result = Result.read(tmp_path / "run" / "result.json")
        assert len(result.epoch_seconds) == 3
        assert 0 < sum(result.epoch_seconds) <= result.train_seconds < time.perf_counter() - start
        return result

    return kill_and_resume


@pytest.mark.parametrize("share", [0.05, 0.7])
def test_a_killed_run_ends_with_the_results_of_an_undisturbed_one(killed_and_resumed, share):
    assert killed_and_resumed(share, *SETTINGS).resumed == (share > 0.5)


@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#5325",
    "A run resumed inside an epoch goes on with the next one.",
)
@pytest.mark.parametrize(
    "settings", [(), ("method=as_softmax", "trainer.accumulate_grad_batches=3")]
)
def test_a_run_that_is_killed_inside_an_epoch_goes_on_with_the_batches_that_are_left(
    killed_and_resumed, settings
):
    assert killed_and_resumed(0.62, *INSIDE_EPOCHS, *settings).resumed


@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#14443",
    "A run that goes on at another path forgets its best score.",
)
def test_a_killed_run_that_has_moved_keeps_its_best_weights(composed, tmp_path, killed):
    settings = [
        *SETTINGS,
        "callbacks.model_checkpoint.mode=min",
    ]  # so that the best are the first, which are kept
    expected = killed(0.8, *settings)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert train(composed(*settings, output="moved")).resumed
    assert found(tmp_path / "moved") == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_twenty_kills_at_random_moments_change_nothing(killed_and_resumed, number, record_property):
    killed_and_resumed(
        random.Random(number).uniform(0.02, 0.99), *(INSIDE_EPOCHS if number % 2 else SETTINGS)
    )
    record_property("runs killed at a random moment end as the undisturbed one", 1)


def test_unreadable_checkpoints_are_named_and_set_aside_and_the_one_before_is_taken_or_none(
    composed, tmp_path, killed, caplog
):
    folder = tmp_path / "run"
    expected = killed(0.8, *SETTINGS)
    shutil.copytree(folder, tmp_path / "copy")
    last = folder / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:5000])
    half = last.with_name("last.ckpt.0123.partial")
    half.touch()
    result = train(composed(*SETTINGS))
    assert f"{last} cannot be read" in caplog.text
    assert last.with_name("last.ckpt.unreadable").exists()
    assert not half.exists()
    assert result.resumed
    assert found(folder) == expected
    for file in [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert not train(composed(*SETTINGS, output="copy")).resumed
    assert found(tmp_path / "copy") == expected


def test_a_truncated_result_is_set_aside_and_the_run_made_again(
    composed, tmp_path, caplog, monkeypatch
):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text('{"format": 2, "na')
    monkeypatch.chdir(folder)
    with pytest.raises(SettingError, match="not renamed in the working directory"):
        train(composed(*SETTINGS, "trainer.max_epochs=1"))
    monkeypatch.chdir(tmp_path)
    result = train(composed(*SETTINGS, "trainer.max_epochs=1"))
    assert "result.json cannot be read" in caplog.text
    assert Result.read(folder / "result.json") == result


@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#19970",
    "An interrupted save leaves half a checkpoint in the place of the one before.",
)
def test_a_full_disk_leaves_the_checkpoint_before_as_it_was(tmp_path, full_disk):
    path = tmp_path / "last.ckpt"
    files = WholeFileCheckpointIO()
    files.save_checkpoint({"step": 1}, path)
    with full_disk(), pytest.raises(OSError, match="File too large") as error:
        files.save_checkpoint({"step": 2, "weights": torch.zeros(100_000)}, path)
    assert is_mistake(error.value)
    assert torch.load(path) == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.ckpt"]


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
