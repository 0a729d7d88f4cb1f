"""What all data modules do with their arguments: bad ones are refused by name, and only its own seed moves a split."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.data_settings import AUDIO, IMAGES, TEXT
from harness.made_files import write_images

from as_lightning.benchmark.data.audio.chords import Chords
from as_lightning.benchmark.data.base import BenchmarkDataModule, corrupt_labels
from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.data.extreme import Extreme
from as_lightning.benchmark.data.image.image_folder import ImageFolder
from as_lightning.benchmark.data.text.standard_library import Docstrings, PythonCode
from as_lightning.benchmark.data.text.text_file import TextFile

MODULES: dict[str, Callable[..., BenchmarkDataModule]] = {
    "digits": Digits,
    "extreme": partial(Extreme, batch_size=256, classes=50, features=8, train_samples=2000, evaluation_samples=500),
    "docstrings": partial(Docstrings, **TEXT),
    "code": partial(PythonCode, block_length=8, batch_tokens=16, max_tokens=None),
    "images": partial(ImageFolder, "set", **IMAGES),
    "chords": partial(Chords, **AUDIO),
    "texts": partial(TextFile, "set.csv", **TEXT),
}


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("digits", {"batch_size": 0}, "batch_size must be an integer of at least .*, got 0"),
        ("digits", {"batch_size": "abc"}, "batch_size must be an integer of at least .*, got 'abc'"),
        ("digits", {"num_workers": -1}, "num_workers must be an integer of at least .*, got -1"),
        ("digits", {"num_workers": 1.5}, "num_workers must be an integer of at least .*, got 1.5"),
        ("digits", {"label_noise": -0.1}, r"label_noise must be a share in \[0, 1\], got"),
        ("digits", {"label_noise": 1.1}, r"label_noise must be a share in \[0, 1\], got"),
        ("digits", {"label_noise": float("nan")}, r"label_noise must be a share in \[0, 1\], got"),
        ("extreme", {"classes": 1}, "classes.* must be .*got .*1"),
        ("extreme", {"features": 0}, "features.* must be .*got .*0"),
        ("extreme", {"train_samples": 0}, "train_samples.* must be .*got .*0"),
        ("extreme", {"evaluation_samples": 0}, "evaluation_samples.* must be .*got .*0"),
        ("extreme", {"exponent": -0.1}, "exponent.* must be .*got .*-0.1"),
        ("extreme", {"noise": -0.1}, "noise.* must be .*got .*-0.1"),
        ("docstrings", {"min_paragraphs": 9}, "min_paragraphs must be at least"),
        ("docstrings", {"min_words": 0}, "min_words must be at least"),
        ("code", {"block_length": 0}, "block_length must be at least 1, got 0"),
        ("code", {"batch_tokens": 12}, "batch_tokens must be a multiple of block_length=8, got 12"),
        ("code", {"batch_tokens": 0}, "batch_tokens must be a multiple of block_length=8, got 0"),
        ("code", {"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ("code", {"max_tokens": {"test": 8}}, "max_tokens must be more than block_length=8, got 8"),
        ("code", {"max_tokens": {"val": 3}}, "max_tokens has the splits train, validation and test, got 'val'"),
        ("images", {"crop_padding": -1}, "crop_padding must be at least 0"),
        ("images", {"mean": [0.5] * 3}, "give mean and std, or neither"),
        ("images", {"mean": [0.5], "std": [1.0]}, "mean and std must have 3 numbers"),
        ("images", {"mean": [0.5] * 3, "std": [1.0, 1.0, 0.0]}, "std positive"),
        ("images", {"image_size": 0}, "image_size must be at least 1"),
        ("images", {"validation_share": 0.0}, "validation_share must be a share"),
        ("images", {"validation_share": 1.0}, "validation_share must be a share"),
        ("images", {"max_per_class": 0}, "max_per_class must be at least 1"),
        ("images", {"max_per_class": {"val": 3}}, "max_per_class has the splits .* got 'val'"),
        ("chords", {"octaves": 0}, "octaves must be at least 1"),
        ("chords", {"detune": -1.0}, "detune must be at least 0"),
        ("chords", {"snr_db": (3.0, 2.0)}, r"snr_db must be the least and the greatest ratio, got \(3.0, 2.0\)"),
        ("chords", {"features": "mfcc"}, "features must be 'log_mel' or 'waveform', got 'mfcc'"),
        ("chords", {"sample_rate": 0}, "sample_rate must be at least 1"),
        ("chords", {"n_mels": 0}, "n_mels must be at least 1"),
        ("chords", {"n_fft": 1}, "n_fft must be at least 2"),
        ("chords", {"hop_length": 0}, "hop_length must be at least 1"),
        ("chords", {"freq_mask": -1}, "freq_mask must be at least 0"),
        ("chords", {"freq_mask": 25}, "freq_mask must be at most n_mels=24 .*got 25 and 0"),
        ("chords", {"time_mask": 42}, "time_mask at most the 41 frames, got 0 and 42"),
        ("chords", {"seconds": 0.016}, "more than n_fft // 2 = 128 are needed"),
        ("chords", {"seconds": 0.0, "features": "waveform"}, "less than a sample"),
        ("chords", {"time_mask": 1, "features": "waveform"}, "are for features='log_mel'"),
    ],
)
def test_bad_arguments_are_refused_by_name(module: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        MODULES[module](**arguments)


def test_label_noise_without_a_wrong_class_or_without_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="label noise needs at least 2 classes, got 1"):
        corrupt_labels(torch.zeros(3, dtype=torch.int64), 1, 0.5, 0)
    clean = Digits()
    clean.setup()
    with pytest.raises(RuntimeError, match="there are no corrupted labels: set label_noise"):
        clean.corrupted_dataloader()


@pytest.mark.parametrize(
    ("module", "seed"),
    [
        *((name, "split_seed") for name in ("digits", "extreme", "images", "chords", "texts")),
        ("digits", "label_noise_seed"),
    ],
)
def test_a_split_and_its_wrong_labels_depend_on_their_own_seed_and_on_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, seed: str
) -> None:
    monkeypatch.setattr(Chords, "CLIPS_A_CLASS", dict.fromkeys(Chords.CLIPS_A_CLASS, 1))
    if module == "images":
        write_images(tmp_path / "set", {"cat": 20, "dog": 30})
    if module == "texts":
        rows = "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(100))
        (tmp_path / "set.csv").write_text(f"text,label\n{rows}")
    noise = {"label_noise": 0.4} if seed == "label_noise_seed" else {}

    def drawn(own: int, other: int) -> list[Any]:
        torch.manual_seed(other)
        np.random.seed(other)
        random.seed(other)
        data = MODULES[module](data_dir=tmp_path, **{seed: own}, **noise)
        data.setup()
        split = data.splits["train" if noise else "test"]
        return [split.targets.tolist(), [torch.as_tensor(row).tolist() for row in split.inputs]]

    first = drawn(0, 1)
    assert drawn(0, 2) == first
    assert drawn(1, 1) != first
