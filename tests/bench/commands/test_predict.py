"""The labels of new data, by the best checkpoint of a finished run."""

import shutil
import sys

import pandas as pd
import pytest
from harness.made_files import write_images, write_table

from as_lightning.bench.commands.predict import main, predict
from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.settings import SettingError
from as_lightning.bench.run.train import train

SPLITS = ("train", "validation", "test")
SETTINGS = ("trainer.max_epochs=3", "logger=none", "optimizer.lr=1e-2")


@pytest.fixture(autouse=True)
def working_directory(tmp_path_factory, monkeypatch):
    """Where predictions are written, unless an output is named."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def texts(composed, tmp_path):
    """A run on texts, its folder and its file."""
    write_table(tmp_path / "reviews.csv", {"good": 20, "bad": 20})
    train(composed("data=text_file", f"data.path={tmp_path / 'reviews.csv'}", *SETTINGS))
    return tmp_path / "run"


def test_texts_get_the_class_names_that_the_run_gives_them_in_its_test(
    texts, tmp_path, monkeypatch
):
    tested = Predictions.read(texts).table
    new, output = tmp_path / "new.csv", tmp_path / "labels.csv"
    tested[["example"]].rename(columns={"example": "review"}).to_csv(new, index=False)
    words = [str(texts), f"data.path={new}", "data.text_column=review", f"output={output}"]
    monkeypatch.setattr(sys, "argv", ["as-lightning-predict", *words])
    main()
    found = pd.read_csv(output)
    assert list(found) == ["example", "predicted"]
    assert found["predicted"].tolist() == tested["predicted"].tolist()
    with pytest.raises(ValueError, match=r"'text', there are 'review' .*data.text_column"):
        predict(texts, [f"data.path={new}"])
    with pytest.raises(SettingError, match=r"no data.text_colum: did you mean data.text_column"):
        predict(texts, [f"data.path={new}", "data.text_colum=review"])
    with pytest.raises(SettingError, match=r"there is no .*none.csv"):
        predict(texts, ["data.path=none.csv"])
    write_table(tmp_path / "reviews.csv", {"fine": 20, "bad": 20})
    with pytest.raises(SettingError, match="made with another data"):
        predict(texts, [f"data.path={new}", "data.text_column=review"])


def test_new_texts_are_read_as_the_runs_own_without_header_in_its_encoding(composed, tmp_path):
    rows = [f"{word},{word} caf\u00e9 film {row}" for word in ("good", "bad") for row in range(20)]
    own, new = tmp_path / "own.csv", tmp_path / "new.csv"
    own.write_bytes("\n".join(rows).encode("cp1252"))
    new.write_bytes(",a good \u20ac film\n,so bad".encode("cp1252"))
    form = ("data.columns=[label,text]", "data.encoding=cp1252")
    train(composed("data=text_file", f"data.path={own}", *form, *SETTINGS))
    found = pd.read_csv(predict(tmp_path / "run", [f"data.path={new}"]))
    assert found["example"].tolist() == ["a good \u20ac film", "so bad"]


def test_words_of_new_sentences_get_tags(composed, tmp_path):
    lines = {"Ann B-P\nruns O\n\n": 30, "big O\nParis B-L\nis O\n\n": 30}
    text = "".join(sentence * count for sentence, count in lines.items())
    for name in SPLITS:
        (tmp_path / f"{name}.conll").write_text(text)
    keys = {"path": "train", "validation_path": "validation", "test_path": "test"}
    places = [f"data.{key}={tmp_path}/{name}.conll" for key, name in keys.items()]
    train(composed("experiment=conll", *places, *SETTINGS, "trainer.max_epochs=10"))
    (tmp_path / "new.txt").write_text("\ufeffAnn runs\n\nbig Paris is\n", encoding="utf-8")
    output = predict(tmp_path / "run", [f"data.path={tmp_path / 'new.txt'}"])
    tested = Predictions.read(tmp_path / "run").table
    expected = tested[tested["example"].isin(["0", "30"])][["token", "predicted"]]
    found = pd.read_csv(output)
    assert found["example"].tolist() == [0, 0, 1, 1, 1]
    assert found[["token", "predicted"]].to_numpy().tolist() == expected.to_numpy().tolist()


def test_images_of_a_folder_get_classes_by_their_names(composed, tmp_path):
    write_images(tmp_path / "images", {f"{s}/{c}": 4 for s in SPLITS for c in ("cat", "dog")})
    settings = ("experiment=image_folder", f"data.path={tmp_path / 'images'}", *SETTINGS)
    train(composed(*settings, "model=small_cnn"))
    output = predict(tmp_path / "run", [f"data.path={tmp_path / 'images' / 'test'}"])
    tested = Predictions.read(tmp_path / "run").table
    found = pd.read_csv(output)
    assert len(found) == len(tested) == 8
    tested["example"] = tested["example"].str.removeprefix("test/")
    both = found.merge(tested, on="example")
    assert len(both) == 8
    assert (both["predicted_x"] == both["predicted_y"]).all()
    new = shutil.copytree(tmp_path / "images" / "test", tmp_path / "new")
    (new / "._of_a_mac.png").write_text("no image")
    assert len(pd.read_csv(predict(tmp_path / "run", [f"data.path={new}"]))) == 8
    (new / "cut.png").write_text("no image")
    with pytest.raises(ValueError, match=r"^cut\.png: no readable image"):
        predict(tmp_path / "run", [f"data.path={new}"])
