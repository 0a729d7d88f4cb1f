"""A user's own clips."""

from __future__ import annotations

import pytest
import torch
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.benchmark.data.audio.audio_folder import AudioFolder


def test_silent_training_clips_give_finite_features(tmp_path):
    for index in range(10):
        write_clip(tmp_path / "ab"[index % 2] / f"{index}.wav", torch.zeros(4000))
    data = AudioFolder(tmp_path, **AUDIO)
    data.setup()
    assert max(features.abs().max() for features, _ in data.splits["train"]) < 1e-3


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_bad_files_are_counted_and_the_first_five_named_before_training(tmp_path, cache, features):
    for index in range(50):
        write_clip(tmp_path / "tones" / ("low", "high")[index % 2] / f"{index}.{'wav' if index else 'flac'}", tone(200))
    for index in range(7):
        (tmp_path / "tones" / "low" / f"bad{index}.wav").write_bytes(b"RIFF" if index else b"")
    with pytest.raises(ValueError, match="7 of 57 clips cannot be used: ") as caught:
        AudioFolder(tmp_path / "tones", features=features, cache=cache, **AUDIO).setup()
    message = str(caught.value)
    assert message.count("no readable audio") == message.count("tones/low/bad") == 5
    assert message.endswith("; and 2 more")


@pytest.mark.parametrize("cache", [True, False])
def test_a_clip_of_finite_samples_whose_features_are_not_is_named_in_whatever_split(tmp_path, cache):
    for index in range(24):
        scale = 1e20 if index in (3, 10) else 1.0
        write_clip(tmp_path / "ab"[index % 2] / f"{index:02}.wav", scale * tone(200 + index), subtype="FLOAT")
    with pytest.raises(ValueError, match=r"2 of 24 clips .*a/10.wav: features that are not finite: .*b/03.wav"):
        AudioFolder(tmp_path, cache=cache, **AUDIO).setup()
