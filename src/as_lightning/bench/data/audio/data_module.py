"""Clips: how they are read and turned into features, standardised, with SpecAugment on the training
split.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.decoded_files import DecodedDataModule, Transform, mean_and_std
from as_lightning.bench.packages import loading
from as_lightning.functional.argument_checks import check_choice, check_number

with loading("torchaudio"):
    import torchaudio
    from torchaudio.transforms import FrequencyMasking, MelSpectrogram, TimeMasking

LOG_FLOOR = (
    1e-6  # least power of log-mel, about that of 16-bit rounding noise: less counts as silence
)

REACH = 50  # samples of either rate that a resampling's filters read past the end of a clip


def decode_clip(content: bytes) -> tuple[Tensor, int]:
    """The samples of an audio file, its channels averaged, ``float32`` of shape ``(samples,)``, and
    their rate in Hz.

    A ValueError refuses what is no audio, has no samples, or some that are not finite; a WAV file
    that was cut short is a shorter clip to libsndfile.
    """
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise ValueError(f"no readable audio ({getattr(error, 'error_string', error)})") from error
    waveform = torch.from_numpy(samples).mean(dim=1)
    if not len(waveform) or not waveform.isfinite().all():
        raise ValueError("samples that are not finite" if len(waveform) else "no samples")
    return waveform, rate


Clip = (
    bytes | tuple[Tensor, int]
)  # an audio file, or the samples ``(samples,)`` in [-1, 1] and their rate in Hz


def clip_features(clip: Clip, sample_rate: int, samples: int, mel: MelSpectrogram | None) -> Tensor:
    r"""A clip's waveform at this rate and length, cut off or padded with zeros; with ``mel`` its
    log-mel spectrogram.

    $$
    \log \max\Big(\epsilon, \sum_f M_{mf} \, |\mathrm{STFT}(x)_{ft}|^2\Big), \quad \epsilon = 10^{-6}
    $$
    """
    waveform, rate = decode_clip(clip) if isinstance(clip, bytes) else clip
    # the filters between two rates without a common factor would take gigabytes; the nearest ratio
    # of small numbers is exact for every pair of usual rates, and changes the pitch of others by
    # less than a cent
    ratio = Fraction(sample_rate, rate).limit_denominator(1000)
    waveform = waveform[: (samples + REACH) * rate // sample_rate + REACH]
    waveform = torchaudio.functional.resample(waveform, ratio.denominator, ratio.numerator)[
        :samples
    ]
    waveform = F.pad(waveform, (0, samples - len(waveform)))
    return waveform if mel is None else mel(waveform).clamp(min=LOG_FLOOR).log().unsqueeze(0)


def standardised(
    features: Tensor, mean: float, std: float, masks: Sequence[nn.Module] = ()
) -> Tensor:
    """Features less ``mean``, divided by ``std``; masked only then, as the masks' zero is then the
    mean.
    """
    features = features.sub(mean).div_(std)
    for mask in masks:
        features = mask(features)
    return features


class AudioDataModule(DecodedDataModule):
    """Clips of one class each, mixed to mono, resampled to ``sample_rate`` and brought to
    ``seconds``.

    Inputs are ``float32``: log-mel spectrograms ``(1, n_mels, samples // hop_length + 1)``,
    normalised by mean and standard deviation over the training split, or waveforms ``(samples,)``
    in [-1, 1]. Targets are ``int64``.

    The settings are described in ``conf/data/fsdd.yaml``. A clip that is too long is cut off, one
    that is too short is followed by zeros. ``freq_mask`` and ``time_mask`` are SpecAugment's, of
    the training split alone.

    Source of SpecAugment: Park et al., Interspeech 2019 (arXiv 1904.08779), without time warping.
    """

    kind = "clips"

    def __init__(
        self,
        *,
        sample_rate: int,
        seconds: float,
        n_mels: int,
        n_fft: int,
        hop_length: int,
        freq_mask: int,
        time_mask: int,
        features: Literal["log_mel", "waveform"] = "log_mel",
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        check_choice("features", features, ("log_mel", "waveform"))
        check_least(1, sample_rate=sample_rate, n_mels=n_mels, n_fft=n_fft, hop_length=hop_length)
        check_least(0, freq_mask=freq_mask, time_mask=time_mask)
        check_number("seconds", seconds, lambda length: length > 0, "a positive number")
        self.sample_rate, self.seconds, self.samples = (
            sample_rate,
            seconds,
            round(seconds * sample_rate),
        )
        self.freq_mask, self.time_mask = freq_mask, time_mask
        is_waveform = features == "waveform"
        if is_waveform and self.random_inputs:
            raise ValueError(
                "freq_mask and time_mask are for features='log_mel', got features='waveform'"
            )
        least = 1 if is_waveform else n_fft // 2 + 1
        if self.samples < least:
            raise ValueError(
                f"seconds={seconds} at {sample_rate} Hz are {self.samples} samples: at least "
                f"{least} are needed"
            )
        frames = self.samples // hop_length + 1
        for name, mask, size in (
            ("freq_mask", freq_mask, n_mels),
            ("time_mask", time_mask, frames),
        ):
            if mask > size:  # it could mask a whole clip
                raise ValueError(
                    f"{name}={mask} is more than a clip's {size}: set it to that or less"
                )
        sizes = {"n_fft": n_fft, "hop_length": hop_length, "n_mels": n_mels}
        self.mel = None if is_waveform else MelSpectrogram(sample_rate, **sizes)
        self.decode = partial(
            clip_features, sample_rate=sample_rate, samples=self.samples, mel=self.mel
        )

    @property
    def input_spec(self) -> dict[str, Any]:
        return {} if self.mel is None else {"in_channels": 1}

    @property
    def random_inputs(self) -> bool:
        return bool(self.freq_mask or self.time_mask)

    def transforms(self, sums: Tensor, shape: torch.Size) -> tuple[Transform, Transform]:
        if self.mel is None:
            return None, None
        (mean,), (std,) = mean_and_std(sums)
        masks = [FrequencyMasking(self.freq_mask), TimeMasking(self.time_mask)]
        plain = partial(standardised, mean=mean, std=std)
        return partial(plain, masks=masks), plain
