"""Settings of data modules that tests share; the app's own are in ``conf/data``."""

from typing import Any

IMAGES: dict[str, Any] = {"batch_size": 32}
PLAIN: dict[str, Any] = {"crop_padding": 0, "horizontal_flip": False}
# batches hold the bytes' own values
UNCHANGED: dict[str, Any] = {**PLAIN, "mean": [0.0] * 3, "std": [1 / 255] * 3}
TEXT: dict[str, Any] = {"batch_size": 32, "vocab_size": 4000, "max_length": 64, "lowercase": True}
AUDIO: dict[str, Any] = {
    "batch_size": 32,
    "sample_rate": 8000,
    "seconds": 0.5,
    "n_mels": 24,
    "n_fft": 256,
    "hop_length": 100,
    "freq_mask": 0,
    "time_mask": 0,
}
# The files of WNUT-17 in the folder of real data.
WNUT17 = ("wnut17_wnut17train.conll", "wnut17_emerging.dev.conll", "wnut17_emerging.test.annotated")
