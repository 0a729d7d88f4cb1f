"""LightningDataModules of the benchmark: one file a modality, plus the embedded sets."""

from as_lightning.data.base import BenchmarkDataModule
from as_lightning.data.digits import Digits
from as_lightning.data.docstrings import Docstrings
from as_lightning.data.text import SST5, Clinc150, TextFile

__all__ = ["SST5", "BenchmarkDataModule", "Clinc150", "Digits", "Docstrings", "TextFile"]
