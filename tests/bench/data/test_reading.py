"""What reading changes is said with its count and its setting, and right values come of hard files."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from harness.data_settings import AUDIO, IMAGES, TEXT
from harness.made_files import encoded, tone, write_clip, write_images, write_table
from PIL import Image

from as_lightning.bench.data.audio_folder import AudioFolder, decode_clip
from as_lightning.bench.data.base import BenchmarkDataModule, check_processes_of_test
from as_lightning.bench.data.files import read_text
from as_lightning.bench.data.image_folder import ImageFolder
from as_lightning.bench.data.reading import Reading, said_of
from as_lightning.bench.data.text.tagging import Conll
from as_lightning.bench.data.text.text_file import TextFile
from as_lightning.bench.run.train import train

LONG = " ".join(["word"] * 99)
HALF_LONG = [f"{LONG if number % 2 else 'short'} {number},{number % 4 < 2}" for number in range(40)]
HALF_CAPITALS = [f"{'A' if number % 2 else 'a'} {number},{number % 4 < 2}" for number in range(40)]
IN_TWO_SPLITS = [f"{number % 20},{number % 4 < 2}" for number in range(200)]
NAMES = ["pos", "Pos", "neg", "ne\u200bg"]
ALIKE = [f"text {number},{NAMES[number % 4]}" for number in range(80)]
QUOTED = [f'"text\n {number}",{number % 2}' for number in range(40)]
HEADERS = [*(f"text {number},{number % 2}" for number in range(40)), "text,label"]
BLANK = [*(f"text {number},{number % 2}" for number in range(40)), ",1"]
TAIL = [f"text {number},{'a' if number < 150 else 'b'}" for number in range(162)]
REPEATS = [f"a B-x\nb{number % 3} O\n" for number in range(9)]


def texts(rows: list[str], **settings: object) -> Callable[[Path], BenchmarkDataModule]:
    def make(folder: Path) -> BenchmarkDataModule:
        (folder / "set.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
        return TextFile(folder / "set.csv", **(TEXT | settings))

    return make


def clips(**settings: object) -> Callable[[Path], BenchmarkDataModule]:
    def make(folder: Path) -> BenchmarkDataModule:
        for number in range(20):
            clip = tone(300 + number, rate=16_000, seconds=1.0)
            sound = torch.stack([clip, clip], dim=1)
            write_clip(folder / "ab"[number % 2] / f"{number}.wav", sound, 16_000)
        return AudioFolder(folder, **(AUDIO | settings))

    return make


def images(
    pixels: np.ndarray | Image.Image, **options: object
) -> Callable[[Path], BenchmarkDataModule]:
    def make(folder: Path) -> BenchmarkDataModule:
        write_images(folder, {"cat": 20, "dog": 20})
        ending = str(options.pop("ending", "png"))
        (folder / "cat" / f"other.{ending}").write_bytes(encoded(pixels, ending, **options))
        return ImageFolder(folder, image_size=6, **IMAGES)

    return make


def tagged(folder: Path) -> BenchmarkDataModule:
    for name in ("train", "validation", "test"):
        (folder / name).write_text("\n".join(REPEATS))
    return Conll(*(folder / name for name in ("train", "validation", "test")), **TEXT)


def odd_files(folder: Path) -> BenchmarkDataModule:
    write_images(folder, {"cat": 20, "dog": 20})
    (folder / "cat" / "a.heic").touch()
    return ImageFolder(folder, **IMAGES)


GREY = np.random.default_rng(0).integers(0, 256, (6, 6), dtype=np.uint8)
CLEAR = Image.new("RGBA", (6, 6))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (texts(HALF_LONG), "texts are cut at data.max_length=64: 16 of 32 in train"),
        (texts(HALF_CAPITALS), r"texts are lower-cased \(data.lowercase\): \d+ of 32 in train"),
        (texts(IN_TWO_SPLITS), r"stand in train or validation too: \d+ of 20 in validation, 20 of"),
        (texts(ALIKE), r"class names differ in case, spaces or invisible .*: 4 of 4, .*'Pos'"),
        (texts(QUOTED), r"hold several lines in quotation marks \(data.quotes=false.*: 40 of 40"),
        (texts(HEADERS), r"repeat the header and are left out: 1 of 41"),
        (texts(BLANK, drop_blank=True), r"left out \(data.drop_blank\): 1 of 41"),
        (texts(TAIL), r"less than a tenth of the largest .*balanced_accuracy.*: 1 of 2, e.g. b"),
        (tagged, r"stand in train or validation too: 9 of 9 in validation, 9 of 9 in test"),
        (clips(), r"are longer than data.seconds=0.5, and cut: 16 of 16 in train"),
        (clips(), r"are resampled to data.sample_rate=8000: 16 of 16 in train"),
        (clips(), r"have several channels, which are averaged: 16 of 16 in train"),
        (images(GREY), r"images are converted from L to RGB: 1 of \d+ in "),
        (images(CLEAR), r"images are shown on white, where they are transparent: 1 of \d+ in "),
        (images(GREY[:4]), r"images are not square, and cropped \(data.image_size\): 1 of"),
        (images(GREY, ending="tiff", tiffinfo={262: 0}), r"images are inverted, as white is zero"),
        (odd_files, r"files of other kinds are left out: 1 of 41, e.g. cat/a.heic"),
    ],
)
def test_what_reading_changes_is_said_with_its_count_and_the_setting(tmp_path, make, said):
    data = make(tmp_path)
    data.setup()
    assert len(re.findall(said, data.summary)) == 1


def test_a_change_is_said_once_from_a_hundredth_of_a_split_on():
    few = [Reading("rows are x", count, 1000, "a", split) for count, split in ((9, "a"), (9, "b"))]
    assert said_of(few) == []
    more = [*few, Reading("rows are x", 1, 100, "c", "c")]
    assert said_of(more) == ["rows are x: 9 of 1,000 in a, 9 of 1,000 in b, 1 of 100 in c, e.g. a"]


def test_a_result_keeps_all_that_was_noted(tmp_path, composed):
    path = write_table(tmp_path / "set.csv", {"a": 200, "A": 20})
    config = composed("experiment=text_file", f"data.path={path}", "trainer.max_epochs=1")
    train(config)
    kept = json.loads((tmp_path / "run" / "result.json").read_text())["reading"]
    (alike,) = [one for one in kept if one["what"].startswith("class names differ")]
    assert (alike["count"], alike["total"]) == (2, 2)


def test_a_flac_without_a_length_is_read_whole_over_several_blocks():
    sound = tone(440, seconds=20.0).numpy()
    file = io.BytesIO()
    soundfile.write(file, sound, 8000, "PCM_16", format="FLAC")
    content = bytearray(file.getvalue())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    content[26:42] = bytes(16)
    waveform, rate = decode_clip(bytes(content))
    assert rate == 8000
    np.testing.assert_allclose(waveform, sound, atol=1e-4)


@pytest.mark.parametrize(("text", "named"), [("caf\u00e9", "latin-1"), ("5 \u20ac", "cp1252")])
def test_the_encoding_of_windows_is_named_where_latin_1_has_no_characters(tmp_path, text, named):
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    with pytest.raises(ValueError, match=rf"perhaps {named}\)"):
        read_text(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "pair", [("a\u00f1o", "ano"), ("m\u00e1", "m\u00e0"), ("sch\u00f6n", "schon")]
)
def test_accents_tell_words_apart_and_their_two_forms_do_not(tmp_path, pair):
    rows = [f"{pair[number % 2]},{number % 2}" for number in range(40)]
    data = texts(rows, lowercase=True)(tmp_path)
    data.setup()
    by_class = {}
    for ids, target in zip(data.splits["train"].inputs, data.splits["train"].targets, strict=True):
        by_class.setdefault(int(target), set()).add(tuple(ids.tolist()))
    assert not by_class[0] & by_class[1]
    encode = data.tokenizer.encode
    assert encode("a\u00f1o").ids == encode("an\u0303o").ids


def test_images_are_not_mirrored_unless_asked_for(composed):
    assert not composed("experiment=image_folder", "data.path=x").data.horizontal_flip
    assert composed("experiment=cifar10_jpeg").data.horizontal_flip


def test_a_test_in_two_processes_is_refused_where_it_would_repeat_samples():
    trainer = type("Trainer", (), {"world_size": 2})()
    check_processes_of_test(trainer, 52)
    with pytest.raises(ValueError, match=r"1 of the 51 .*trainer.devices=1"):
        check_processes_of_test(trainer, 51)
