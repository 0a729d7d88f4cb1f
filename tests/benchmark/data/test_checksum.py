"""What tells a user's data from other data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from as_lightning.benchmark.data import files as module
from as_lightning.benchmark.data.files import checksum


def test_a_file_is_told_by_its_content_and_not_by_its_time_or_place(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("good,1\n")
    second.write_text("good,1\n")
    os.utime(second, (1, 1))
    before = checksum([first])
    assert checksum([second]) == before
    first.write_text("good,0\n")
    os.utime(first, (2, 2))  # a clock of the file system ticks every few milliseconds
    assert checksum([first]) != before
    assert checksum([first, second]) != checksum([second, first])


@pytest.mark.parametrize("limit", [None, 10], ids=["whole", "of large folders the ends of each file"])
def test_a_folder_is_told_by_the_names_and_contents_of_its_files(tmp_path: Path, monkeypatch, limit) -> None:
    if limit is not None:
        monkeypatch.setattr(module, "READ_WHOLE", limit)
    for name in ("cat/1.png", "dog/2.png"):
        (tmp_path / "set" / name).parent.mkdir(parents=True)
        (tmp_path / "set" / name).write_bytes(name.encode() * 1000)
    before = checksum([tmp_path / "set"])
    assert checksum([tmp_path / "set"]) == before
    (tmp_path / "set" / ".hidden").write_text("of the file manager")
    assert checksum([tmp_path / "set"]) == before
    (tmp_path / "set" / "cat" / "1.png").write_bytes(b"cat/2.png" * 1000)
    os.utime(tmp_path / "set" / "cat" / "1.png", (2, 2))
    changed = checksum([tmp_path / "set"])
    assert changed != before
    (tmp_path / "set" / "cat" / "1.png").rename(tmp_path / "set" / "dog" / "1.png")
    assert checksum([tmp_path / "set"]) not in (before, changed)


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "a.csv"
    file.write_text("good,1\n")
    before = checksum([file])
    monkeypatch.setattr(module.pooch, "file_hash", lambda *arguments: pytest.fail("read again"))
    assert checksum([file]) == before
