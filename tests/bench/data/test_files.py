"""The files of a data set: where they are or come from, what tells them from others, what is read
and refused.
"""

import hashlib
import os
import random
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.file_server import FileServer

from as_lightning.bench.data.files import FileTree, RemoteFile, checksum, fetch, find_path

FILES = {
    "b.txt": b"last",
    "a/one.bin": random.Random(1).randbytes(3000) + b"x" * 2000,
    "a/deeper/two.BIN": random.Random(2).randbytes(3000) + b"y" * 2000,
    "a/empty.txt": b"",
}
HIDDEN = [".DS_Store", "a/._one.bin", ".git/config", "a/.cache/deeper/two.bin"]
ARCHIVES = {
    ".tar": "tar",
    ".tar.gz": "gztar",
    ".tgz": "gztar",
    ".tar.bz2": "bztar",
    ".tar.xz": "xztar",
    ".zip": "zip",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {**FILES, **dict.fromkeys(HIDDEN, b"hidden")}.items():
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "set"


def packed(folder: Path, ending: str, inner: str = ".") -> Path:
    """An archive of what lies in ``inner`` of the folder."""
    made = shutil.make_archive(str(folder.with_name("made")), ARCHIVES[ending], folder, inner)
    return Path(made).rename(folder.with_name(f"set{ending}"))


def contents(path: Path) -> dict[str, bytes]:
    tree = FileTree(path)
    return {name: tree.read(name) for name in tree.names}


@pytest.mark.parametrize("ending", ARCHIVES)
@pytest.mark.parametrize("inner", [".", "a"])
def test_a_folder_lists_its_files_in_order_without_the_hidden_ones_and_an_archive_of_it_too(
    folder, ending, inner
):
    archive = packed(folder, ending, inner)
    assert FileTree(folder).names == sorted(FILES)
    assert contents(folder) == FILES
    shutil.rmtree(folder)
    assert contents(archive) == {
        name: FILES[name] for name in FILES if inner == "." or name.startswith("a/")
    }
    assert [path.name for path in archive.parent.iterdir()] == [
        archive.name
    ]  # nothing was unpacked beside it


def test_links_that_lead_nowhere_or_in_a_loop_are_named_and_not_followed(folder, tmp_path):
    for name, other in (
        ("left", "right"),
        ("right", "left"),
    ):  # a loop outside the folder is followed once
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_bytes(b"")
        (tmp_path / name / "loop").symlink_to(tmp_path / other)
    links = {"linked": tmp_path / "left", "again": "a/deeper", "a/gone.txt": "nothing.txt"}
    links |= {"a/itself": folder / "a", "a/above": tmp_path, "a/root": ".."}
    for link, target in links.items():
        (folder / link).symlink_to(target)
    with pytest.warns(UserWarning, match=r"set: 6 links are not followed: ") as warned:
        assert FileTree(folder).names == sorted(
            [*FILES, "linked/left.txt", "linked/loop/right.txt"]
        )
    assert "a/above (a link to " in str(warned[0].message)
    assert "gone.txt (a link to nothing.txt, which does not exist)" in str(warned[0].message)


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.txt", "b.txt", "a"])
def test_a_link_in_an_archive_is_refused_by_name(folder, target):
    with zipfile.ZipFile(folder / "set.zip", "w") as archive:
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16  # as zip --symlinks stores it
        archive.writestr(link, target)
    with pytest.raises(ValueError, match=r"set.zip/link.txt is a link: pack the files themselves"):
        FileTree(folder / "set.zip")
    (folder / "link.txt").symlink_to(target)
    with pytest.raises(
        ValueError, match=r"set.tar.gz/link.txt is a link: pack the files themselves"
    ):
        FileTree(packed(folder, ".tar.gz"))
    (folder / "link.txt").unlink()
    os.link(folder / "b.txt", folder / "hard.txt")
    with pytest.raises(ValueError, match=r"set.tar/(b|hard).txt is a link: .*--hard-dereference"):
        FileTree(packed(folder, ".tar"))


def cut(content: bytes) -> Iterator[bytes]:
    return (content[:end] for end in range(0, len(content), max(1, len(content) // 40)))


def with_a_byte_changed(content: bytes) -> Iterator[bytes]:
    for place in range(0, len(content), max(1, len(content) // 60)):
        yield content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


# a bare .tar has no checksums of its files' contents: what is changed in there cannot be seen
@pytest.mark.parametrize(
    ("damage", "ending", "least"),
    [*((cut, ending, 10) for ending in ARCHIVES)]
    + [(with_a_byte_changed, ending, 30) for ending in (".tar.gz", ".tar.bz2", ".tar.xz", ".zip")],
)
def test_an_archive_that_is_cut_or_changed_anywhere_is_refused_or_whole(
    folder, damage, ending, least
):
    archive = packed(folder, ending)
    refused = 0
    for content in damage(archive.read_bytes()):
        archive.write_bytes(content)
        try:
            found = contents(archive)
        except ValueError as error:
            assert f"{archive}: the archive is damaged (" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert found == FILES  # what was cut off is padding, what was changed is a date, say
    assert refused > least


def test_a_relative_path_is_looked_for_in_the_working_directory_and_then_in_data_dir(
    tmp_path, monkeypatch
):
    work, data = tmp_path / "work", tmp_path / "data"
    for folder in (work, data):
        folder.mkdir()
    monkeypatch.chdir(work)
    (data / "set.csv").touch()
    assert find_path("set.csv", data) == data / "set.csv"
    (work / "set.csv").touch()
    assert find_path("set.csv", data) == work / "set.csv"
    assert find_path(data / "set.csv", tmp_path) == data / "set.csv"
    (tmp_path / "2024").mkdir()
    assert find_path(2024, tmp_path) == tmp_path / "2024"  # as Hydra reads data.path=2024
    with pytest.raises(ValueError, match=r"is null: set data.path"):
        find_path(None, data)
    with pytest.raises(
        FileNotFoundError,
        match=rf"there is no {work}/b.csv and no {data}/b.csv: give its full path",
    ):
        find_path("b.csv", data)
    with pytest.raises(FileNotFoundError, match=rf"^there is no {tmp_path}/b.csv: give"):
        find_path(tmp_path / "b.csv", data)


def test_files_and_folders_are_told_by_names_and_contents_and_not_by_time_or_place(
    tmp_path, monkeypatch
):
    def written(name: str, content: bytes, time: int) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time, time))  # a clock of the file system ticks every few milliseconds
        return checksum([path])

    one = written("a.csv", b"good,1\n", 1)
    assert written("b.csv", b"good,1\n", 2) == one
    assert written("b.csv", b"good,0\n", 3) != one
    assert checksum([tmp_path / "a.csv", tmp_path / "b.csv"]) != checksum(
        [tmp_path / "b.csv", tmp_path / "a.csv"]
    )

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
    monkeypatch.setattr("pooch.file_hash", lambda *arguments: pytest.fail("read again"))
    assert checksum([folder]) == digests[2]


CONTENT = b"a small data set\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def remote(server: FileServer, checksum: str = SHA256, below: str = "") -> RemoteFile:
    (server.home / "set.txt").write_bytes(CONTENT)
    return RemoteFile("set.txt", f"{server.url}/{below}set.txt", checksum)


def test_a_missing_file_is_downloaded_once_and_read_from_a_folder_that_cannot_be_written(
    server, tmp_path
):
    file = remote(server)
    assert fetch(file, tmp_path / "data").read_bytes() == CONTENT
    (tmp_path / "data").chmod(0o555)
    assert fetch(file, tmp_path / "data").read_bytes() == CONTENT
    assert server.requests == ["/set.txt"]


def test_a_file_that_is_there_with_a_wrong_checksum_is_refused_and_kept(server, tmp_path):
    (tmp_path / "set.txt").write_bytes(b"something else")
    with pytest.raises(
        ValueError, match=f"wrong checksum: expected SHA-256 {SHA256}, got .*delete it"
    ):
        fetch(remote(server), tmp_path)
    assert (tmp_path / "set.txt").read_bytes() == b"something else"
    assert server.requests == []


@pytest.mark.parametrize(
    ("wrong", "message"), [({"checksum": "0" * 64}, "not match"), ({"below": "cut/"}, None)]
)
def test_a_wrong_or_broken_download_leaves_nothing_and_can_be_tried_again(
    server, tmp_path, wrong, message
):
    with pytest.raises((RuntimeError, ValueError), match=message):
        fetch(remote(server, **wrong), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
    assert fetch(remote(server), tmp_path / "data").read_bytes() == CONTENT
    with pytest.raises(
        RuntimeError, match=r"could not be downloaded .* AS_LIGHTNING_DATA"
    ):  # without a connection
        fetch(RemoteFile("set.txt", "http://127.0.0.1:9/set.txt", SHA256), tmp_path)
