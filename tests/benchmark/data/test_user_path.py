"""Where a user's own file is looked for."""

from __future__ import annotations

import pytest

from as_lightning.benchmark.data.files import find_path


def test_a_relative_path_is_looked_for_in_the_working_directory_and_then_in_data_dir(tmp_path, monkeypatch):
    for folder in ("work", "data"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    in_data, in_work = tmp_path / "data" / "set.csv", tmp_path / "work" / "set.csv"
    in_data.touch()
    assert find_path("set.csv", tmp_path / "data") == in_data
    in_work.touch()
    assert find_path("set.csv", tmp_path / "data") == in_work
    assert find_path(in_data, tmp_path) == in_data


def test_a_path_that_is_in_neither_place_is_refused_with_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = rf"set.csv exists neither in the working directory \({tmp_path}\) nor in data_dir \({tmp_path}/data\)"
    with pytest.raises(FileNotFoundError, match=message):
        find_path("set.csv", tmp_path / "data")
    with pytest.raises(FileNotFoundError, match=rf"^{tmp_path}/set.csv does not exist$"):
        find_path(tmp_path / "set.csv", tmp_path / "data")


def test_a_link_that_leads_nowhere_is_named_with_its_target(tmp_path):
    (tmp_path / "set.csv").symlink_to("gone.csv")
    with pytest.raises(FileNotFoundError, match=r"set.csv is a link to gone.csv, which does not exist"):
        find_path("set.csv", tmp_path)


def test_a_home_directory_is_understood(tmp_path, monkeypatch):
    (tmp_path / "set.csv").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_path("~/set.csv", "data") == tmp_path / "set.csv"
