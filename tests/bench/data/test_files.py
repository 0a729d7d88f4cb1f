"""The files of a data set: where they are or come from, what tells them from others, what is
refused.
"""

import hashlib
import os

import pytest
from harness.file_server import FileServer

from as_lightning.bench.data.files import checksum, files_below, find_file
from as_lightning.bench.data.reading import collected_readings


def test_the_files_of_a_folder_come_in_order_without_hidden_ones_and_links_are_followed(tmp_path):
    names = ["b.txt", "a/one.txt", "a/deeper/two.TXT"]
    hidden = [".x.txt", "a/._one.txt", ".git/c.txt", "__MACOSX/._one.txt"]
    for name in [*names, *hidden, "a/notes.md"]:
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_text(name)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "three.txt").touch()
    (tmp_path / "set" / "linked").symlink_to(tmp_path / "other")
    with collected_readings() as readings:
        found = files_below(tmp_path / "set", (".txt",))
    assert found == ["a/deeper/two.TXT", "a/one.txt", "b.txt", "linked/three.txt"]
    assert [(one.count, one.total) for one in readings] == [(1, 5)]


@pytest.mark.parametrize(
    ("name", "message"),
    [("set.zip", "unpack the archive first"), ("empty", "files that end in .txt, found none")],
)
def test_an_archive_and_a_folder_without_such_files_are_refused(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "set.zip").touch()
    with pytest.raises(ValueError, match=message):
        files_below(tmp_path / name, (".txt",))


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "caf\udce9.txt").touch()
    checksum([tmp_path])
    with pytest.raises(ValueError, match=r"rename what cannot be printed: 'caf\\udce9.txt'"):
        files_below(tmp_path, (".txt",))


def test_a_relative_path_is_of_the_working_directory_or_of_data_dir(tmp_path, monkeypatch):
    work, data = tmp_path / "work", tmp_path / "data"
    for folder in (work, data):
        folder.mkdir()
    monkeypatch.chdir(work)
    (data / "set.csv").touch()
    assert find_file("set.csv", data) == data / "set.csv"
    (work / "set.csv").touch()
    assert find_file("set.csv", data) == work / "set.csv"
    assert find_file(data / "set.csv", tmp_path) == data / "set.csv"
    (tmp_path / "2024").mkdir()
    assert find_file(2024, tmp_path) == tmp_path / "2024"  # as Hydra reads data.path=2024
    with pytest.raises(FileNotFoundError, match=rf"no {work}/b.csv and no {data}/b.csv: give"):
        find_file("b.csv", data)
    with pytest.raises(FileNotFoundError, match=rf"^there is no {tmp_path}/b.csv: give"):
        find_file(tmp_path / "b.csv", data)


def test_files_and_folders_are_told_by_names_and_contents(tmp_path):
    def written(name: str, content: bytes, time: int) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time, time))  # a clock of the file system ticks every few milliseconds
        return checksum([path])

    one = written("a.csv", b"good,1\n", 1)
    assert written("b.csv", b"good,1\n", 2) == one
    assert written("b.csv", b"good,0\n", 3) != one
    both = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert checksum(both) != checksum(both[::-1])

    folder = tmp_path / "set"
    written("set/cat/1.png", b"one", 1)
    written("set/dog/2.png", b"two", 1)
    digests = [checksum([folder])]
    written("set/.hidden", b"of the file manager", 1)
    assert checksum([folder]) == digests[0]
    written("set/cat/1.png", b"another", 2)
    digests.append(checksum([folder]))
    (folder / "cat" / "1.png").rename(folder / "dog" / "1.png")
    digests.append(checksum([folder]))
    assert len(set(digests)) == 3


CONTENT = b"a small data set\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def remote(server: FileServer, checksum: str = SHA256, below: str = "") -> dict[str, str]:
    (server.home / "set.txt").write_bytes(CONTENT)
    return {"name": "set.txt", "url": f"{server.url}/{below}set.txt", "checksum": checksum}


def test_a_missing_file_is_downloaded_once_and_read_from_a_read_only_folder(server, tmp_path):
    file = remote(server)
    assert find_file(file, tmp_path / "data").read_bytes() == CONTENT
    (tmp_path / "data").chmod(0o555)
    assert find_file(file, tmp_path / "data").read_bytes() == CONTENT
    assert server.requests == ["/set.txt"]


def test_a_file_that_is_there_with_a_wrong_checksum_is_downloaded_again(server, tmp_path):
    (tmp_path / "set.txt").write_bytes(b"cut short")
    assert find_file(remote(server), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("wrong", "message"), [({"checksum": "0" * 64}, "not match"), ({"below": "cut/"}, None)]
)
def test_a_broken_download_leaves_nothing_and_can_be_tried_again(server, tmp_path, wrong, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        find_file(remote(server, **wrong), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
    assert find_file(remote(server), tmp_path / "data").read_bytes() == CONTENT
    unreachable = remote(server) | {"url": "http://127.0.0.1:9/set.txt"}
    with pytest.raises(RuntimeError, match=r"could not be downloaded .* AS_LIGHTNING_DATA"):
        find_file(unreachable, tmp_path)
