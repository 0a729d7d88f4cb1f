"""Speech Commands: spoken words, a standard benchmark of small audio networks."""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, AudioFile, LabelledClip
from as_lightning.benchmark.data.files import FolderTree
from as_lightning.benchmark.packages import loading


class SpeechCommands(AudioDataModule):
    """Speech Commands 0.02: 35 spoken words in clips of a second, 16 kHz, 84,843 / 9,981 / 11,005 clips, CC BY 4.0.

    torchaudio downloads it (2.3 GB, checked) where ``data_dir`` has no ``SpeechCommands/speech_commands_v0.02``.

    Raises:
        RuntimeError: if it is not in ``data_dir`` and cannot be downloaded.

    Source: Warden 2018 (arXiv 1804.03209); :class:`torchaudio.datasets.SPEECHCOMMANDS`.
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
