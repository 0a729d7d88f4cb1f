"""Published clips of spoken words: where they come from, and which of them are of which split."""

from __future__ import annotations

import hashlib
import random
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, AudioFile, LabelledClip
from as_lightning.benchmark.data.download import fetch_checked
from as_lightning.benchmark.data.files import FileTree, FolderTree, open_tree
from as_lightning.benchmark.packages import loading

RECORDINGS = 50  # of each digit by each speaker


class FSDD(AudioDataModule):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz, CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9 validation. ``data_dir``
    holds ``fsdd.tar.gz`` or a folder ``fsdd``; otherwise release 1.0.10 is downloaded. GitHub packs an archive anew
    when it likes, so the recordings have the checksum: ``LC_ALL=C sha256sum *.wav | sha256sum``.

    ``split_seed`` seeds which recordings are of which split; None takes the published ones.

    Raises:
        ValueError: if the recordings are not those of release 1.0.10.
        RuntimeError: if they are not in ``data_dir`` and cannot be downloaded.

    Source: Jackson et al., ``github.com/Jakobovski/free-spoken-digit-dataset``.
    """

    ARCHIVE = "fsdd.tar.gz"
    URL = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
    SHA256 = "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"

    def __init__(self, sample_rate: int = 8_000, split_seed: int | None = None, **audio: Any) -> None:
        super().__init__(sample_rate=sample_rate, **audio)
        self.split_seed = split_seed

    @property
    def splits_by_seed(self) -> bool:
        return True

    def prepare_data(self) -> None:
        self._path()

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        tree = open_tree(self._path())
        self._check(tree)
        splits: dict[str, list[LabelledClip]] = {"train": [], "validation": [], "test": []}
        order = list(range(RECORDINGS))
        if self.split_seed is not None:
            random.Random(self.split_seed).shuffle(order)
        for name, digit, index in fsdd_recordings(tree):
            place = order.index(index)
            split = "test" if place < 5 else "validation" if place < 10 else "train"
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
    """The WAV files in folders named ``recordings``: name, digit and index; a ValueError for other names."""
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

    torchaudio downloads it (2.3 GB, checked) where ``data_dir`` has no ``SpeechCommands/speech_commands_v0.02``.

    Raises:
        RuntimeError: if it is not in ``data_dir`` and cannot be downloaded.

    Source: Warden 2018 (arXiv 1804.03209); `torchaudio.datasets.SPEECHCOMMANDS`.
    """

    URL: ClassVar[str] = "speech_commands_v0.02"
    SUBSETS: ClassVar[dict[str, str]] = {"train": "training", "validation": "validation", "test": "testing"}

    def prepare_data(self) -> None:
        with loading("torchaudio"):
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
        with loading("torchaudio"):
            from torchaudio.datasets import SPEECHCOMMANDS

        tree = FolderTree(self.data_dir / "SpeechCommands")
        splits = {}
        for split, subset in self.SUBSETS.items():
            listed = SPEECHCOMMANDS(self.data_dir, url=self.URL, subset=subset)
            rows = (listed.get_metadata(index) for index in range(len(listed)))
            splits[split] = [LabelledClip(AudioFile(tree, name), word) for name, _, word, _, _ in rows]
        return splits
