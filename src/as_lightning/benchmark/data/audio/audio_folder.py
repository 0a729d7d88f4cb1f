"""A user's own clips, in a folder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.audio.data_module import AudioDataModule, AudioFile, LabelledClip
from as_lightning.benchmark.data.files import find_path, open_tree
from as_lightning.benchmark.data.folder_classes import check_validation_share, split_classes

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")


class AudioFolder(AudioDataModule):
    """A user's own clips: ``train/<class>/*.wav``, ``test/<class>/*.wav`` and perhaps ``validation/<class>/*.wav``.

    Files that end in ``.wav``, ``.flac`` or ``.ogg`` are clips, others are not looked at. Without ``validation`` (or
    ``val``), ``validation_share`` of each class of ``train`` is for validation. Where class folders alone are found,
    without ``train`` and ``test`` above them, a tenth of each class is the test split too. A clip may lie deeper below
    its class folder, and a folder around all that, as archives tend to have, makes no difference: the rules are those
    of the image folder.

    Args:
        path: a folder, or a tar or zip archive, which is read where it lies; a relative path is looked
            for in the working directory, then in ``data_dir``.
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

    @property
    def user_paths(self) -> list[Path]:
        return [find_path(self.path, self.data_dir)]

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        tree = open_tree(find_path(self.path, self.data_dir))
        splits = split_classes(
            tree, AUDIO_SUFFIXES, "clips", validation_share=self.validation_share, split_seed=self.split_seed
        )
        return {
            split: [LabelledClip(AudioFile(tree, name), label) for label, names in classes.items() for name in names]
            for split, classes in splits.items()
        }
