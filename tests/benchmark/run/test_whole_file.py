"""A file that cannot be written completely leaves nothing behind, and the file before it as it was."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from as_lightning.benchmark.run.result import Result, whole_file


def test_a_writer_that_fails_leaves_no_partial_file_and_the_file_before_as_it_was(tmp_path):
    place = tmp_path / "numbers.txt"
    with whole_file(place) as partial:
        partial.write_text("1 2 3")

    def write_half() -> None:
        with whole_file(place) as partial:
            partial.write_text("4 5")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert [entry.name for entry in tmp_path.iterdir()] == ["numbers.txt"]
    assert place.read_text() == "1 2 3"


def write_result(folder: Path, content: int, result: Callable[..., Result]) -> None:
    result("softmax", 0, 0.8, epoch_seconds=[1.0] * content).write(folder)


def test_a_full_disk_leaves_the_result_before_as_it_was(tmp_path: Path, result: Callable[..., Result]) -> None:
    write_result(tmp_path, 1, result)
    [before] = tmp_path.iterdir()
    content = before.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_result(tmp_path, 100_000, result)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [before]
    assert before.read_bytes() == content
