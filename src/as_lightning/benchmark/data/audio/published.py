"""Published clips of spoken words: where they come from, and which of them are of which split."""

from __future__ import annotations

import hashlib
import random
import tarfile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, decode, load_torchaudio
from as_lightning.benchmark.data.base import SPLITS
from as_lightning.benchmark.data.files import HINT, FileTree, LabelledFile, RemoteFile

RECORDINGS = 50  # of each digit by each speaker


class FSDD(AudioDataModule):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz, CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9 validation. ``data_dir``
    holds ``fsdd.tar.gz``; otherwise release 1.0.10 is downloaded. GitHub packs an archive anew when it likes, so the
    recordings have the checksum: ``LC_ALL=C sha256sum *.wav | sha256sum``.

    ``split_seed`` seeds which recordings are of which split; None takes the published ones.

    Raises:
        ValueError: if the recordings are not those of release 1.0.10.
        RuntimeError: if they are not in ``data_dir`` and cannot be downloaded.

    Source: Jackson et al., ``github.com/Jakobovski/free-spoken-digit-dataset``.
    """

    HOME = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
    FILES: ClassVar[dict[str, RemoteFile]] = {"all": RemoteFile("fsdd.tar.gz", HOME, None)}
    SHA256 = "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"
    splits_by_seed = True

    def __init__(self, sample_rate: int = 8_000, split_seed: int | None = None, **audio: Any) -> None:
        super().__init__(sample_rate=sample_rate, split_seed=split_seed or 0, **audio)
        self.split_seed = split_seed

    def index_clips(self) -> dict[str, list[LabelledFile]]:
        tree = FileTree(self.fetch_files()["all"])
        recordings = [path for path in map(PurePosixPath, tree.names) if path.match("recordings/*.wav")]
        sums = (f"{hashlib.sha256(tree.read(str(path))).hexdigest()}  {path.name}\n" for path in recordings)
        found = hashlib.sha256("".join(sums).encode()).hexdigest()
        if found != self.SHA256:
            raise ValueError(
                f"{tree.root}: the recordings are not those of release 1.0.10: expected SHA-256 {self.SHA256} over "
                f"the names and contents of recordings/*.wav, got {found} of {len(recordings)}. They are damaged or of "
                "another release: delete them to download them again, or point data_dir elsewhere"
            )
        splits: dict[str, list[LabelledFile]] = {split: [] for split in SPLITS}
        order = list(range(RECORDINGS))
        if self.split_seed is not None:
            random.Random(self.split_seed).shuffle(order)
        for path in recordings:
            digit, _, number = path.stem.split("_")
            place = order.index(int(number))
            split = "test" if place < 5 else "validation" if place < 10 else "train"
            splits[split].append(tree.labelled(str(path), digit, decode))
        return splits


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
        folder = self.data_dir / "SpeechCommands" / "speech_commands_v0.02"
        if folder.is_dir():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # torchaudio takes a folder that is there for complete: it must not see one that was unpacked by half
        with TemporaryDirectory(dir=self.data_dir, prefix=".speech_commands_") as unpacked:
            try:
                load_torchaudio().datasets.SPEECHCOMMANDS(unpacked, url=self.URL, download=True)
            # no connection; another checksum; an archive that ends half-way
            except (OSError, RuntimeError, EOFError, tarfile.TarError) as error:
                raise RuntimeError(
                    f"{folder} does not exist and Speech Commands could not be downloaded: {error}. {HINT}"
                ) from error
            folder.parent.mkdir(exist_ok=True)
            (Path(unpacked) / "SpeechCommands" / folder.name).rename(folder)

    def index_clips(self) -> dict[str, list[LabelledFile]]:
        tree = FileTree(self.data_dir / "SpeechCommands")
        splits = {}
        for split, subset in self.SUBSETS.items():
            listed = load_torchaudio().datasets.SPEECHCOMMANDS(self.data_dir, url=self.URL, subset=subset)
            rows = (listed.get_metadata(index) for index in range(len(listed)))
            splits[split] = [tree.labelled(name, word, decode) for name, _, word, _, _ in rows]
        return splits
