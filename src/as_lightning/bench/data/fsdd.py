"""The Free Spoken Digit Dataset: which recording is of which split."""

from __future__ import annotations

import random
import tarfile
import zlib
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from as_lightning.bench.data.audio_folder import AudioFolder
from as_lightning.bench.data.base import SPLITS
from as_lightning.bench.data.class_folder import LabelledFile


class FSDD(AudioFolder):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz,
    CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9
    validation; ``split_seed`` draws others. A ValueError refuses another archive than release
    1.0.10.

    Source: Jackson et al., ``github.com/Jakobovski/free-spoken-digit-dataset``.
    """

    splits_by_seed = True

    def __init__(self, split_seed: int | None = None, **audio: Any) -> None:
        super().__init__(split_seed=split_seed, **audio)
        self.split_seed = split_seed

    def index(self) -> dict[str, list[LabelledFile]]:
        path = self.files()["all"]
        recordings = {}
        with suppress(tarfile.TarError, zlib.error, EOFError), tarfile.open(path) as archive:
            for member in archive:
                file, place = archive.extractfile(member), PurePosixPath(member.name)
                if file is not None and place.match("recordings/*.wav"):
                    recordings[place.name] = file.read()
        if len(recordings) != 3000:
            raise ValueError(
                f"{path}: expected the 3,000 recordings of release 1.0.10, found "
                f"{len(recordings)}: delete it to load it again, or point data_dir elsewhere"
            )
        splits: dict[str, list[LabelledFile]] = {split: [] for split in SPLITS}
        order = list(range(50))  # a speaker's recordings of a digit
        if self.split_seed is not None:
            random.Random(self.split_seed).shuffle(order)
        for name, content in sorted(recordings.items()):
            digit, _, number = name.removesuffix(".wav").split("_")
            position = order.index(int(number))
            split = ("test", "validation", *8 * ["train"])[position // 5]
            splits[split].append(LabelledFile(digit, f"recordings/{name}", content.__bytes__))
        return splits
