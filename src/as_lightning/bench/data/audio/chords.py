"""Embedded audio: chords that are synthesised from a seed."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from as_lightning.bench.data.audio.data_module import AudioDataModule
from as_lightning.bench.data.files import LabelledFile

ROOTS = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
# semitones above the root. No two of the 48 chords have the same twelve-tone set: an augmented
# triad would have it in common with two others, and a sus2 with the sus4 a fifth higher
QUALITIES = {"major": (0, 4, 7), "minor": (0, 3, 7), "diminished": (0, 3, 6), "sus4": (0, 5, 7)}
LOWEST_C_HZ = 440.0 * 2.0 ** (-21 / 12)  # C3


# octaves from C3 on that a chord may start in, cents that it may be out of tune, and
# signal-to-noise ratios
OCTAVES, DETUNE, SNR_DB = 3, 15.0, (-12.0, 8.0)


def chord(
    root: int, quality: str, seed: tuple[int, ...], rate: int, seconds: float
) -> tuple[Tensor, int]:
    r"""The samples of a synthetic clip and their rate: everything in it but the chord is drawn from
    ``seed``.

    $$
    x(t) = \sum_h \frac{a_h}{h^p} e^{-d \sqrt{h} t} \sin(2 \pi h f t + \varphi_h), \quad h f < 0.45 r,
    $$

    for each tone, of 8 harmonics at most, with ``p`` in [0.5, 2], ``d`` in [1, 6] per second and
    ``a`` in [0.15, 1]. The chord is in any inversion and lies in white noise. The largest sample is
    0.5. ``rate`` is $r$ in Hz. The chord starts in one of three octaves, at most 15 cents out of
    tune; the tones have a normal error of 3.75 cents besides.
    """
    random = np.random.default_rng(seed)
    semitones = np.array(QUALITIES[quality])
    inversion = random.integers(len(semitones))
    semitones[:inversion] += 12
    octave = random.integers(OCTAVES)
    cents = random.uniform(-DETUNE, DETUNE) + random.normal(0.0, DETUNE / 4, len(semitones))
    pitches = LOWEST_C_HZ * 2.0 ** (octave + (root + semitones + cents / 100) / 12)
    slope, decay = random.uniform(0.5, 2.0), random.uniform(1.0, 6.0)

    time = np.arange(round(seconds * rate), dtype=np.float32) / rate
    harmonics = np.arange(1, 9)
    tone, number = np.nonzero(np.outer(pitches, harmonics) < 0.45 * rate)
    harmonic = harmonics[number]
    amplitude = (
        random.uniform(0.5, 1.0, len(pitches))[tone]
        * random.uniform(0.3, 1.0, len(tone))
        / harmonic**slope
    )
    phase = random.uniform(0.0, 2.0 * np.pi, len(tone))
    frequency = 2.0 * np.pi * pitches[tone] * harmonic
    waves = np.sin(np.outer(frequency.astype(np.float32), time) + phase[:, None].astype(np.float32))
    waves *= np.exp(np.outer(-decay * np.sqrt(harmonic).astype(np.float32), time))
    clean = amplitude.astype(np.float32) @ waves
    power = float(np.square(clean).mean()) / 10.0 ** (random.uniform(*SNR_DB) / 10.0)
    noisy = clean + np.sqrt(power) * random.standard_normal(len(time), dtype=np.float32)
    return torch.from_numpy((0.5 / np.abs(noisy).max() * noisy).astype(np.float32)), rate


class Chords(AudioDataModule):
    """Which chord is it? Synthetic: 48 classes, 12 roots times 4 qualities, 1,440 / 384 / 480
    clips; no download.

    It has no rhythm, no room and no instrument: a result on it says nothing of music.
    ``split_seed`` seeds the clips, not the run's seed.
    """

    CLIPS_A_CLASS: ClassVar[dict[str, int]] = {"train": 30, "validation": 8, "test": 10}
    splits_by_seed = True

    def index(self) -> dict[str, list[LabelledFile]]:
        splits: dict[str, list[LabelledFile]] = {split: [] for split in self.CLIPS_A_CLASS}
        clip_splits = [split for split, clips in self.CLIPS_A_CLASS.items() for _ in range(clips)]
        for root, quality, (number, split) in product(
            range(len(ROOTS)), QUALITIES, enumerate(clip_splits)
        ):
            label, seed = (
                f"{ROOTS[root]} {quality}",
                (self.split_seed, root, tuple(QUALITIES).index(quality), number),
            )
            read = partial(chord, root, quality, seed, self.sample_rate, self.seconds)
            splits[split].append(LabelledFile(label, f"the chord {label} of seed {seed}", read))
        return splits
