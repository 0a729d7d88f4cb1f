"""A user's own clips, in a folder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, AudioFile, LabelledClip
from as_lightning.benchmark.data.files import find_path, open_tree
from as_lightning.benchmark.data.folder_classes import check_validation_share, find_classes, split_classes

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")


class AudioFolder(AudioDataModule):
    """A user's own clips (``.wav``, ``.flac``, ``.ogg``) in a folder for each class.

    Layouts as of :func:`split_classes`.

    Args:
        path: a folder, or a tar or zip archive; a relative path is looked for in the working directory and
            ``data_dir``.
        validation_share: of each class, in (0, 1), where there is no ``validation``.
        split_seed: seeds the splits that it makes, apart from the run's seed.
        **audio: arguments of :class:`AudioDataModule`.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        ValueError: if an argument is out of range or the folders are not as described.
    """

    def __init__(self, path: str | Path, validation_share: float = 0.1, split_seed: int = 0, **audio: Any) -> None:
        super().__init__(**audio)
        check_validation_share(validation_share)
        self.path, self.validation_share, self.split_seed = path, validation_share, split_seed

    @property
    def user_paths(self) -> list[Path]:
        return [find_path(self.path, self.data_dir)]

    @property
    def splits_by_seed(self) -> bool:
        return "all" in find_classes(open_tree(find_path(self.path, self.data_dir)), AUDIO_SUFFIXES, "clips")

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        tree = open_tree(find_path(self.path, self.data_dir))
        splits = split_classes(
            tree, AUDIO_SUFFIXES, "clips", validation_share=self.validation_share, split_seed=self.split_seed
        )
        return {
            split: [LabelledClip(AudioFile(tree, name), label) for label, names in classes.items() for name in names]
            for split, classes in splits.items()
        }
