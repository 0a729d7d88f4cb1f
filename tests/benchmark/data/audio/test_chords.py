"""The synthetic chords."""

import pytest
import torch
from harness.data_settings import AUDIO

from as_lightning.benchmark.data.audio.chords import QUALITIES, ROOTS, Chords, chord


def clip(root: int, quality: str, seed: int = 0, **changes) -> tuple[torch.Tensor, int]:
    return chord(root, quality, (seed,), **({"rate": 8000, "seconds": 0.5, "snr_db": (30.0, 30.0)} | changes))


def twelve_tones(root: int, quality: str) -> frozenset[int]:
    return frozenset((root + tone) % 12 for tone in QUALITIES[quality])


def test_no_two_of_the_48_classes_have_the_same_twelve_tones():
    assert len({twelve_tones(root, quality) for root in range(12) for quality in QUALITIES}) == 48


def test_splits_are_of_equal_classes_named_by_root_and_quality_and_share_no_clip():
    chords = Chords(**AUDIO)
    chords.setup()
    assert [len(chords.splits[split]) for split in ("train", "validation", "test")] == [1440, 384, 480]
    assert set(chords.class_names) == {f"{root} {quality}" for root in ROOTS for quality in QUALITIES}
    for split in chords.splits.values():
        assert split.targets.bincount().tolist() == [len(split) // 48] * 48
    inputs = torch.cat([split.inputs.flatten(1) for split in chords.splits.values()])
    assert len(inputs.unique(dim=0)) == 2304
    assert chords.example_names("test")[0] == "the chord C major of seed (0, 0, 0, 38)"


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("root", [0, 5, 11])
def test_the_tones_of_a_chord_are_louder_than_all_that_is_no_harmonic_of_theirs(root, quality):
    tones = twelve_tones(root, quality)
    harmonics = {(tone + interval) % 12 for tone in tones for interval in (0, 4, 7)}  # of a tone, up to its sixth
    assert len(harmonics) < 12
    for seed in range(5):
        waveform, rate = clip(root, quality, seed, seconds=2.0, octaves=1, snr_db=(60.0, 60.0))
        power = torch.fft.rfft(waveform * torch.hann_window(len(waveform))).abs().square()
        hz = torch.fft.rfftfreq(len(waveform), 1 / rate)
        heard = (hz > 120) & (hz < 780)  # from the lowest tone to the highest; a seventh harmonic is above
        semitone = (12 * torch.log2(hz[heard] / 440) + 69).round().long() % 12  # C is 0
        loudness = torch.zeros(12).index_add(0, semitone, power[heard])
        silent = [tone for tone in range(12) if tone not in harmonics]
        assert loudness[sorted(tones)].min() > 10 * loudness[silent].max()


@pytest.mark.parametrize("snr_db", [-5.0, 10.0])
def test_the_noise_has_the_given_ratio_to_the_chord_and_the_largest_sample_is_a_half(snr_db):
    clean, noisy = (clip(3, "minor", seconds=0.3, snr_db=(ratio, ratio)) for ratio in (200.0, snr_db))
    assert [(*part[0].shape, part[0].dtype, part[1]) for part in (clean, noisy)] == [(2400, torch.float32, 8000)] * 2
    assert noisy[0].abs().max().item() == pytest.approx(0.5)
    clean, noisy = clean[0].double(), noisy[0].double()
    # the part of the noisy clip that is the clean one; what is left is noise
    signal = (noisy @ clean) / (clean @ clean) * clean
    ratio = 10 * torch.log10(signal.square().mean() / (noisy - signal).square().mean())
    assert ratio.item() == pytest.approx(snr_db, abs=1.0)
