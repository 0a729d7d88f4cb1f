"""The Free Spoken Digit Dataset: where it comes from, and which recording is of which split."""

from __future__ import annotations

import random
import tarfile
import zlib
from pathlib import PurePosixPath
from typing import Any, ClassVar

from as_lightning.bench.data.audio_folder import AudioFolder
from as_lightning.bench.data.base import SPLITS
from as_lightning.bench.data.class_folder import LabelledFile
from as_lightning.bench.data.files import RemoteFile

RECORDINGS = 50  # of each digit by each speaker


class FSDD(AudioFolder):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz,
    CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9
    validation; ``split_seed`` draws others. ``data_dir`` holds ``fsdd.tar.gz``; otherwise release
    1.0.10 is downloaded. GitHub may pack the archive anew, so its checksum is not compared.

    Source: Jackson et al., ``github.com/Jakobovski/free-spoken-digit-dataset``.
    """

    HOME = (
        "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
    )
    FILES: ClassVar[dict[str, RemoteFile]] = {"all": RemoteFile("fsdd.tar.gz", HOME, None)}
    splits_by_seed = True

    def __init__(
        self, sample_rate: int = 8_000, split_seed: int | None = None, **audio: Any
    ) -> None:
        super().__init__(None, sample_rate=sample_rate, split_seed=split_seed or 0, **audio)
        self.split_seed = split_seed

    def index(self) -> dict[str, list[LabelledFile]]:
        path = self.files()["all"]
        recordings = {}
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    file, place = archive.extractfile(member), PurePosixPath(member.name)
                    if file is not None and place.match("recordings/*.wav"):
                        recordings[place.name] = file.read()
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it to load it again") from error
        if len(recordings) != 60 * RECORDINGS:
            raise ValueError(
                f"{path}: expected the 3,000 recordings of release 1.0.10, found "
                f"{len(recordings)}: delete it to load it again, or point data_dir elsewhere"
            )
        splits: dict[str, list[LabelledFile]] = {split: [] for split in SPLITS}
        order = list(range(RECORDINGS))
        if self.split_seed is not None:
            random.Random(self.split_seed).shuffle(order)
        for name, content in sorted(recordings.items()):
            digit, _, number = name.removesuffix(".wav").split("_")
            position = order.index(int(number))
            split = "test" if position < 5 else "validation" if position < 10 else "train"
            name = f"recordings/{name}"
            splits[split].append(LabelledFile(digit, name, content.__bytes__, f"{path}/{name}"))
        return splits
