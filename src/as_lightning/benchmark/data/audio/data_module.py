"""What audio data share: features of clips, standardised, with SpecAugment on the training split."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Literal

from torch import nn

from as_lightning.benchmark.data.audio.clips import ClipFeatures, LabelledClip
from as_lightning.benchmark.data.audio.log_mel import LogMel
from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.decoded_files import Cache, check_cache, decode_once
from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.data.standardisation import Standardise, mean_and_std
from as_lightning.benchmark.packages import loading

Features = Literal["log_mel", "waveform"]


class AudioDataModule(BenchmarkDataModule):
    """Clips of one class each, mixed to mono, resampled to ``sample_rate`` and brought to ``seconds``.

    Inputs are ``float32``: log-mel spectrograms (:class:`LogMel`) of shape ``(1, n_mels, frames)``, normalised by mean
    and standard deviation over the training split, or waveforms of shape ``(samples,)`` in [-1, 1], for encoders that
    read these; ``samples = round(seconds * sample_rate)`` and ``frames = samples // hop_length + 1``. Targets are
    ``int64``. ``setup`` reads every file once. A subclass lists its clips in :meth:`index_clips`.

    Args:
        data_dir: where its files are, or are downloaded to.
        sample_rate: in Hz, at least 1.
        seconds: length of a clip; the end of longer ones is cut off, shorter ones are followed by zeros.
        features: ``"log_mel"`` or ``"waveform"``.
        n_mels: mel bands of a log-mel spectrogram, at least 1.
        n_fft: its window in samples, at least 2.
        hop_length: samples from one of its frames to the next, at least 1.
        freq_mask: SpecAugment on the training split: up to ``freq_mask - 1`` neighbouring mel bands are set to the mean
            each time a clip is taken; 0 or 1 is none, ``n_mels`` the most.
        time_mask: the same for frames.
        cache: keep the features of all clips in memory (True), compute them each time a clip is taken (False), to the
            same values, or ``"auto"``: keep them if they take less than 1 GiB.
        **loader: arguments of :class:`BenchmarkDataModule`.

    Raises:
        ValueError: if an argument is out of range, a file is no audio (``setup`` counts such files and names the first
            five), or a class of a later split is not among the training split's.

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
        for name, value, least in (
            ("sample_rate", sample_rate, 1),
            ("n_mels", n_mels, 1),
            ("n_fft", n_fft, 2),
            ("hop_length", hop_length, 1),
            ("freq_mask", freq_mask, 0),
            ("time_mask", time_mask, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
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
