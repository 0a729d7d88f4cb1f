"""Data whose samples are files or synthetic clips: decoded once before training, with the training
mean and spread.
"""

from __future__ import annotations

import functools
import hashlib
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset
from as_lightning.bench.data.files import LabelledFile
from as_lightning.bench.data.reading import note, note_repeats, shortened

CONSTANT = 1e-9  # variance below which values count as all equal


def value_sums(values: Tensor) -> Tensor:
    """Number, sum and sum of squares ``(3, C)`` of each channel's values ``(..., C, H, W)``;
    ``(N)`` is one channel. They are ``float64``, and so exact for bytes.
    """
    channels = (values.movedim(-3, 0) if values.ndim > 2 else values[None]).flatten(1).double()
    count = torch.full((len(channels),), channels.shape[1], dtype=torch.float64)
    return torch.stack([count, channels.sum(1), channels.square().sum(1)])


def mean_and_std(sums: Tensor, scale: float = 1.0) -> tuple[list[float], list[float]]:
    """Each channel's mean and standard deviation of ``x / scale``; a constant channel has deviation
    1.
    """
    number, total, squares = sums
    mean = total / number
    variance = squares / number - mean.square()
    std = torch.where(variance > CONSTANT, variance, scale**2).sqrt()
    return (mean / scale).tolist(), (std / scale).tolist()


Decode = Callable[[Any, list[str]], Tensor]  # a file's content, and where to list its changes


@dataclass(eq=False)
class DecodedFiles(Sequence[Tensor]):
    """Files of one split, each decoded when it is read; a ValueError names the place of one that
    cannot be used.
    """

    files: Sequence[LabelledFile]
    decode: Decode
    shape: tuple[int, ...] | None = None  # that all must have

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # no slices
        return self.decoded(index, [])

    def decoded(self, index: int, changes: list[str]) -> Tensor:
        """A file's input; ``changes`` gets what decoding did to it."""
        file = self.files[index]
        try:
            decoded = self.decode(file.read(), changes)
            if self.shape not in (None, decoded.shape):
                shapes = f"its shape is {tuple(decoded.shape)}, not {tuple(self.shape or ())}"
                raise ValueError(f"{shapes}: set data.image_size")
            # One such value would make the mean, and so every feature, NaN.
            if decoded.is_floating_point() and not decoded.isfinite().all():
                raise ValueError("features that are not finite: samples far outside [-1, 1]")
        except (OSError, ValueError) as error:
            raise ValueError(f"{file.place}: {error}") from error
        return decoded


Cache = bool | Literal["auto"]
CACHE_LIMIT = 2**30  # bytes of decoded files that cache="auto" keeps in memory
Transform = Callable[[Tensor], Tensor] | None


class Pass(NamedTuple):
    """What the first pass over a file finds."""

    sums: Tensor | None = None  # `value_sums` of a training file
    digest: bytes = b""
    changes: Sequence[str] = ()
    error: str = ""


class DecodedDataModule(BenchmarkDataModule):
    """Samples that are read one by one, and decoded once before training, on several threads.

    ``cache`` keeps the decoded samples as a tensor a split (True), decodes them each time (False),
    or keeps them below 1 GiB in all (``"auto"``). A ValueError names the files that cannot be
    decoded or differ in size from the first.
    """

    kind: ClassVar[str]  # what the files are, in the plural, for messages
    decode: Decode  # turns what `LabelledFile.read` returns into an input; can be pickled

    def __init__(self, *, cache: Cache = "auto", **loader: Any) -> None:
        super().__init__(**loader)
        self.cache = cache

    @abstractmethod
    def index(self) -> dict[str, list[LabelledFile]]:
        """The samples of the splits ``train``, ``validation`` and ``test``."""

    @abstractmethod
    def transforms(self, sums: Tensor, shape: torch.Size) -> tuple[Transform, Transform]:
        """The transforms of training inputs and of others; ``sums`` are the training split's
        `value_sums`.
        """

    def load_splits(self) -> dict[str, LabelledDataset]:
        labelled = self.index()
        labels = {split: [file.label for file in rows] for split, rows in labelled.items()}
        targets = self.encode_labels(labels)
        self.texts = {split: [file.name for file in rows] for split, rows in labelled.items()}
        files = {split: DecodedFiles(rows, self.decode) for split, rows in labelled.items()}
        inputs: dict[str, Tensor | DecodedFiles] = dict(files)
        first = first_decoded(files["train"])
        if first is not None:
            size = first.nbytes * sum(map(len, files.values()))
            for split, rows in files.items():
                rows.shape = first.shape
                if self.cache is True or (self.cache == "auto" and size < CACHE_LIMIT):
                    inputs[split] = torch.empty(len(rows), *first.shape, dtype=first.dtype)
        sums = self._first_pass(files, inputs)
        return self.transformed(inputs, targets, sums)

    def _first_pass(
        self, files: Mapping[str, DecodedFiles], inputs: Mapping[str, Tensor | DecodedFiles]
    ) -> Tensor:
        """Decode all files, into the tensors among ``inputs``; return the training split's sums."""

        def decode_one(place: tuple[str, int]) -> Pass:
            split, index = place
            changes: list[str] = []
            try:
                decoded = files[split].decoded(index, changes)
            except ValueError as error:
                return Pass(error=str(error))
            cached = inputs[split]
            if isinstance(cached, Tensor):
                cached[index] = decoded
            digest = hashlib.blake2b(decoded.numpy().tobytes(), digest_size=16).digest()
            sums = value_sums(decoded) if split == "train" else None
            return Pass(sums, digest, changes)

        places = [(split, index) for split, rows in files.items() for index in range(len(rows))]
        # Pillow, libsndfile and PyTorch release the interpreter's lock.
        with ThreadPoolExecutor() as pool:
            passes = list(pool.map(decode_one, places))
        unusable = sorted(one.error for one in passes if one.error)
        if unusable:
            raise ValueError(
                f"{len(unusable)} of {len(places)} {self.kind} cannot be used: {shortened(unusable)}"
            )
        by_split: dict[str, list[Pass]] = defaultdict(list)
        for (split, _), one in zip(places, passes, strict=True):
            by_split[split].append(one)
        for split, split_passes in by_split.items():
            note_changes(self.kind, split, split_passes, self.texts[split])
        digests = {split: [one.digest for one in rows] for split, rows in by_split.items()}
        note_repeats(digests, self.texts)
        return functools.reduce(torch.add, [one.sums for one in passes if one.sums is not None])

    def transformed(
        self,
        inputs: Mapping[str, Tensor | DecodedFiles],
        targets: Mapping[str, Tensor],
        sums: Tensor,
    ) -> dict[str, LabelledDataset]:
        """The splits with their `transforms`."""
        training, evaluation = self.transforms(sums, inputs["train"][0].shape)
        splits = {}
        for split, values in inputs.items():
            transform = training if split == "train" else evaluation
            splits[split] = LabelledDataset(values, targets[split], transform)
        return splits


def first_decoded(files: DecodedFiles) -> Tensor | None:
    """The first file by its name that can be decoded."""
    for index in sorted(range(len(files)), key=lambda index: files.files[index].place):
        try:
            return files[index]
        except ValueError:
            continue
    return None


def note_changes(kind: str, split: str, passes: Iterable[Pass], names: Sequence[str]) -> None:
    """Note what decoding did to the files of a split."""
    changed = defaultdict(list)
    for one, name in zip(passes, names, strict=True):
        for change in dict.fromkeys(one.changes):
            changed[change].append(name)
    for change, changed_names in changed.items():
        note(f"{kind} {change}", len(changed_names), len(names), changed_names[0], split)
