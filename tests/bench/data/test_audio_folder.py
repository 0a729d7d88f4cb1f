"""Clips: what is decoded, and the features that are made of them."""

from pathlib import Path

import pytest
import torch
import torchaudio
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.bench.data.audio_folder import AudioFolder, decode_clip, fitted

PITCHES = {"train": [300, 500, 1000, 2000], "validation": [310, 990], "test": [320, 980]}


@pytest.fixture
def tones(tmp_path: Path):
    """A function that reads tones of so many Hz in two classes with settings."""
    for split, pitches in PITCHES.items():
        for hz in pitches:
            path = tmp_path / split / ("low" if hz < 800 else "high") / f"{hz:04}.wav"
            write_clip(path, tone(hz), subtype="FLOAT")

    def read(**arguments) -> AudioFolder:
        data = AudioFolder(tmp_path, **(AUDIO | arguments))
        data.setup()
        return data

    return read


def raw_inputs(data: AudioFolder, split: str) -> dict[str, torch.Tensor]:
    names = [Path(name).stem for name in data.example_names(split)]
    return dict(zip(names, data.splits[split].inputs, strict=True))


def test_log_mel_inputs_are_standardised_by_the_training_split_alone(tones):
    data = tones()
    train = torch.stack([features for features, _ in data.splits["train"]])
    assert (train.shape, train.dtype) == ((4, 1, 24, 41), torch.float32)
    assert train.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert train.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)
    mel = torchaudio.transforms.MelSpectrogram(8000, n_fft=256, hop_length=100, n_mels=24)
    raw = [mel(tone(hz)).clamp(min=1e-6).log() for hz in (300, 500, 1000, 2000, 320)]
    mean, std = torch.stack(raw[:4]).mean(), torch.stack(raw[:4]).std(correction=0)
    place = [Path(name).stem for name in data.example_names("test")].index("0320")
    expected = (raw[4] - mean) / std
    torch.testing.assert_close(data.splits["test"][place][0][0], expected, atol=1e-4, rtol=1e-4)
    assert data.input_spec == {"in_channels": 1}


def test_waveforms_are_the_samples_themselves(tones):
    data = tones(features="waveform")
    found = raw_inputs(data, "test")
    torch.testing.assert_close(found, {"0320": tone(320), "0980": tone(980)})
    classes = [data.class_names[target] for _, target in data.splits["test"]]
    assert dict(zip(found, classes, strict=True)) == {"0320": "low", "0980": "high"}
    assert data.input_spec == {}


def test_spec_augment_sets_bands_and_frames_to_zero_in_the_training_split_alone(tones):
    data, plain = tones(freq_mask=8, time_mask=12), tones()
    bands, frames = set(), set()
    for _ in range(100):
        taken, clean = (tones.splits["train"][0][0].squeeze(0) for tones in (data, plain))
        mask = taken != clean
        rows, columns = mask.all(dim=1), mask.all(dim=0)
        assert torch.equal(mask, rows[:, None] | columns[None, :])
        assert not taken[mask].any()
        bands.add(int(rows.sum()))
        frames.add(int(columns.sum()))
    assert (bands, frames) == (set(range(8)), set(range(12)))
    for split in ("validation", "test"):
        assert torch.equal(data.splits[split][0][0], plain.splits[split][0][0])


@pytest.mark.parametrize(
    ("name", "subtype"), [("a.wav", "FLOAT"), ("a.wav", "PCM_16"), ("a.flac", "PCM_16")]
)
def test_a_file_is_decoded_to_the_mean_of_its_channels(tmp_path, name, subtype):
    stereo = torch.stack([tone(440), tone(600)], dim=1)
    waveform, rate = decode_clip(write_clip(tmp_path / name, stereo, subtype=subtype).read_bytes())
    assert (rate, waveform.shape, waveform.dtype) == (8000, (4000,), torch.float32)
    atol = 1e-7 if subtype == "FLOAT" else 2**-15
    torch.testing.assert_close(waveform, stereo.mean(1), atol=atol, rtol=0)


@pytest.mark.parametrize("rate", [44_100, 8001, 22_051, 192_001, 3000])
def test_a_clip_of_another_rate_is_resampled_with_filters_of_bounded_size(monkeypatch, rate):
    resample, terms = torchaudio.functional.resample, []

    def noted(waveform, *rates):
        terms.extend(rates)
        return resample(waveform, *rates)

    monkeypatch.setattr(torchaudio.functional, "resample", noted)
    clip = tone(100.0, rate=rate, seconds=3.0)
    waveform = fitted(clip, rate, [], sample_rate=8000, samples=4000)
    # The filter of the resampling rings at the start; the clip goes on behind the end.
    inner = slice(100, None)
    torch.testing.assert_close(waveform[inner], tone(100.0)[inner], atol=0.03, rtol=0)
    assert max(terms) <= 3000


@pytest.mark.parametrize("bad", [b"RIFF", b"", None])
def test_a_bad_file_is_named_before_training_and_silence_is_none(tmp_path, bad):
    for index in range(50):
        ending = "wav" if index else "flac"
        write_clip(tmp_path / "ab"[index % 2] / f"{index:02}.{ending}", torch.zeros(4000))
    silence = AudioFolder(tmp_path, **AUDIO)
    silence.setup()
    assert max(features.abs().max() for features, _ in silence.splits["train"]) < 1e-3
    if bad is None:  # its power is beyond float32
        write_clip(tmp_path / "a" / "bad.wav", 1e20 * tone(200), subtype="FLOAT")
    else:
        (tmp_path / "a" / "bad.wav").write_bytes(bad)
    message = "far outside" if bad is None else "no readable audio"
    with pytest.raises(ValueError, match=rf"a/bad.wav: .*{message}"):
        AudioFolder(tmp_path, **AUDIO).setup()
