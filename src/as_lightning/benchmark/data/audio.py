"""Audio: clips read by soundfile, brought to one rate and length, as log-mel spectrograms or as waveforms."""

from __future__ import annotations

import hashlib
import io
import math
import re
import tarfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.download import fetch_checked
from as_lightning.benchmark.data.files import CACHE_LIMIT, NAMED, FileTree, FolderTree, open_tree
from as_lightning.benchmark.data.folder_classes import check_validation_share, split_classes
from as_lightning.benchmark.data.labelled import LabelledDataset

# torchaudio is imported where it is used: it refuses to load beside a torch that was built for another CUDA, and that
# must not keep anybody from images and text

Features = Literal["log_mel", "waveform"]

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")
LOG_FLOOR = 1e-6  # power below which log-mel takes all for silence: about that of 16-bit rounding noise


class Clip(Protocol):
    """Something that can be listened to."""

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

    def read(self) -> tuple[Tensor, int]:
        where = self.tree.where(self.name)
        try:
            content = self.tree.read(self.name)
        except (OSError, KeyError) as error:
            raise ValueError(f"{where} cannot be read ({error})") from error
        return decode(content, where)


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


class LogMel(nn.Module):
    r"""The logarithm of the mel-scaled power spectrum.

    .. math:: \log \max\Big(\epsilon, \sum_f M_{mf} \, |\mathrm{STFT}(x)_{ft}|^2\Big), \quad \epsilon = 10^{-6}

    ``M`` are triangular filters on the HTK mel scale from 0 Hz to half the sample rate, the window is Hann's.

    Args:
        sample_rate: of the waveforms, in Hz.
        n_mels: mel bands, at least 1.
        n_fft: length of the window in samples, at least 2.
        hop_length: samples from a frame to the next, at least 1.

    Shape:
        - input: ``(samples,)``, more than ``n_fft // 2`` of them; output: ``(1, n_mels, samples // hop_length + 1)``.

    Source: :class:`torchaudio.transforms.MelSpectrogram`.
    """

    def __init__(self, sample_rate: int, n_mels: int, n_fft: int, hop_length: int) -> None:
        super().__init__()
        from torchaudio.transforms import MelSpectrogram

        self.mel = MelSpectrogram(sample_rate, n_fft=n_fft, hop_length=hop_length, n_mels=n_mels)

    def forward(self, waveform: Tensor) -> Tensor:
        return self.mel(waveform).clamp(min=LOG_FLOOR).log().unsqueeze(0)


class Standardisation:
    """Features less the mean of the training split's, divided by their standard deviation (one of each for all bands).

    The sums are taken in float64, clip by clip: they are the same whether features are kept or computed anew.
    """

    def __init__(self) -> None:
        self.count, self.sum, self.sum_of_squares = 0, 0.0, 0.0

    def add(self, features: Tensor) -> None:
        """Count the features of a training clip in."""
        self.count += features.numel()
        self.sum += float(features.sum(dtype=torch.float64))
        self.sum_of_squares += float(features.double().square().sum())

    @property
    def mean(self) -> float:
        """The mean of all that was counted in."""
        return self.sum / self.count

    @property
    def std(self) -> float:
        """The standard deviation; 1 where all values are equal, as in clips that are all silent."""
        variance = self.sum_of_squares / self.count - self.mean**2
        return variance**0.5 if variance > 1e-9 else 1.0

    def apply(self, features: Tensor) -> Tensor:
        """``features`` themselves, changed in place: a second copy of all clips may be too much."""
        return features.sub_(self.mean).div_(self.std)


class ClipReader:
    """A clip's waveform at one rate and length, as a log-mel spectrogram where ``log_mel`` is given."""

    def __init__(self, sample_rate: int, samples: int, log_mel: LogMel | None) -> None:
        self.sample_rate, self.samples, self.log_mel = sample_rate, samples, log_mel

    def __call__(self, clip: Clip) -> Tensor:
        from torchaudio.functional import resample

        waveform, rate = clip.read()
        waveform = fit_length(resample(waveform, rate, self.sample_rate), self.samples)
        return waveform if self.log_mel is None else self.log_mel(waveform)


