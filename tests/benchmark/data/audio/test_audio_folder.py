"""A user's own clips."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.benchmark.data.audio.audio_folder import AudioFolder


@pytest.fixture
def folder(tmp_path) -> Path:
    """20 clips of ``low`` and 30 of ``high``, each of its own pitch; one lies deeper, one is FLAC; and a text file."""
    root = tmp_path / "tones"
    for index in range(20):
        write_clip(root / "low" / ("deeper" if index == 3 else "") / f"{index}.wav", tone(200 + 10 * index))
    for index in range(30):
        write_clip(root / "high" / f"{index}.{'flac' if index == 3 else 'wav'}", tone(1000 + 10 * index))
    (root / "low" / "notes.txt").write_text("no clip")
    return root


def test_each_clip_has_the_class_of_its_folder(folder):
    splits = AudioFolder(folder, **AUDIO).index_clips()
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 40, "validation": 5, "test": 5}
    lows = {("low", f"{index}.wav") for index in range(20)}
    highs = {("high", f"{index}.{'flac' if index == 3 else 'wav'}") for index in range(30)}
    assert {(row.label, Path(row.place).name) for rows in splits.values() for row in rows} == lows | highs


def test_silent_training_clips_give_finite_features(tmp_path):
    for index in range(10):
        write_clip(tmp_path / "ab"[index % 2] / f"{index}.wav", torch.zeros(4000))
    data = AudioFolder(tmp_path, **AUDIO)
    data.setup()
    assert max(features.abs().max() for features, _ in data.splits["train"]) < 1e-3


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_bad_files_are_counted_and_the_first_five_named_before_training(folder, cache, features):
    for index in range(7):
        (folder / "low" / f"bad{index}.wav").write_bytes(b"RIFF" if index else b"")
    with pytest.raises(ValueError, match="7 of 57 audio files cannot be used: ") as caught:
        AudioFolder(folder, features=features, cache=cache, **AUDIO).setup()
    message = str(caught.value)
    assert message.count("no readable audio") == message.count("tones/low/bad") == 5
    assert message.endswith("; and 2 more")
