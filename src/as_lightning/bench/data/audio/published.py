"""Published clips of spoken words: where they come from, and which of them are of which split."""

from __future__ import annotations

import hashlib
import random
import tarfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from as_lightning.bench.data.audio.data_module import AudioDataModule
from as_lightning.bench.data.base import SPLITS
from as_lightning.bench.data.files import LabelledFile, RemoteFile, fetch, labelled_file

RECORDINGS = 50  # of each digit by each speaker


class FSDD(AudioDataModule):
    """Free Spoken Digit Dataset: the digits 0 to 9 by 6 speakers, 2,400 / 300 / 300 clips of 8 kHz,
    CC BY-SA 4.0.

    Of each speaker's 50 recordings of a digit, 0 to 4 are the test split, as published, 5 to 9
    validation. ``data_dir`` holds ``fsdd.tar.gz``; otherwise release 1.0.10 is downloaded. GitHub
    may pack the archive anew, so the checksum is that of the recordings: ``LC_ALL=C sha256sum *.wav
    | sha256sum``.

    ``split_seed`` seeds which recordings are of which split; None takes the published ones.

    Raises:
        ValueError: if the recordings are not those of release 1.0.10.
        RuntimeError: if they are not in ``data_dir`` and cannot be downloaded.

    Source: Jackson et al., ``github.com/Jakobovski/free-spoken-digit-dataset``.
    """

    HOME = (
        "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
    )
    FILES: ClassVar[dict[str, RemoteFile]] = {"all": RemoteFile("fsdd.tar.gz", HOME, None)}
    SHA256 = "1801eae019c063377d98f831d3f93574f259475df7332bb0e3d1b080fb5e6959"
    splits_by_seed = True

    def __init__(
        self, sample_rate: int = 8_000, split_seed: int | None = None, **audio: Any
    ) -> None:
        super().__init__(sample_rate=sample_rate, split_seed=split_seed or 0, **audio)
        self.split_seed = split_seed

    def index(self) -> dict[str, list[LabelledFile]]:
        path = self.files()["all"]
        recordings = wav_members(path)
        lines = [
            f"{hashlib.sha256(recordings[name]).hexdigest()}  {name}\n"
            for name in sorted(recordings)
        ]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        if digest != self.SHA256:
            raise ValueError(
                f"{path}: the recordings are not those of release 1.0.10: expected SHA-256 "
                f"{self.SHA256} over their names and contents, got {digest} of {len(recordings)}: "
                "delete the file to download it again, or point data_dir elsewhere"
            )
        splits: dict[str, list[LabelledFile]] = {split: [] for split in SPLITS}
        order = list(range(RECORDINGS))
        if self.split_seed is not None:
            random.Random(self.split_seed).shuffle(order)
        for name in sorted(recordings):
            digit, _, number = name.removesuffix(".wav").split("_")
            position = order.index(int(number))
            split = "test" if position < 5 else "validation" if position < 10 else "train"
            read = partial(bytes, recordings[name])
            splits[split].append(LabelledFile(digit, f"recordings/{name}", read, f"{path}/"))
        return splits


def wav_members(path: Path) -> dict[str, bytes]:
    """The recordings in an archive by their names; a ValueError refuses a damaged archive."""
    members = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if PurePosixPath(member.name).match("recordings/*.wav") and member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None
                    members[PurePosixPath(member.name).name] = file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it to download it again") from error
    return members


class SpeechCommands(AudioDataModule):
    """Speech Commands 0.02: 35 spoken words in clips of a second, 16 kHz, 84,843 / 9,981 / 11,005
    clips, CC BY 4.0.

    ``data_dir`` holds ``SpeechCommands/speech_commands_v0.02``, as torchaudio unpacks it; otherwise
    the archive (2.3 GB) is downloaded and unpacked there.

    Raises:
        ValueError: if the archive has another checksum.
        RuntimeError: if it is not in ``data_dir`` and cannot be downloaded.

    Source: Warden 2018 (arXiv 1804.03209).
    """

    FILES: ClassVar[dict[str, RemoteFile]] = {
        "all": RemoteFile(
            "speech_commands_v0.02.tar.gz",
            "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
            "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        )
    }

    def files(self) -> dict[str, Path]:
        folder = self.data_dir / "SpeechCommands" / "speech_commands_v0.02"
        if not folder.is_dir():
            import pooch

            fetch(self.FILES["all"], self.data_dir, pooch.Untar(extract_dir=str(folder.resolve())))
        return {"all": folder}

    def index(self) -> dict[str, list[LabelledFile]]:
        root = self.files()["all"]
        split_of: dict[str, str] = {}
        for split, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt")):
            split_of |= dict.fromkeys((root / file).read_text().split(), split)
        splits: dict[str, list[LabelledFile]] = {split: [] for split in SPLITS}
        for path in sorted(root.glob("*/*_nohash_*.wav")):  # the others are background noise
            name = path.relative_to(root).as_posix()
            split = split_of.get(name, "train")
            splits[split].append(labelled_file(root, name, path.parent.name))
        return splits