class ClipsAtAccess:
    """The features of clips, read and computed each time one is taken."""

    def __init__(self, clips: list[Clip], reader: ClipReader, standardisation: Standardisation | None) -> None:
        self.clips, self.reader, self.standardisation = clips, reader, standardisation

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> Tensor:
        features = self.reader(self.clips[index])
        return features if self.standardisation is None else self.standardisation.apply(features)


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
        data_dir: str | Path = "data",
        sample_rate: int = 16_000,
        seconds: float = 1.0,
        features: Features = "log_mel",
        n_mels: int = 40,
        n_fft: int = 512,
        hop_length: int = 160,
        freq_mask: int = 0,
        time_mask: int = 0,
        cache: bool | Literal["auto"] = "auto",
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        if features not in ("log_mel", "waveform"):
            raise ValueError(f"features must be 'log_mel' or 'waveform', got {features!r}")
        if cache not in (True, False, "auto"):
            raise ValueError(f"cache must be True, False or 'auto', got {cache!r}")
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
        self.features, self.cache = features, cache
        self.n_mels, self.freq_mask, self.time_mask = n_mels, freq_mask, time_mask
        self.frames = self.samples // hop_length + 1
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
        if freq_mask > n_mels or time_mask > self.frames:
            raise ValueError(
                f"freq_mask must be at most n_mels={n_mels} and time_mask at most the {self.frames} frames, got "
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
    def input_shape(self) -> tuple[int, ...]:
        """The shape of an input."""
        return (self.samples,) if self.log_mel is None else (1, self.n_mels, self.frames)

    def load_splits(self) -> dict[str, LabelledDataset]:
        indexed = self.index_clips()
        clips = {split: [row.clip for row in rows] for split, rows in indexed.items()}
        targets = self.encode_labels({split: [row.label for row in rows] for split, rows in indexed.items()})
        reader = ClipReader(self.sample_rate, self.samples, self.log_mel)
        count = sum(map(len, clips.values()))
        keep = self.cache is True or (self.cache == "auto" and 4 * count * math.prod(self.input_shape) < CACHE_LIMIT)
        kept = {split: torch.empty(len(rows), *self.input_shape) for split, rows in clips.items()} if keep else {}
        training, bad = Standardisation(), []
        for split, rows in clips.items():
            for index, clip in enumerate(rows):
                try:
                    features = reader(clip)
                except ValueError as error:
                    bad.append(str(error))
                    continue
                if split == "train":
                    training.add(features)
                if keep:
                    kept[split][index] = features
        if bad:
            more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
            raise ValueError(f"{len(bad)} of {count} audio files cannot be used: {'; '.join(bad[:NAMED])}{more}")
        standardisation = None if self.log_mel is None else training
        if standardisation is not None:
            for features in kept.values():
                standardisation.apply(features)
        inputs: Mapping[str, Any] = kept or {
            split: ClipsAtAccess(rows, reader, standardisation) for split, rows in clips.items()
        }
        augmentation = {"train": self._spec_augment()}
        return {split: LabelledDataset(inputs[split], targets[split], augmentation.get(split)) for split in clips}

    def _spec_augment(self) -> nn.Module | None:
        if not (self.freq_mask or self.time_mask):
            return None
        from torchaudio.transforms import FrequencyMasking, TimeMasking

        # the masks are of zeros, the mean of standardised features
        return nn.Sequential(FrequencyMasking(self.freq_mask), TimeMasking(self.time_mask))


class FSDD(AudioDataModule):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz, CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9 validation and the rest
    training. ``data_dir`` holds ``fsdd.tar.gz`` or a folder ``fsdd``, with the recordings in a folder ``recordings`` at
    any depth; where it has neither, release 1.0.10 is downloaded. GitHub packs an archive anew when it likes, so that
    the archive has no lasting checksum; the recordings have: :attr:`SHA256` is what
    ``LC_ALL=C sha256sum *.wav | sha256sum`` prints in their folder.

    Args:
        sample_rate: in Hz; the recordings have 8,000.
        **audio: arguments of :class:`AudioDataModule`.

    Raises:
        ValueError: if a recording has another name than ``{digit}_{speaker}_{index}.wav``, or they are not those of
            release 1.0.10.
        RuntimeError: if they are not in ``data_dir`` and cannot be downloaded.

    Source: Jackson et al., ``github.com/Jakobovski/free-spoken-digit-dataset``, version 1.0.10.
    """

    ARCHIVE = "fsdd.tar.gz"
    URL = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
    SHA256 = "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"

    def __init__(self, data_dir: str | Path = "data", sample_rate: int = 8_000, **audio: Any) -> None:
        super().__init__(data_dir=data_dir, sample_rate=sample_rate, **audio)

    def prepare_data(self) -> None:
        self._path()

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        tree = open_tree(self._path())
        self._check(tree)
        splits: dict[str, list[LabelledClip]] = {"train": [], "validation": [], "test": []}
        for name, digit, index in fsdd_recordings(tree):
            split = "test" if index < 5 else "validation" if index < 10 else "train"
            splits[split].append(LabelledClip(AudioFile(tree, name), digit))
        return splits

    def _path(self) -> Path:
        folder = self.data_dir / "fsdd"
        if folder.is_dir():
            return folder
        return fetch_checked(self.ARCHIVE, self.URL, lambda path: self._check(open_tree(path)), self.data_dir)

    def _check(self, tree: FileTree) -> None:
        sums = (
            f"{hashlib.sha256(tree.read(name)).hexdigest()}  {PurePosixPath(name).name}\n"
            for name, _, _ in fsdd_recordings(tree)
        )
        found = hashlib.sha256("".join(sums).encode()).hexdigest()
        if found != self.SHA256:
            raise ValueError(
                f"{tree.root}: the recordings are not those of release 1.0.10: expected SHA-256 {self.SHA256} over "
                f"their names and contents, got {found}. They are damaged or of another release: delete them to "
                "download them again, or point data_dir elsewhere"
            )


def fsdd_recordings(tree: FileTree) -> Iterator[tuple[str, str, int]]:
    """The WAV files in folders named ``recordings``: name, digit and index, in the order of their names.

    Raises:
        ValueError: if there is none, or one has another name than ``{digit}_{speaker}_{index}.wav``.
    """
    names = [name for name in tree.names if PurePosixPath(name).parent.name == "recordings" and name.endswith(".wav")]
    if not names:
        raise ValueError(f"{tree.root}: expected a folder 'recordings' with WAV files, found none")
    for name in names:
        matched = re.fullmatch(r"([0-9])_[a-z]+_([0-9]+)\.wav", PurePosixPath(name).name)
        if matched is None:
            raise ValueError(f"{tree.where(name)}: expected a name like {{digit}}_{{speaker}}_{{index}}.wav")
        yield name, matched[1], int(matched[2])


class SpeechCommands(AudioDataModule):
    """Speech Commands 0.02: 35 spoken words in clips of a second, 16 kHz, 84,843 / 9,981 / 11,005 clips, CC BY 4.0.

    The splits are those of its own lists, which part the speakers. ``data_dir`` holds the folder
    ``SpeechCommands/speech_commands_v0.02`` that torchaudio unpacks; where it is missing, torchaudio downloads it (2.3
    GB, checked) into a folder beside it, which is given its name when it is complete.

    Raises:
        RuntimeError: if it is not in ``data_dir`` and cannot be downloaded.

    Source: Warden 2018 (arXiv 1804.03209); :class:`torchaudio.datasets.SPEECHCOMMANDS`.
    """

    URL: ClassVar[str] = "speech_commands_v0.02"
    SUBSETS: ClassVar[dict[str, str]] = {"train": "training", "validation": "validation", "test": "testing"}

    def prepare_data(self) -> None:
        from torchaudio.datasets import SPEECHCOMMANDS

        folder = self.data_dir / "SpeechCommands" / "speech_commands_v0.02"
        if folder.is_dir():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # torchaudio takes a folder that is there for complete: it must not see one that was unpacked by half
        with TemporaryDirectory(dir=self.data_dir, prefix=".speech_commands_") as unpacked:
            try:
                SPEECHCOMMANDS(unpacked, url=self.URL, download=True)
            # no connection; another checksum; an archive that ends half-way
            except (OSError, RuntimeError, EOFError, tarfile.TarError) as error:
                raise RuntimeError(
                    f"{folder} does not exist and Speech Commands could not be downloaded: {error}. Unpack "
                    "speech_commands_v0.02.tar.gz there by hand, or set data_dir (or the environment variable "
                    "AS_LIGHTNING_DATA) to a directory that holds it"
                ) from error
            folder.parent.mkdir(exist_ok=True)
            (Path(unpacked) / "SpeechCommands" / folder.name).rename(folder)

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        from torchaudio.datasets import SPEECHCOMMANDS

        tree = FolderTree(self.data_dir / "SpeechCommands")
        splits = {}
        for split, subset in self.SUBSETS.items():
            listed = SPEECHCOMMANDS(self.data_dir, url=self.URL, subset=subset)
            rows = (listed.get_metadata(index) for index in range(len(listed)))
            splits[split] = [LabelledClip(AudioFile(tree, name), word) for name, _, word, _, _ in rows]
        return splits


class AudioFolder(AudioDataModule):
    """A user's own clips: ``train/<class>/*.wav``, ``test/<class>/*.wav`` and perhaps ``validation/<class>/*.wav``.

    Files that end in ``.wav``, ``.flac`` or ``.ogg`` are clips, others are not looked at. Without ``validation`` (or
    ``val``), ``validation_share`` of each class of ``train`` is for validation. Where class folders alone are found,
    without ``train`` and ``test`` above them, a tenth of each class is the test split too. A clip may lie deeper below
    its class folder, and a folder around all that, as archives tend to have, makes no difference: the rules are those
    of the image folder.

    Args:
        path: a folder, or a tar or zip archive, which is read where it lies; a relative path is taken from
            ``data_dir``.
        validation_share: see above, in (0, 1); of ``n`` clips of a class it takes ``max(1, round(n * share))``.
        split_seed: seeds the splits that it makes, apart from the run's seed.
        **audio: arguments of :class:`AudioDataModule`.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        ValueError: if an argument is out of range; the folders are not as described; there is one class alone; a class
            folder of the training split has no clips; or a class has too few clips to split.
    """

    def __init__(self, path: str | Path, validation_share: float = 0.1, split_seed: int = 0, **audio: Any) -> None:
        super().__init__(**audio)
        check_validation_share(validation_share)
        self.path, self.validation_share, self.split_seed = path, validation_share, split_seed

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        tree = open_tree(self.data_dir / Path(self.path).expanduser())
        splits = split_classes(
            tree, AUDIO_SUFFIXES, "clips", validation_share=self.validation_share, split_seed=self.split_seed
        )
        return {
            split: [LabelledClip(AudioFile(tree, name), label) for label, names in classes.items() for name in names]
            for split, classes in splits.items()
        }
