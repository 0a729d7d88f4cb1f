"""An argument of a data module that is out of range is refused by its name, before anything is read."""

from __future__ import annotations

from typing import Any

import pytest
from harness.data_settings import AUDIO, IMAGES, TEXT

from as_lightning.benchmark.data.audio.chords import Chords
from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.data.image.image_folder import ImageFolder
from as_lightning.benchmark.data.text.published import SST5, WNUT17, GoEmotions
from as_lightning.benchmark.data.text.standard_library import PythonCode
from as_lightning.benchmark.data.text.text_file import TextFile

CODE = {"block_length": 8, "batch_tokens": 16, "max_tokens": None}
PATH = {"path": "set"}


@pytest.mark.parametrize(
    ("module", "settings", "arguments", "message"),
    [
        (Digits, {}, {"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        (Digits, {}, {"batch_size": None}, "batch_size must be an integer of at least 1, got None"),
        (Digits, {}, {"num_workers": -1}, "num_workers must be an integer of at least 0, got -1"),
        (Digits, {}, {"label_noise": 1.1}, r"label_noise must be a share in \[0, 1\], got 1.1"),
        (Digits, {}, {"label_noise": float("nan")}, r"label_noise must be a share in \[0, 1\], got nan"),
        (Digits, {}, {"label_noise_kind": "x"}, "label_noise_kind must be one of 'uniform', 'pairs', got 'x'"),
        (Digits, {}, {"imbalance": 0.5}, "imbalance must be a number of at least 1, .*, got 0.5"),
        (Digits, {}, {"imbalance": float("inf")}, "imbalance must be a number of at least 1, .*, got inf"),
        (Digits, {}, {"imbalance": 2, "shots": 3}, "shots=3 and imbalance=2 both set how many samples a class has"),
        (GoEmotions, TEXT, {"imbalance": 2}, "not for multilabel data, whose samples belong to several classes"),
        (WNUT17, TEXT, {"imbalance": 2}, "not for token data, whose samples belong to several classes"),
        (Chords, AUDIO, {"features": "mfcc"}, "features must be one of 'log_mel', 'waveform', got 'mfcc'"),
        (Chords, AUDIO, {"n_fft": 0}, "n_fft must be an integer of at least 1"),
        (Chords, AUDIO, {"freq_mask": -1}, "freq_mask must be an integer of at least 0"),
        (Chords, AUDIO, {"freq_mask": 25}, "freq_mask=25 is more than a clip's 24: set it to that or less"),
        (Chords, AUDIO, {"seconds": 0.1, "time_mask": 10}, "time_mask=10 is more than a clip's 9"),
        (Chords, AUDIO, {"split_seed": "abc"}, "split_seed must be an integer of at least 0, got 'abc'"),
        (Digits, {}, {"label_noise_seed": "abc"}, "label_noise_seed must be an integer of at least 0, got 'abc'"),
        (Chords, AUDIO, {"seconds": "abc"}, "seconds must be a positive number, got 'abc'"),
        (Chords, AUDIO, {"seconds": 0.016}, "are 128 samples: at least 129 are needed"),
        (Chords, AUDIO, {"time_mask": 1, "features": "waveform"}, "are for features='log_mel'"),
        (ImageFolder, IMAGES | PATH, {"crop_padding": -1}, "crop_padding must be an integer of at least 0"),
        (ImageFolder, IMAGES | PATH, {"mean": [0.5] * 3}, "give mean and std, 3 numbers each, or neither"),
        (ImageFolder, IMAGES | PATH, {"mean": [0.5], "std": [1.0]}, "give mean and std, 3 numbers each, or neither"),
        (ImageFolder, IMAGES | PATH, {"image_size": 0}, "image_size must be an integer of at least 1"),
        (ImageFolder, IMAGES | PATH, {"validation_share": 1.0}, r"validation_share must be a share in \(0, 1\), got 1"),
        (ImageFolder, IMAGES | PATH, {"max_per_class": {"test": 0}}, "max_per_class must be an integer of at least 1"),
        (ImageFolder, IMAGES | PATH, {"max_per_class": {"val": 3}}, "max_per_class has the splits .* got 'val'"),
        (PythonCode, CODE, {"batch_tokens": 12}, "batch_tokens must be a multiple of block_length=8, got 12"),
        (GoEmotions, TEXT, {"label_noise": 0.4}, "is for data of one class per sample, not for multilabel data"),
        (SST5, TEXT, {"max_length": "abc"}, "max_length must be an integer of at least 1, got 'abc'"),
        (SST5, TEXT, {"vocab_size": 100.5}, "vocab_size must be an integer of at least 3, got 100.5"),
        (SST5, TEXT, {"label_noise": "abc"}, r"label_noise must be a share in \[0, 1\], got 'abc'"),
        (SST5, TEXT, {"vocab_size": 2}, "vocab_size must be an integer of at least 3"),
        (TextFile, TEXT | PATH, {"min_per_class": 0}, "min_per_class must be an integer of at least 1, got 0"),
        (TextFile, TEXT | PATH, {"test_path": "test.csv"}, "give validation_path and test_path, or neither"),
    ],
)
def test_an_argument_out_of_range_is_refused_by_its_name(
    module: type[BenchmarkDataModule], settings: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        module(**(settings | arguments))
