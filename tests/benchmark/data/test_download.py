"""Fetching files, against a real server on this machine."""

from __future__ import annotations

import hashlib

import pytest
from harness.file_server import FileServer

from as_lightning.benchmark.data.files import RemoteFile, fetch

CONTENT = b"a small data set\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def published(server) -> FileServer:
    """A server that has ``set.txt``."""
    (server.home / "set.txt").write_bytes(CONTENT)
    return server


def test_a_missing_file_is_downloaded_and_a_second_fetch_asks_nobody(published, tmp_path):
    remote = RemoteFile("set.txt", f"{published.url}/set.txt", SHA256)
    for _ in range(2):
        assert fetch(remote, tmp_path / "data").read_bytes() == CONTENT
    assert published.requests == ["/set.txt"]


def test_a_file_that_is_there_with_a_wrong_checksum_is_refused_and_kept(published, tmp_path):
    (tmp_path / "set.txt").write_bytes(b"something else")
    with pytest.raises(ValueError, match=f"wrong checksum: expected SHA-256 {SHA256}, got .*delete it"):
        fetch(RemoteFile("set.txt", f"{published.url}/set.txt", SHA256), tmp_path)
    assert (tmp_path / "set.txt").read_bytes() == b"something else"
    assert published.requests == []


def test_a_download_with_a_wrong_checksum_is_refused_and_leaves_nothing(published, tmp_path):
    with pytest.raises(ValueError, match=r"hash of downloaded file .* does not match"):
        fetch(RemoteFile("set.txt", f"{published.url}/set.txt", "0" * 64), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_download_that_breaks_off_leaves_nothing_under_the_final_name_and_can_be_tried_again(published, tmp_path):
    with pytest.raises((RuntimeError, ValueError)):
        fetch(RemoteFile("set.txt", f"{published.url}/cut/set.txt", SHA256), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
    assert fetch(RemoteFile("set.txt", f"{published.url}/set.txt", SHA256), tmp_path / "data").read_bytes() == CONTENT


def test_without_a_connection_the_error_says_where_to_put_the_file(tmp_path):
    with pytest.raises(RuntimeError, match=r"could not be downloaded .* AS_LIGHTNING_DATA"):
        fetch(RemoteFile("set.txt", "http://127.0.0.1:9/set.txt", SHA256), tmp_path)
