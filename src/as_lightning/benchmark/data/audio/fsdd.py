"""Free Spoken Digit Dataset: real clips, small enough for a CPU."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, AudioFile, LabelledClip
from as_lightning.benchmark.data.download import fetch_checked
from as_lightning.benchmark.data.files import FileTree, open_tree

RECORDINGS = 50  # of each digit by each speaker


class FSDD(AudioDataModule):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz, CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9 validation. ``data_dir``
    holds ``fsdd.tar.gz`` or a folder ``fsdd``; otherwise release 1.0.10 is downloaded. GitHub packs an archive anew
    when it likes, so the recordings have the checksum: ``LC_ALL=C sha256sum *.wav | sha256sum``.

    Args:
        sample_rate: in Hz; the recordings have 8,000.
        split_seed: seeds which recordings are of which split; None takes the first five for the test, the next five
            for validation.
        **audio: arguments of :class:`AudioDataModule`.

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
