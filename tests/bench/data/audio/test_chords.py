"""The synthetic chords."""

import pytest
import torch
from harness.data_settings import AUDIO

from as_lightning.bench.data.audio import chords
from as_lightning.bench.data.audio.chords import QUALITIES, ROOTS, Chords, chord


def twelve_tones(root: int, quality: str) -> frozenset[int]:
    return frozenset((root + tone) % 12 for tone in QUALITIES[quality])


def test_no_two_of_the_48_classes_have_the_same_twelve_tones():
    assert len({twelve_tones(root, quality) for root in range(12) for quality in QUALITIES}) == 48


def test_splits_are_of_equal_classes_named_by_root_and_quality_and_share_no_clip():
    data = Chords(**AUDIO)
    data.setup()
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [
        1440,
        384,
        480,
    ]
    assert set(data.class_names) == {f"{root} {quality}" for root in ROOTS for quality in QUALITIES}
    for split in data.splits.values():
        assert split.targets.bincount().tolist() == [len(split) // 48] * 48
    inputs = torch.cat([split.inputs.flatten(1) for split in data.splits.values()])
    assert len(inputs.unique(dim=0)) == 2304
    assert data.example_names("test")[0] == "the chord C major of seed (0, 0, 0, 38)"


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("root", [0, 5, 11])
def test_the_tones_of_a_chord_are_louder_than_all_that_is_no_harmonic_of_theirs(
    root, quality, monkeypatch
):
    monkeypatch.setattr(chords, "OCTAVES", 1)
    monkeypatch.setattr(chords, "SNR_DB", (60.0, 60.0))
    tones = twelve_tones(root, quality)
    harmonics = {
        (tone + interval) % 12 for tone in tones for interval in (0, 4, 7)
    }  # of a tone, up to its sixth
    assert len(harmonics) < 12
    for seed in range(5):
        waveform, rate = chord(root, quality, (seed,), rate=8000, seconds=2.0)
        power = torch.fft.rfft(waveform * torch.hann_window(len(waveform))).abs().square()
        hz = torch.fft.rfftfreq(len(waveform), 1 / rate)
        heard = (hz > 120) & (
            hz < 780
        )  # from the lowest tone to the highest; a seventh harmonic is above
        semitone = (12 * torch.log2(hz[heard] / 440) + 69).round().long() % 12  # C is 0
        loudness = torch.zeros(12).index_add(0, semitone, power[heard])
        silent = [tone for tone in range(12) if tone not in harmonics]
        assert loudness[sorted(tones)].min() > 10 * loudness[silent].max()


def test_a_clip_is_of_its_length_and_rate_and_its_largest_sample_is_a_half():
    waveform, rate = chord(3, "minor", (0,), rate=8000, seconds=0.3)
    assert (*waveform.shape, waveform.dtype, rate) == (2400, torch.float32, 8000)
    assert waveform.abs().max().item() == pytest.approx(0.5)
