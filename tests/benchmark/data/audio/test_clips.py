"""Clips: what is read from a file, and what is refused."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import soundfile
import torch
from harness.made_files import tone, write_clip

from as_lightning.benchmark.data.audio.data_module import AudioFile, ClipFeatures, decode, fit_length
from as_lightning.benchmark.data.files import open_tree


@pytest.mark.parametrize(("name", "subtype"), [("a.wav", "FLOAT"), ("a.wav", "PCM_16"), ("a.flac", "PCM_16")])
def test_a_file_is_decoded_to_the_mean_of_its_channels(tmp_path, name, subtype):
    stereo = torch.stack([tone(440), tone(600)], dim=1)
    path = write_clip(tmp_path / name, stereo, subtype=subtype)
    waveform, rate = decode(path.read_bytes(), "a")
    assert (rate, waveform.shape, waveform.dtype) == (8000, (4000,), torch.float32)
    torch.testing.assert_close(waveform, stereo.mean(1), atol=1e-7 if subtype == "FLOAT" else 2**-15, rtol=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no readable audio"),
        (b"not audio at all" * 100, "is no readable audio"),
        ("no samples", "has no samples"),
        ("nan", "has samples that are not finite"),
        ("cut", "is no readable audio"),
    ],
)
def test_what_is_no_audio_is_refused_by_name(content, message):
    if isinstance(content, str):
        samples = {"no samples": np.zeros(0), "nan": np.full(9, np.nan), "cut": np.zeros(9)}[content]
        file = io.BytesIO()
        soundfile.write(file, samples, 8000, format="WAV", subtype="FLOAT")
        content = file.getvalue()[:30] if content == "cut" else file.getvalue()
    with pytest.raises(ValueError, match=rf"^dir/x.wav {message}"):
        decode(content, "dir/x.wav")


def test_short_clips_are_followed_by_zeros_and_long_ones_cut_at_their_end():
    waveform = torch.arange(1.0, 6.0)
    assert fit_length(waveform, 7).tolist() == [1, 2, 3, 4, 5, 0, 0]
    assert fit_length(waveform, 3).tolist() == [1, 2, 3]


def test_a_clip_of_another_rate_is_resampled(tmp_path):
    write_clip(tmp_path / "a.wav", tone(1000.0, rate=44_100, seconds=1.0), 44_100)
    clips = ClipFeatures([AudioFile(open_tree(tmp_path), "a.wav")], sample_rate=8000, samples=4000, log_mel=None)
    inner = slice(100, -100)  # the filter of the resampling rings at the ends
    torch.testing.assert_close(clips[0][inner], tone(1000.0)[inner], atol=2e-3, rtol=0)


def test_an_archive_member_is_read_where_it_lies(tmp_path):
    write_clip(tmp_path / "a.wav", tone(300))
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.write(tmp_path / "a.wav", "inner/a.wav")
    waveform, rate = AudioFile(open_tree(tmp_path / "set.zip"), "inner/a.wav").read()
    assert rate == 8000
    torch.testing.assert_close(waveform, tone(300), atol=2**-15, rtol=0)
