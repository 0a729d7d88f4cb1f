"""Every reader takes files as other systems write them, and names the file and the line of what it
cannot read.
"""

import io
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from harness.data_settings import IMAGES, PLAIN, TEXT
from harness.made_files import encoded, write_images

from as_lightning.bench.data.audio_folder import decode_clip
from as_lightning.bench.data.image_folder import ImageFolder, decode_image
from as_lightning.bench.data.text.conll import read_conll
from as_lightning.bench.data.text.tagging import Conll
from as_lightning.bench.data.text.text_file import TextFile, read_table

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
            (*row.words, *(tag.removeprefix("B-") for tag in row.tags))
            for row in read_conll(path, 0, -1, encoding)
        ]
    return [tuple(row) for row in read_table(path, "text", "label", encoding=encoding)]


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize(
    "encoding", [None, "utf-8", "utf8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"]
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.bug_report(
    "benhoyt/goawk#126", "A byte-order mark becomes a part of the first column's name."
)
def test_a_text_file_is_read_in_any_encoding_with_and_without_a_mark_and_with_any_line_ends(
    tmp_path, ending, encoding, line_end
):
    path = tmp_path / f"set.{ending}"
    for mark in ("",) if encoding == "latin-1" else ("", "\ufeff"):
        path.write_bytes(
            (mark + TABLES[ending]).replace("\n", line_end).encode(encoding or "utf-8")
        )
        assert rows(path, encoding) == ROWS


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_named_with_its_line(tmp_path, ending, encoding):
    path = tmp_path / f"set.{ending}"
    path.write_bytes(TABLES[ending].encode(encoding))
    line = 1 + (encoding == "latin-1" and ending in ("csv", "TSV"))  # behind the header
    message = rf"set.{ending}:{line}: .* set data.encoding \(perhaps {encoding}"
    with pytest.raises(ValueError, match=message):
        rows(path, None)


def test_an_encoding_that_python_lacks_is_named(tmp_path):
    (tmp_path / "x.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match=r"data\.encoding=ansi is no encoding of Python's"):
        read_table(tmp_path / "x.csv", encoding="ansi")


def test_two_forms_of_a_name_are_one_class_one_column_and_one_tag(tmp_path):
    lines = [f"text {number},{(NFC, NFD, 'b')[number % 3]}\n" for number in range(40)]
    (tmp_path / "set.csv").write_text(f"text,{NFD}\n" + "".join(lines))
    texts = TextFile("set.csv", label_column=NFC, data_dir=tmp_path, **TEXT)
    for split in ("train", "validation", "test"):
        (tmp_path / split).write_text(f"a B-{NFC if split == 'train' else NFD}\nb O\n")
    tags = Conll("train", "validation", "test", data_dir=tmp_path, **TEXT)
    for data, names in ((texts, [NFC, "b"]), (tags, [f"B-{NFC}", "O"])):
        data.setup()
        assert data.class_names == names


def test_a_folder_of_images_is_read_whatever_the_forms_and_capitals_of_its_names(tmp_path):
    root = tmp_path / "set"
    write_images(
        root,
        {f"Train/{NFC}": 10, f"TEST/{NFD}": 4, f"Train/{NFD}": 8, "Train/dog": 9, "TEST/dog": 3},
    )
    for path in root.rglob("00*.png"):
        path.rename(path.with_suffix(".PNG"))
    data = ImageFolder(root, **IMAGES, **PLAIN)
    data.setup()
    assert data.class_names == [NFC, "dog"]
    assert [data.splits[split].targets.bincount().tolist() for split in data.splits] == [
        [16, 8],
        [2, 1],
        [4, 3],
    ]
    assert all(unicodedata.is_normalized("NFC", name) for name in data.example_names("test"))


def wav(samples: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.array(samples), 8000, format="WAV", subtype="FLOAT")
    return file.getvalue()


READERS = {
    "table": lambda path: read_table(path, "text", "label"),
    "conll": lambda path: Conll(path, path, path, **TEXT).setup(),
    "conll, column 2": lambda path: Conll(path, path, path, tag_column=2, **TEXT).setup(),
    "clip": lambda path: decode_clip(path.read_bytes()),
    "image": lambda path: decode_image(path.read_bytes()),
}
CSV = "text,label\n"


@pytest.mark.parametrize(
    ("reader", "name", "content", "message"),
    [
        ("table", "a.csv", CSV + "a,b\n,b\n ,b\n", "2 of 3 rows .* row 2: .*data.drop_blank"),
        ("table", "a.csv", CSV + "a\n", "1 of 1 rows lack a text or a label"),
        ("table", "a.jsonl", '{"text": "a", "label": null}\n', "1 of 1 rows lack"),
        ("table", "a.jsonl", '{"text": "a", "label": ["b"]}\n', "one value, .*label_separator"),
        ("table", "a.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "a.jsonl: .*: line 2 column"),
        ("table", "a.csv", "label,text,label\na,b,c\n", "expected one column 'label'"),
        ("table", "a.csv", CSV + "a,b,c\n", "a.csv: .*line 2, saw 3"),
        ("table", "a.csv", CSV + '"a,b\n', "a.csv: .*inside string .*data.quotes=false"),
        (
            "table",
            "a.csv",
            "text;label\na;b\n",
            "one column 'text', .*'text;label' .*data.separator",
        ),
        ("table", "a.csv", CSV, "a.csv: expected rows of texts and labels, got none"),
        ("table", "a.csv", "", "a.csv: No columns"),
        ("table", "a.doc", "", "a.doc: expected a file that ends in .csv, .tsv"),
        ("conll", "a", "a\tI-x\n\nb\tI-x\n\nc\tB-x\n", "the tags are IOB1 .2 entities"),
        ("conll", "a", "a\tS-x\n", "forms BIOES and BILOU"),
        ("conll", "a", "a O Det\nb B-x Noun\n", "set data.tag_column=1"),
        ("conll, column 2", "a", "a NN O\nb O\n", "a:2: .* column 0 .* column 2, got 'b O'"),
        ("conll", "a", "a\tO\nb\tX-loc\n", r"a:2: expected .* a tag .* got 'b\\tX-loc'"),
        ("conll", "a", "", "a: expected sentences in columns, found none"),
        ("conll", "a", "no O\nname O\n", "expected at least 2 classes, found O"),
        ("clip", "a", "not audio at all" * 100, "no readable audio"),
        ("clip", "a", wav([0.0] * 9)[:30], "no readable audio"),
        ("clip", "a", wav([]), "no samples"),
        ("clip", "a", wav([float("nan")] * 9), "samples that are not finite"),
        ("clip", "a", wav([[0.5, -0.5]] * 9), "cancel out to silence: give one channel"),
        ("image", "a", encoded(np.ones((6, 6), np.uint16), "png"), "convert it to 8 bits"),
        ("image", "a", encoded(np.ones((6, 6), np.float32), "tiff"), "convert it to 8 bits"),
    ],
    ids=lambda value: "binary" if isinstance(value, bytes) else None,  # some bytes are of the time
)
def test_what_cannot_be_read_is_named_with_file_and_line(tmp_path, reader, name, content, message):
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=message):
        READERS[reader](tmp_path / name)


@pytest.mark.parametrize("ending", ["jpeg", "png", "bmp", "webp", "tiff"])
def test_an_image_that_is_cut_short_is_refused(ending):
    content = encoded(
        np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8), ending
    )
    assert decode_image(content).shape == (3, 50, 50)
    for share in (0.0, 0.01, 0.5, 0.9):
        with pytest.raises(ValueError, match=r"\w"):
            decode_image(content[: round(share * len(content))])
