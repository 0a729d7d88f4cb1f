"""Clips: how they are read and turned into features, standardised, with SpecAugment on the training split."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.benchmark.data.base import BenchmarkDataModule, LabelledDataset, check_least
from as_lightning.benchmark.data.decoded_files import (
    Cache,
    DecodableFiles,
    Standardise,
    check_cache,
    decode_once,
    mean_and_std,
)
from as_lightning.benchmark.data.files import FileTree
from as_lightning.benchmark.packages import loading

LOG_FLOOR = 1e-6  # power below which log-mel takes all for silence: about that of 16-bit rounding noise


class LogMel(nn.Module):
    r"""The logarithm of the mel-scaled power spectrum (`torchaudio.transforms.MelSpectrogram`).

    $$
    \log \max\Big(\epsilon, \sum_f M_{mf} \, |\mathrm{STFT}(x)_{ft}|^2\Big), \quad \epsilon = 10^{-6}
    $$

    Shape:
        - input: ``(samples,)``, more than ``n_fft // 2``; output: ``(1, n_mels, samples // hop_length + 1)``.
    """

    def __init__(self, sample_rate: int, n_mels: int, n_fft: int, hop_length: int) -> None:
        super().__init__()
        with loading("torchaudio"):
            from torchaudio.transforms import MelSpectrogram

        self.mel = MelSpectrogram(sample_rate, n_fft=n_fft, hop_length=hop_length, n_mels=n_mels)

    def forward(self, waveform: Tensor) -> Tensor:
        return self.mel(waveform).clamp(min=LOG_FLOOR).log().unsqueeze(0)


# torchaudio is imported where it is used: it refuses to load beside a torch that was built for another CUDA, and that
# must not keep anybody from images and text


class Clip(Protocol):
    """A recording or a synthetic sound."""

    def where(self) -> str:
        """The clip as an error message names it."""
        ...

    def read(self) -> tuple[Tensor, int]:
        """The samples, ``float32`` ``(samples,)`` in [-1, 1], and their rate in Hz; a ValueError names the clip."""
        ...


class LabelledClip(NamedTuple):
    """A clip and the name of its class."""

    clip: Clip
    label: str


class AudioFile(NamedTuple):
    """A clip in a file that soundfile reads, below a folder or in an archive."""

    tree: FileTree
    name: str

    def where(self) -> str:
        return self.tree.where(self.name)

    def read(self) -> tuple[Tensor, int]:
        try:
            content = self.tree.read(self.name)
        except (OSError, KeyError) as error:
            raise ValueError(f"{self.where()} cannot be read ({error})") from error
        return decode(content, self.where())


def decode(content: bytes, where: str) -> tuple[Tensor, int]:
    """The samples of an audio file, its channels averaged, ``float32`` of shape ``(samples,)``, and their rate in Hz.

    A WAV file that was cut short is a shorter clip to libsndfile, and no error. A ValueError that begins with ``where``
    refuses what is no audio, or has no samples, or some that are not finite.
    """
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise ValueError(f"{where} is no readable audio ({getattr(error, 'error_string', error)})") from error
    waveform = torch.from_numpy(samples).mean(dim=1)
    if not len(waveform):
        raise ValueError(f"{where} has no samples")
    if not waveform.isfinite().all():
        raise ValueError(f"{where} has samples that are not finite")
    return waveform, rate


def fit_length(waveform: Tensor, samples: int) -> Tensor:
    """The first ``samples`` samples; a shorter waveform gets zeros at its end."""
    return F.pad(waveform[:samples], (0, max(0, samples - len(waveform))))


class ClipFeatures(DecodableFiles):
    """The clips of a split as waveforms of one rate and length, or as log-mel spectrograms of these."""

    def __init__(self, clips: Sequence[Clip], sample_rate: int, samples: int, log_mel: LogMel | None) -> None:
        self.clips, self.sample_rate, self.samples, self.log_mel = clips, sample_rate, samples, log_mel

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one at a time, no slices
        with loading("torchaudio"):
            from torchaudio.functional import resample

        waveform, rate = self.clips[index].read()
        waveform = fit_length(resample(waveform, rate, self.sample_rate), self.samples)
        return waveform if self.log_mel is None else self.log_mel(waveform)

    def where(self, index: int) -> str:
        return self.clips[index].where()


Features = Literal["log_mel", "waveform"]


class AudioDataModule(BenchmarkDataModule):
    """Clips of one class each, mixed to mono, resampled to ``sample_rate`` and brought to ``seconds``.

    Inputs are ``float32``: log-mel spectrograms ``(1, n_mels, samples // hop_length + 1)``, normalised by mean and
    standard deviation over the training split, or waveforms ``(samples,)`` in [-1, 1]. Targets are ``int64``.

    Args:
        data_dir: where its files are, or are downloaded to.
        sample_rate: in Hz.
        seconds: length of a clip; longer ones are cut off, shorter ones are followed by zeros.
        features: ``"log_mel"`` or ``"waveform"``.
        n_mels: mel bands; ``n_fft``: window in samples; ``hop_length``: samples from a frame to the next.
        freq_mask: SpecAugment of the training split: up to ``freq_mask - 1`` neighbouring mel bands are masked.
        time_mask: the same for frames.
        cache: keep features in memory (True), compute them each time (False), or keep them below 1 GiB (``"auto"``).

    Raises:
        ValueError: if an argument is out of range, files are no audio, or a later split has a class of its own.

    Source of SpecAugment: Park et al., Interspeech 2019 (arXiv 1904.08779), without time warping.
    """

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
        data_dir: str | Path = "data",
        features: Features = "log_mel",
        cache: Cache = "auto",
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        if features not in ("log_mel", "waveform"):
            raise ValueError(f"features must be 'log_mel' or 'waveform', got {features!r}")
        check_least(1, sample_rate=sample_rate, n_mels=n_mels, hop_length=hop_length)
        check_least(2, n_fft=n_fft)
        check_least(0, freq_mask=freq_mask, time_mask=time_mask)
        self.data_dir = Path(data_dir).expanduser()
        self.sample_rate, self.samples = sample_rate, round(seconds * sample_rate)
        self.features, self.cache = features, check_cache(cache)
        self.freq_mask, self.time_mask = freq_mask, time_mask
        frames = self.samples // hop_length + 1
        if features == "waveform":
            if self.samples < 1:
                raise ValueError(f"seconds={seconds} at {sample_rate} Hz is less than a sample")
            if freq_mask or time_mask:
                raise ValueError("freq_mask and time_mask are for features='log_mel', got features='waveform'")
            self.log_mel: LogMel | None = None
            return
        if self.samples <= n_fft // 2:
            raise ValueError(
                f"seconds={seconds} at {sample_rate} Hz are {self.samples} samples: more than n_fft // 2 = "
                f"{n_fft // 2} are needed"
            )
        if freq_mask > n_mels or time_mask > frames:
            raise ValueError(
                f"freq_mask must be at most n_mels={n_mels} and time_mask at most the {frames} frames, got "
                f"{freq_mask} and {time_mask}"
            )
        self.log_mel = LogMel(sample_rate, n_mels, n_fft, hop_length)

    @abstractmethod
    def index_clips(self) -> dict[str, list[LabelledClip]]:
        """The clips of the splits ``train``, ``validation`` and ``test``."""

    @property
    def input_spec(self) -> dict[str, Any]:
        return {} if self.log_mel is None else {"in_channels": 1}

    @property
    def random_inputs(self) -> bool:
        return bool(self.freq_mask or self.time_mask)

    def load_splits(self) -> dict[str, LabelledDataset]:
        indexed = self.index_clips()
        targets = self.encode_labels({split: [row.label for row in rows] for split, rows in indexed.items()})
        clips = {
            split: ClipFeatures([row.clip for row in rows], self.sample_rate, self.samples, self.log_mel)
            for split, rows in indexed.items()
        }
        self.texts = dict(clips)
        decoded = decode_once(clips, self.cache, kind="audio files")
        transforms: dict[str, nn.Module] = {}
        if self.log_mel is not None:
            standardise = Standardise(*(value.item() for value in mean_and_std(decoded.training_sums)))
            transforms = dict.fromkeys(clips, standardise) | {"train": self._augmented(standardise)}
        return {split: LabelledDataset(decoded.inputs[split], targets[split], transforms.get(split)) for split in clips}

    def _augmented(self, standardise: Standardise) -> nn.Module:
        if not (self.freq_mask or self.time_mask):
            return standardise
        with loading("torchaudio"):
            from torchaudio.transforms import FrequencyMasking, TimeMasking

        # the masks are of zeros, the mean of standardised features
        return nn.Sequential(standardise, FrequencyMasking(self.freq_mask), TimeMasking(self.time_mask))
