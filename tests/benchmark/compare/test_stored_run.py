"""The runs of a module of one's own in a folder: one at a time, and what cannot be read is set aside."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from as_lightning.benchmark.compare.stored_run import stored_run
from as_lightning.benchmark.run.folder import run_lock
from as_lightning.benchmark.run.result import RESULT_FILE, Result


@pytest.fixture
def made(result: Callable[..., Result]) -> Result:
    return result("softmax", 0, 0.5, config={"seed": 0})


def test_a_finished_run_is_taken_and_one_of_another_configuration_is_made_anew(made: Result, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    assert stored_run(folder, made.config, lambda: made) is made
    assert asdict(stored_run(folder, made.config, lambda: pytest.fail("made again"))) == asdict(made)
    other = replace(made, config={"seed": 1})
    assert stored_run(folder, other.config, lambda: other) is other
    assert Result.read(folder / RESULT_FILE).config == {"seed": 1}


def test_a_result_that_cannot_be_read_is_set_aside_and_the_run_is_made_anew(made: Result, tmp_path: Path) -> None:
    (tmp_path / RESULT_FILE).write_text('{"format": 2, "name": "x')
    assert stored_run(tmp_path, made.config, lambda: made) is made
    assert (tmp_path / f"{RESULT_FILE}.unreadable").exists()
    assert Result.read(tmp_path / RESULT_FILE).config == made.config


def test_a_run_that_another_process_makes_in_the_folder_is_waited_for(made: Result, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with run_lock(tmp_path):
            waiting = pool.submit(stored_run, tmp_path, made.config, lambda: pytest.fail("made twice"))
            time.sleep(0.2)
            made.write(tmp_path)
        assert asdict(waiting.result()) == asdict(made)


def test_without_a_folder_nothing_is_kept(made: Result, tmp_path: Path) -> None:
    assert stored_run(None, made.config, lambda: made) is made
    assert not list(tmp_path.iterdir())
