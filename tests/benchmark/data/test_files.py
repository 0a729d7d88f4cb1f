"""The files of a data set: where they are or come from, what tells them from others, what is read and refused."""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.file_server import FileServer

from as_lightning.benchmark.data.files import FileTree, RemoteFile, checksum, fetch, find_path

FILES = {
    "b.txt": b"last",
    "a/one.bin": random.Random(1).randbytes(3000) + b"x" * 2000,
    "a/deeper/two.BIN": random.Random(2).randbytes(3000) + b"y" * 2000,
    "a/empty.txt": b"",
}
HIDDEN = [".DS_Store", "a/._one.bin", ".git/config", "a/.cache/deeper/two.bin"]
ARCHIVES = {".tar": "tar", ".tar.gz": "gztar", ".tgz": "gztar", ".tar.bz2": "bztar", ".tar.xz": "xztar", ".zip": "zip"}


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
def test_a_folder_lists_its_files_in_order_without_the_hidden_ones_and_an_archive_of_it_too(folder, ending, inner):
    archive = packed(folder, ending, inner)
    assert FileTree(folder).names == sorted(FILES)
    assert contents(folder) == FILES
    shutil.rmtree(folder)
    assert contents(archive) == {name: FILES[name] for name in FILES if inner == "." or name.startswith("a/")}
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]  # nothing was unpacked beside it


def test_links_that_lead_nowhere_into_the_folder_or_to_one_that_holds_it_are_named_and_not_followed(folder):
    (folder / "a" / "itself").symlink_to(folder / "a")
    (folder / "a" / "above").symlink_to(folder.parent)
    (folder / "a" / "root").symlink_to("..")
    (folder / "again").symlink_to("a/deeper")
    with pytest.warns(UserWarning, match=r"set: 4 links are not followed: .*a/above \(a link to .*part of the folder"):
        assert contents(folder) == FILES
    (folder / "a" / "gone.txt").symlink_to("nothing.txt")
    with pytest.warns(UserWarning, match=r"gone.txt \(a link to nothing.txt, which does not exist\)"):
        FileTree(folder)


def test_a_loop_of_links_outside_the_folder_is_followed_once(folder, tmp_path):
    for name, other in (("left", "right"), ("right", "left")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_bytes(b"")
        (tmp_path / name / "loop").symlink_to(tmp_path / other)
    (folder / "linked").symlink_to(tmp_path / "left")
    with pytest.warns(UserWarning, match=r"1 links are not followed"):
        assert FileTree(folder).names == sorted([*FILES, "linked/left.txt", "linked/loop/right.txt"])


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.txt", "b.txt", "a"])
def test_a_link_in_an_archive_is_refused_by_name(folder, target):
    (folder / "link.txt").symlink_to(target)
    with pytest.raises(ValueError, match=r"set.tar.gz/link.txt is a link: pack the files themselves"):
        FileTree(packed(folder, ".tar.gz"))
    link = zipfile.ZipInfo("link.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16  # as zip --symlinks stores it
    with zipfile.ZipFile(folder / "set.zip", "w") as archive:
        archive.writestr(link, target)
    with pytest.raises(ValueError, match=r"set.zip/link.txt is a link: pack the files themselves"):
        FileTree(folder / "set.zip")


def test_a_hard_link_in_an_archive_is_refused_by_name(folder):
    os.link(folder / "b.txt", folder / "hard.txt")
    with pytest.raises(ValueError, match=r"set.tar/(b|hard).txt is a link: .*--hard-dereference"):
        FileTree(packed(folder, ".tar"))


def test_an_encrypted_zip_is_named_as_such(tmp_path):
    # an entry whose flags say that it is encrypted, in the local header and in the directory
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", b"secret")
    content = bytearray(file.getvalue())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "set.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"set.zip: File 'a.txt' is encrypted.*: unpack the archive"):
        FileTree(tmp_path / "set.zip")


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
def test_an_archive_that_is_cut_or_changed_anywhere_is_refused_or_whole(folder, damage, ending, least):
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


@pytest.mark.parametrize("name", ["set.rar", "set.gz", "set"])
def test_a_file_that_is_no_archive_is_refused_by_its_ending(tmp_path, name):
    (tmp_path / name).write_bytes(b"content")
    with pytest.raises(ValueError, match=rf"{name}: expected a folder or a .tar, .tar.gz"):
        FileTree(tmp_path / name)


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
    (tmp_path / "2024").mkdir()
    assert find_path(2024, tmp_path) == tmp_path / "2024"  # as Hydra reads data.path=2024
    with pytest.raises(ValueError, match=r"is null: set data.path"):
        find_path(None, tmp_path)
    message = rf"there is no {tmp_path}/work/b.csv and no {tmp_path}/data/b.csv: give its full path"
    with pytest.raises(FileNotFoundError, match=message):
        find_path("b.csv", tmp_path / "data")
    with pytest.raises(FileNotFoundError, match=rf"^there is no {tmp_path}/b.csv: give"):
        find_path(tmp_path / "b.csv", tmp_path / "data")


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


def test_a_folder_is_told_by_the_names_and_contents_of_its_files(tmp_path: Path) -> None:
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
    monkeypatch.setattr("pooch.file_hash", lambda *arguments: pytest.fail("read again"))
    assert checksum([file]) == before


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
