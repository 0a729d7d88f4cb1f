"""Features of clips: standardised, kept or not, masked by SpecAugment."""

from __future__ import annotations

import pytest
import torch
from harness.data_settings import AUDIO
from harness.made_files import tone

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, LabelledClip, LogMel


class Tones(AudioDataModule):
    """Clips that are made when they are read; ``pitches_read`` are those of the clips that were."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.pitches_read: list[float] = []

    class Tone:
        def __init__(self, hz: float, module: Tones) -> None:
            self.hz, self.module = hz, module

        def where(self) -> str:
            return f"{self.hz} Hz"

        def read(self) -> tuple[torch.Tensor, int]:
            self.module.pitches_read.append(self.hz)
            return tone(self.hz), 8000

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        pitches = {"train": [300, 500, 1000, 2000], "validation": [310, 990], "test": [320, 980]}
        return {
            split: [LabelledClip(self.Tone(hz, self), "low" if hz < 800 else "high") for hz in row]
            for split, row in pitches.items()
        }


def small(**arguments) -> Tones:
    data = Tones(**{**AUDIO, **arguments})
    data.setup()
    return data


def test_log_mel_inputs_are_standardised_by_the_training_split_alone():
    data = small()
    train = torch.stack([features for features, _ in data.splits["train"]])
    assert (train.shape, train.dtype) == ((4, 1, 24, 41), torch.float32)
    assert train.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert train.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)
    raw = [LogMel(8000, 24, 256, 100)(tone(hz)) for hz in (300, 500, 1000, 2000, 320)]
    mean, std = torch.stack(raw[:4]).mean(), torch.stack(raw[:4]).std(correction=0)
    torch.testing.assert_close(data.splits["test"][0][0], (raw[4] - mean) / std, atol=1e-4, rtol=1e-4)
    assert data.input_spec == {"in_channels": 1}


def test_waveform_inputs_are_the_samples_themselves():
    data = small(features="waveform")
    waveforms, targets = next(iter(data.test_dataloader()))
    torch.testing.assert_close(waveforms, torch.stack([tone(320), tone(980)]))
    assert [data.class_names[target] for target in targets] == ["low", "high"]
    assert data.input_spec == {}


@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_features_are_the_same_kept_and_computed_at_access(features):
    kept, computed = small(features=features, cache=True), small(features=features, cache=False)
    read_in_setup = len(computed.pitches_read)
    assert set(kept.pitches_read) == set(computed.pitches_read) == {300, 310, 320, 500, 980, 990, 1000, 2000}
    kept.pitches_read.clear()
    for split in ("train", "validation", "test"):
        for index in range(len(kept.splits[split])):
            assert torch.equal(kept.splits[split][index][0], computed.splits[split][index][0])
    assert kept.pitches_read == []
    assert len(computed.pitches_read) == read_in_setup + 8


def test_small_data_are_kept_of_themselves():
    data = small()
    assert isinstance(data.splits["train"].inputs, torch.Tensor)


def masked(image: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    assert torch.equal(image[image != clean], torch.zeros(int((image != clean).sum())))
    return (image != clean).squeeze(0)


def test_spec_augment_sets_bands_and_frames_to_zero_in_the_training_split_alone():
    data, plain = small(freq_mask=8, time_mask=12), small()
    bands, frames = set(), set()
    for _ in range(100):
        mask = masked(data.splits["train"][0][0], plain.splits["train"][0][0])
        rows, columns = mask.all(dim=1), mask.all(dim=0)
        assert torch.equal(mask, rows[:, None] | columns[None, :])
        for positions in (rows.nonzero().flatten(), columns.nonzero().flatten()):
            assert len(positions) == 0 or positions[-1] - positions[0] == len(positions) - 1
        bands.add(int(rows.sum()))
        frames.add(int(columns.sum()))
    assert bands == set(range(8))
    assert frames == set(range(12))
    for split in ("validation", "test"):
        for index in range(2):
            assert torch.equal(data.splits[split][index][0], plain.splits[split][index][0])
    assert torch.equal(data.splits["train"].inputs, plain.splits["train"].inputs)


def test_the_corrupted_samples_are_shown_without_spec_augment():
    data, plain = small(freq_mask=20, time_mask=40, label_noise=0.5), small()
    inputs, pairs = next(iter(data.corrupted_dataloader()))
    assert len(inputs) == 2
    assert (pairs[:, 0] != pairs[:, 1]).all()
    for image in inputs:
        assert any(torch.equal(image, clean) for clean, _ in plain.splits["train"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": "mfcc"}, "features must be 'log_mel' or 'waveform', got 'mfcc'"),
        ({"cache": "yes"}, "cache must be True, False or 'auto', got 'yes'"),
        ({"sample_rate": 0}, "sample_rate must be at least 1"),
        ({"n_mels": 0}, "n_mels must be at least 1"),
        ({"n_fft": 1}, "n_fft must be at least 2"),
        ({"hop_length": 0}, "hop_length must be at least 1"),
        ({"freq_mask": -1}, "freq_mask must be at least 0"),
        ({"freq_mask": 25}, "freq_mask must be at most n_mels=24 .*got 25 and 0"),
        ({"time_mask": 42}, "time_mask at most the 41 frames, got 0 and 42"),
        ({"seconds": 0.016}, "more than n_fft // 2 = 128 are needed"),
        ({"seconds": 0.0, "features": "waveform"}, "less than a sample"),
        ({"time_mask": 1, "features": "waveform"}, "are for features='log_mel'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Tones(**{**AUDIO, **arguments})
