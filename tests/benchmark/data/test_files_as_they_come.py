"""Every reader takes files as other systems write them: encodings, marks, line ends, capitals, forms of Unicode."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path

import pytest
from harness.data_settings import IMAGES, PLAIN, TEXT
from harness.made_files import write_images

from as_lightning.benchmark.data.image.image_folder import ImageFolder
from as_lightning.benchmark.data.text.tagging import Conll, read_conll
from as_lightning.benchmark.data.text.text_file import TextFile, read_table

ROWS = [("Größe", "a"), ("two", "b")]
TABLES = {
    "csv": "text,label\nGröße,a\ntwo,b\n",
    "TSV": "text\tlabel\nGröße\ta\ntwo\tb\n",
    "jsonl": '{"text": "Größe", "label": "a"}\n{"text": "two", "label": "b"}\n',
    "JSONL": '{"text": "Größe", "label": "a"}\n{"text": "two", "label": "b"}',
    "conll": "Größe B-a\n\ntwo B-b\n",
}
NFC, NFD = "Café", unicodedata.normalize("NFD", "Café")


def rows(path: Path, encoding: str | None) -> list[tuple[str, ...]]:
    if path.suffix == ".conll":
        return [
            (*row.words, *(tag.removeprefix("B-") for tag in row.tags)) for row in read_conll(path, encoding=encoding)
        ]
    return [tuple(row) for row in read_table(path, "text", "label", encoding=encoding)]


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("encoding", [None, "utf-8", "utf8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.bug_report("benhoyt/goawk#126", "A byte-order mark becomes a part of the first column's name.")
def test_a_text_file_is_read_in_any_encoding_with_and_without_a_mark_and_with_any_line_ends(
    tmp_path, ending, encoding, line_end
):
    path = tmp_path / f"set.{ending}"
    for mark in ("", "\ufeff"):
        if encoding == "latin-1" and mark:
            continue  # has none
        path.write_bytes((mark + TABLES[ending]).replace("\n", line_end).encode(encoding or "utf-8"))
        assert rows(path, encoding) == ROWS


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_named_with_its_line_and_one_that_nobody_knows_too(tmp_path, ending, encoding):
    path = tmp_path / f"set.{ending}"
    path.write_bytes(TABLES[ending].encode(encoding))
    line = 1 + (encoding == "latin-1" and ending in ("csv", "TSV"))  # behind the header
    with pytest.raises(ValueError, match=rf"set.{ending}:{line}: .* not UTF-8: set data.encoding \(perhaps {encoding}"):
        rows(path, None)
    with pytest.raises(ValueError, match=r"encoding='utf-9' is not known: expected one like"):
        rows(path, "utf-9")


def test_two_forms_of_a_label_are_one_class_and_of_a_column_one_column_and_of_a_tag_one_tag(tmp_path):
    lines = [f"text {number},{(NFC, NFD, 'b')[number % 3]}\n" for number in range(40)]
    (tmp_path / "set.csv").write_text(f"text,{NFD}\n" + "".join(lines))
    texts = TextFile("set.csv", label_column=NFC, data_dir=tmp_path, **TEXT)
    for split in ("train", "validation", "test"):
        (tmp_path / split).write_text(f"a B-{NFC if split == 'train' else NFD}\nb O\n")
    tags = Conll("train", "validation", "test", data_dir=tmp_path, **TEXT)
    for data, names in ((texts, [NFC, "b"]), (tags, [f"B-{NFC}", "O"])):
        data.setup()
        assert data.class_names == names


@pytest.mark.parametrize("packed", [None, "zip", "tar"])
def test_a_folder_of_images_is_read_whatever_the_forms_and_capitals_of_its_names(tmp_path, packed):
    root = tmp_path / "set"
    write_images(root, {f"Train/{NFC}": 10, f"TEST/{NFD}": 4, f"Train/{NFD}": 8, "Train/dog": 9, "TEST/dog": 3})
    for path in root.rglob("00*.png"):
        path.rename(path.with_suffix(".PNG"))
    if packed:
        root = Path(shutil.make_archive(str(tmp_path / "packed"), packed, root))
        root = root.rename(root.with_suffix(root.suffix.upper()))
    data = ImageFolder(root, **IMAGES, **PLAIN)
    data.setup()
    assert data.class_names == [NFC, "dog"]
    assert [data.splits[split].targets.bincount().tolist() for split in data.splits] == [[16, 8], [2, 1], [4, 3]]
    assert all(unicodedata.is_normalized("NFC", name) for name in data.example_names("test"))


def test_quotation_marks_are_text_where_the_setting_says_so(tmp_path):
    (tmp_path / "set.tsv").write_text('text\tlabel\n"quoted" twice"\t"a"\nsaid "b\tb\n')
    found = read_table(tmp_path / "set.tsv", "text", "label", quotes=False)
    assert found == [('"quoted" twice"', '"a"'), ('said "b', "b")]
