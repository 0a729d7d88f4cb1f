"""LightningDataModules of the benchmark: one file a modality, plus the embedded sets.

What needs a package of its modality (torchvision, torchaudio, tokenizers) is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from as_lightning.lazy import attribute_of

if TYPE_CHECKING:
    from as_lightning.data.audio import FSDD, AudioDataModule, AudioFolder, SpeechCommands
    from as_lightning.data.base import BenchmarkDataModule
    from as_lightning.data.chords import Chords
    from as_lightning.data.digits import Digits
    from as_lightning.data.docstrings import Docstrings
    from as_lightning.data.extreme import Extreme
    from as_lightning.data.image import CIFAR10, CIFAR100, ImageDataModule, ImageFolder
    from as_lightning.data.labelled import LabelledDataset
    from as_lightning.data.tagging import WNUT17, Conll, TaggingDataModule
    from as_lightning.data.text import SST5, Clinc150, GoEmotions, TextDataModule, TextFile

_MODULES = {
    "audio": ("FSDD", "AudioDataModule", "AudioFolder", "SpeechCommands"),
    "base": ("BenchmarkDataModule",),
    "chords": ("Chords",),
    "digits": ("Digits",),
    "docstrings": ("Docstrings",),
    "extreme": ("Extreme",),
    "image": ("CIFAR10", "CIFAR100", "ImageDataModule", "ImageFolder"),
    "labelled": ("LabelledDataset",),
    "tagging": ("WNUT17", "Conll", "TaggingDataModule"),
    "text": ("SST5", "Clinc150", "GoEmotions", "TextDataModule", "TextFile"),
}
__all__ = [name for names in _MODULES.values() for name in names]


def __getattr__(name: str) -> Any:
    return attribute_of(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
