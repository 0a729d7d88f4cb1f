"""Files of scores: what is read, what is left out with a sentence, and what is refused."""

import json

import pandas as pd
import pytest

from as_lightning.statistics.runs import Columns, runs_of
from as_lightning.statistics.score_table import numbers, read_table

ROWS = [("a|b" if half else "ü", seed, 90.5 + seed) for half in (0, 1) for seed in range(3)]
FRAME = pd.DataFrame(ROWS, columns=["candidate", "seed", "accuracy"])
COMMAS = FRAME.to_csv(index=False, sep=";", decimal=",")


def runs(path) -> list[tuple]:
    table = runs_of(read_table(path), Columns()).table
    return list(zip(table["candidate"], map(int, table["seed"]), table["score"], strict=True))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("runs.csv", FRAME.to_csv(index=False).encode()),
        ("runs.csv", FRAME.to_csv().encode()),  # with an index
        ("runs.csv", FRAME.to_csv(index=False, lineterminator="\r\n").encode("utf-8-sig")),
        ("runs.tsv", FRAME.to_csv(index=False, sep="\t").encode("utf-16")),
        ("runs.csv", f"sep=;\r\n{COMMAS}".encode("utf-16")),
        ("runs.csv", COMMAS.encode()),
        ("runs.csv", FRAME.to_csv(index=False).replace(",", ", ").encode()),
        ("runs.csv", f"\n{FRAME.to_csv(index=False)}\n,,\n".encode()),
        ("runs.json", FRAME.to_json(orient="records").encode()),
        ("runs.jsonl", FRAME.to_json(orient="records", lines=True).encode()),
    ],
)
def test_each_format_gives_the_same_runs(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert runs(tmp_path / name) == ROWS


def test_parquet_is_read_or_the_package_that_reads_it_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "runs.parquet")
    assert runs(tmp_path / "runs.parquet") == ROWS


@pytest.mark.parametrize("quote", ["", '"'])
def test_line_separators_inside_a_cell_end_no_line(tmp_path, quote):
    note = "free)\u2028 see\u0085 below\x0b\x0c"
    lines = [f"{name},{seed},{score},{quote}{note}{quote}\n" for name, seed, score in ROWS]
    text = "candidate,seed,accuracy,note\n" + "".join(lines)
    (tmp_path / "runs.csv").write_text(text, encoding="utf-8")
    assert runs(tmp_path / "runs.csv") == ROWS
    objects = [
        json.dumps(row | {"note": note}, ensure_ascii=False) for row in FRAME.to_dict("records")
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(objects), encoding="utf-8")
    assert runs(tmp_path / "runs.jsonl") == ROWS


def test_nested_objects_have_a_column_for_each_setting(tmp_path):
    rows = [
        {"config": {"opt": name, "sizes": [1, 2]}, "summary": {"acc": score}}
        for name, _, score in ROWS
    ]
    (tmp_path / "runs.json").write_text(json.dumps(rows))
    frame = read_table(tmp_path / "runs.json")
    assert list(frame) == ["config.opt", "config.sizes", "summary.acc"]
    found = runs_of(frame, Columns(candidate=["config.opt"]))
    assert found.table["score"].tolist() == FRAME["accuracy"].tolist()


def test_a_header_alone_or_once_more_is_refused(tmp_path):
    text = FRAME.to_csv(index=False)
    (tmp_path / "runs.csv").write_text("candidate,seed,accuracy\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no row"):
        runs(tmp_path / "runs.csv")
    (tmp_path / "runs.csv").write_text(text + text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"row 7: 'seed'"):
        runs(tmp_path / "runs.csv")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("runs.csv", b"", "No columns"),
        ("runs.csv", b"PK\x03\x04\xff\xfe\x00", "save a sheet as CSV"),
        ("runs.csv", b"a,b\n1,2,3\n", "does not match"),
        ("runs.csv", b"a,b\n1,2\n1,2,3\n", "line 3"),
        ("runs.csv", b'a,b\n1,"so called\n2,3\n4,5"\n', "quotation mark"),
        ("runs.csv", b'a,b\n1,"open\n2,3\n', "EOF inside string"),
        ("runs.jsonl", b'{"a": 1}\n{"a": \n', "Expecting value"),
        ("runs.json", b"[1, 2]", "dict"),
        ("runs.parquet", b"no", "runs.parquet"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read_table(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)


def test_percent_signs_and_decimal_commas_are_read_where_every_cell_has_them():
    notes = []
    values = numbers(pd.Series(["90,1 %", "", "89,9 %"], name="acc"), notes)
    assert values[[0, 2]].tolist() == [90.1, 89.9]
    assert "90,1" in notes[0]
    assert numbers(pd.Series(["inf", "NaN", None, 1e-9]), notes).count() == 1
