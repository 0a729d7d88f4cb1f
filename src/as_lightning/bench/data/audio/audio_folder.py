"""A user's own clips, in a folder for each class."""

from __future__ import annotations

from as_lightning.bench.data.audio.data_module import AudioDataModule
from as_lightning.bench.data.folder_classes import ClassFolder


class AudioFolder(ClassFolder, AudioDataModule):
    """A user's own clips (``.wav``, ``.flac``, ``.ogg``) in a folder for each class; layouts as of
    `ClassFolder`.
    """

    suffixes = (".wav", ".flac", ".ogg")
