"""Clips: what is decoded, the features that are made of them, and what the data modules refuse."""

import pytest
import torch
import torchaudio
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.bench.data.audio.audio_folder import AudioFolder
from as_lightning.bench.data.audio.data_module import AudioDataModule, clip_features, decode_clip
from as_lightning.bench.data.files import LabelledFile


class Tones(AudioDataModule):
    """Clips that are made when they are read."""

    def __init__(self, **arguments) -> None:
        super().__init__(**(AUDIO | arguments))
        self.setup()

    def index(self) -> dict[str, list[LabelledFile]]:
        pitches = {"train": [300, 500, 1000, 2000], "validation": [310, 990], "test": [320, 980]}
        return {
            split: [
                LabelledFile(
                    "low" if hz < 800 else "high", f"{hz} Hz", lambda hz=hz: (tone(hz), 8000)
                )
                for hz in row
            ]
            for split, row in pitches.items()
        }


def test_log_mel_inputs_are_standardised_by_the_training_split_alone():
    data = Tones()
    train = torch.stack([features for features, _ in data.splits["train"]])
    assert (train.shape, train.dtype) == ((4, 1, 24, 41), torch.float32)
    assert train.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert train.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)
    mel = torchaudio.transforms.MelSpectrogram(8000, n_fft=256, hop_length=100, n_mels=24)
    raw = [mel(tone(hz)).clamp(min=1e-6).log() for hz in (300, 500, 1000, 2000, 320)]
    mean, std = torch.stack(raw[:4]).mean(), torch.stack(raw[:4]).std(correction=0)
    torch.testing.assert_close(
        data.splits["test"][0][0][0], (raw[4] - mean) / std, atol=1e-4, rtol=1e-4
    )
    assert data.input_spec == {"in_channels": 1}


def test_waveforms_are_the_samples_themselves():
    data = Tones(features="waveform")
    waveforms, targets = next(iter(data.test_dataloader()))
    torch.testing.assert_close(waveforms, torch.stack([tone(320), tone(980)]))
    assert [data.class_names[target] for target in targets] == ["low", "high"]
    assert data.input_spec == {}


def test_spec_augment_sets_bands_and_frames_to_zero_in_the_training_split_alone():
    data, plain = Tones(freq_mask=8, time_mask=12), Tones()
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
    torch.testing.assert_close(
        waveform, stereo.mean(1), atol=1e-7 if subtype == "FLOAT" else 2**-15, rtol=0
    )


@pytest.mark.parametrize("rate", [44_100, 8001, 22_051, 192_001, 3000])
def test_a_clip_of_another_rate_is_resampled_with_filters_of_bounded_size(monkeypatch, rate):
    resample, terms = torchaudio.functional.resample, []

    def noted(waveform, *rates):
        terms.extend(rates)
        return resample(waveform, *rates)

    monkeypatch.setattr(torchaudio.functional, "resample", noted)
    clip = tone(100.0, rate=rate, seconds=3.0)
    waveform = clip_features((clip, rate), sample_rate=8000, samples=4000, mel=None)
    inner = slice(
        100, None
    )  # the filter of the resampling rings at the start; the clip goes on behind the end
    torch.testing.assert_close(waveform[inner], tone(100.0)[inner], atol=0.03, rtol=0)
    assert max(terms) <= 3000


@pytest.mark.parametrize("cache", [True, False])
def test_bad_files_are_counted_and_the_first_five_named_before_training_and_silence_is_none(
    tmp_path, cache
):
    for index in range(50):
        write_clip(
            tmp_path / "ab"[index % 2] / f"{index:02}.{'wav' if index else 'flac'}",
            torch.zeros(4000),
        )
    silence = AudioFolder(tmp_path, cache=cache, **AUDIO)
    silence.setup()
    assert max(features.abs().max() for features, _ in silence.splits["train"]) < 1e-3
    for index in range(6):
        (tmp_path / "a" / f"bad{index}.wav").write_bytes(b"RIFF" if index else b"")
    write_clip(
        tmp_path / "a" / "02.wav", 1e20 * tone(200), subtype="FLOAT"
    )  # its power is beyond float32
    message = r"^7 of 56 clips .*02.wav: features that are not finite: [^;]*; (\S*/bad\d.wav: no [^;]*; ){4}and 2 more$"
    with pytest.raises(ValueError, match=message):
        AudioFolder(tmp_path, cache=cache, **AUDIO).setup()
