"""A user's own clips, in a folder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, LabelledClip
from as_lightning.benchmark.data.folder_classes import ClassFolder


class AudioFolder(ClassFolder, AudioDataModule):
    """A user's own clips (``.wav``, ``.flac``, ``.ogg``) in a folder for each class; arguments as of `ImageFolder`."""

    suffixes = (".wav", ".flac", ".ogg")
    kind = "clips"

    def __init__(self, path: str | Path, validation_share: float = 0.1, split_seed: int = 0, **audio: Any) -> None:
        super().__init__(path, validation_share, **audio)
        self.split_seed = split_seed

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        tree, splits = self.class_files()
        return {
            split: [LabelledClip.of_file(tree, name, label) for label, names in classes.items() for name in names]
            for split, classes in splits.items()
        }
