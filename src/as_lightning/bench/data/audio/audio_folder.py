"""A user's own clips: in a folder for each class, or with a table of labels."""

from __future__ import annotations

from as_lightning.bench.data.audio.data_module import AudioDataModule
from as_lightning.bench.data.folder_classes import ClassFolder


class AudioFolder(ClassFolder, AudioDataModule):
    """A user's own clips (``.wav``, ``.flac``, ``.ogg``); layouts as of `ClassFolder`."""

    suffixes = (".wav", ".flac", ".ogg")
