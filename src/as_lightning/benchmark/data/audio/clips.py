"""Clips: audio files read by soundfile, brought to one sample rate and length."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.benchmark.data.audio.log_mel import LogMel
from as_lightning.benchmark.data.decoded_files import DecodableFiles
from as_lightning.benchmark.data.files import FileTree
from as_lightning.benchmark.packages import loading

# torchaudio is imported where it is used: it refuses to load beside a torch that was built for another CUDA, and that
# must not keep anybody from images and text


class Clip(Protocol):
    """A recording or a synthetic sound."""

    def where(self) -> str:
        """The clip as an error message names it."""
        ...

    def read(self) -> tuple[Tensor, int]:
        """The samples, ``float32`` of shape ``(samples,)`` in [-1, 1], and their rate in Hz.

        Raises:
            ValueError: if there are none; the message names the clip.
        """
        ...


class LabelledClip(NamedTuple):
    """A clip and the name of its class."""

    clip: Clip
    label: str


class AudioFile(NamedTuple):
    """A clip in a file that soundfile reads (WAV, FLAC, Ogg), below a folder or in an archive."""

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

    A WAV file that was cut short is a shorter clip to libsndfile, and no error.

    Args:
        content: the bytes of the file.
        where: the file as an error message names it.

    Raises:
        ValueError: if it is no audio, or has no samples, or some that are not finite.
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
    """The first ``samples`` samples; a shorter waveform gets zeros at its end. Shape ``(samples,)``.

    Example:
        >>> fit_length(torch.tensor([1.0, 2.0]), 4)
        tensor([1., 2., 0., 0.])
    """
    return F.pad(waveform[:samples], (0, max(0, samples - len(waveform))))


class ClipFeatures(DecodableFiles):
    """The clips of a split as waveforms of one rate and length, or as log-mel spectrograms of these.

    Args:
        clips: the clips.
        sample_rate: of the waveforms, in Hz.
        samples: their length.
        log_mel: what makes spectrograms of them; None for waveforms.
    """

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
