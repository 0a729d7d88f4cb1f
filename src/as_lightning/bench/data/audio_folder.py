"""A user's own clips: how they are read and turned into features, with SpecAugment."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.class_folder import ClassFolder, Transform, mean_and_std
from as_lightning.bench.data.files import Place
from as_lightning.bench.packages import loading
from as_lightning.functional.argument_checks import check_choice, check_number

with loading("torchaudio"):
    import torchaudio
    from torchaudio.transforms import FrequencyMasking, MelSpectrogram, TimeMasking

# Least power of log-mel, about that of 16-bit rounding noise: less counts as silence.
LOG_FLOOR = 1e-6

BLOCK = 2**16  # samples that are decoded at once
CANCELLED = 1e-3  # of the loudest channel: a mean below it is silence
LOUDEST = 1e6  # of samples in [-1, 1]: far above it their power is beyond float32


class _Stream(soundfile.SoundFile):
    """An audio file that is read from front to back: a FLAC may not say how long it is."""

    def seekable(self) -> bool:
        return False


def decode_clip(content: bytes, changes: list[str] | None = None) -> tuple[Tensor, int]:
    """Return the samples of an audio file, its channels averaged, ``float32`` of shape
    ``(samples,)``, and their rate in Hz.

    ``changes`` gets what was done. A WAV file that was cut short is a shorter clip to libsndfile.
    """
    blocks: list[np.ndarray] = []
    try:
        with _Stream(io.BytesIO(content)) as file:
            rate = file.samplerate
            while not blocks or len(blocks[-1]):
                blocks.append(file.read(BLOCK, dtype="float32", always_2d=True))
    except soundfile.SoundFileError as error:
        raise ValueError(f"no readable audio ({getattr(error, 'error_string', error)})") from error
    channels = torch.from_numpy(np.concatenate(blocks))
    waveform = channels.mean(dim=1)
    if not len(channels) or not channels.abs().max() < LOUDEST:
        raise ValueError("no samples, or samples that are not finite or far outside [-1, 1]")
    if waveform.abs().max() < CANCELLED * channels.abs().max():
        raise ValueError("its channels cancel out to silence: give one channel")
    if changes is not None and channels.shape[1] > 1:
        changes.append("have several channels, which are averaged")
    return waveform, rate


def fitted(
    waveform: Tensor, rate: int, changes: list[str], sample_rate: int, samples: int
) -> Tensor:
    """Return a waveform at this rate and length; ``changes`` gets what was done."""
    if rate != sample_rate:
        changes.append(f"are resampled to data.sample_rate={sample_rate}")
    if len(waveform) * sample_rate > (samples + 1) * rate:
        changes.append(f"are longer than data.seconds={samples / sample_rate:g}, and cut")
    # Without a common factor filters would take gigabytes; this is within a cent of the pitch.
    ratio = Fraction(sample_rate, rate).limit_denominator(1000)
    waveform = torchaudio.functional.resample(waveform, ratio.denominator, ratio.numerator)
    return F.pad(waveform[:samples], (0, max(samples - len(waveform), 0)))


def standardised(
    features: Tensor, mean: float, std: float, masks: Sequence[nn.Module] = ()
) -> Tensor:
    """Return features less ``mean``, divided by ``std``, and masked: zero is the mean."""
    features = features.sub(mean).div_(std)
    for mask in masks:
        features = mask(features)
    return features


class AudioFolder(ClassFolder):
    r"""A user's own clips, mixed to mono, resampled to ``sample_rate`` and brought to ``seconds``.

    Inputs are ``float32``: log-mel spectrograms ``(1, n_mels, samples // hop_length + 1)``,

    $$
    \log \max\Big(\epsilon, \sum_f M_{mf} |\mathrm{STFT}(x)_{ft}|^2\Big), \quad \epsilon = 10^{-6}
    $$

    normalised by mean and standard deviation over the training split, or with
    ``features="waveform"`` the samples ``(samples,)`` in [-1, 1]. Layouts as of `ClassFolder`.

    The settings are described in ``conf/data/audio_folder.yaml``. A clip that is too short is
    followed by zeros. ``freq_mask`` and ``time_mask`` are SpecAugment's.

    Source of SpecAugment: Park et al., Interspeech 2019 (arXiv 1904.08779), without time warping.
    """

    kind = "clips"
    suffixes = (".wav", ".flac", ".ogg")

    def __init__(
        self,
        path: Place,
        *,
        sample_rate: int,
        seconds: float,
        n_mels: int,
        n_fft: int,
        hop_length: int,
        freq_mask: int,
        time_mask: int,
        features: Literal["log_mel", "waveform"] = "log_mel",
        **settings: Any,
    ) -> None:
        super().__init__(path, **settings)
        check_choice("features", features, ("log_mel", "waveform"))
        check_least(1, sample_rate=sample_rate, n_mels=n_mels, n_fft=n_fft, hop_length=hop_length)
        check_least(0, freq_mask=freq_mask, time_mask=time_mask)
        check_number("seconds", seconds, lambda length: length > 0, "a positive number")
        self.sample_rate, self.samples = sample_rate, round(seconds * sample_rate)
        self.freq_mask, self.time_mask = freq_mask, time_mask
        self.mel, least = None, 1
        if features == "log_mel":
            sizes = {"n_fft": n_fft, "hop_length": hop_length, "n_mels": n_mels}
            self.mel, least = MelSpectrogram(sample_rate, **sizes), n_fft // 2 + 1
            self.random_inputs = bool(freq_mask or time_mask)
        if self.samples < least:
            raise ValueError(f"seconds={seconds} are {self.samples} samples: {least} are needed")

    @property
    def input_spec(self) -> dict[str, Any]:
        return {} if self.mel is None else {"in_channels": 1}

    def decode(self, content: bytes, changes: list[str]) -> Tensor:
        waveform, rate = decode_clip(content, changes)
        waveform = fitted(waveform, rate, changes, self.sample_rate, self.samples)
        if self.mel is None:
            return waveform
        return self.mel(waveform).clamp(min=LOG_FLOOR).log().unsqueeze(0)

    def transforms(self, train: Tensor) -> tuple[Transform, Transform]:
        if self.mel is None:
            return None, None
        (mean,), (std,) = mean_and_std(train)
        masks = [FrequencyMasking(self.freq_mask), TimeMasking(self.time_mask)]
        plain = partial(standardised, mean=mean, std=std)
        return partial(plain, masks=masks), plain
