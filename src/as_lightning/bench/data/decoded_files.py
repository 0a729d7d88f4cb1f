"""Data whose samples are files or synthetic clips: decoded once before training, with the training
mean and spread.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset
from as_lightning.bench.data.files import LabelledFile, shortened

CONSTANT = 1e-9  # variance below which values count as all equal


def value_sums(values: Tensor) -> Tensor:
    """Number, sum and sum of squares ``(3, C)`` of each channel's values ``(..., C, H, W)``;
    ``(N)`` is one channel.

    They are ``float64``, and so exact for bytes.
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


@dataclass(eq=False)
class DecodedFiles(Sequence[Tensor]):
    """Files of one split, each decoded when it is read; a ValueError names the place of one that
    cannot be used.
    """

    files: Sequence[LabelledFile]
    decode: Callable[[Any], Tensor]
    shape: tuple[int, ...] | None = None  # that all must have

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one at a time, no slices
        file = self.files[index]
        try:
            decoded = self.decode(file.read())
            if self.shape not in (None, decoded.shape):
                mismatch = f"its shape is {tuple(decoded.shape)}, not {tuple(self.shape or ())}"
                raise ValueError(f"{mismatch}: set data.image_size")
            if (
                decoded.is_floating_point() and not decoded.isfinite().all()
            ):  # one would make every feature NaN
                raise ValueError("features that are not finite: samples far outside [-1, 1]")
        except (OSError, ValueError) as error:
            raise ValueError(f"{file.place}: {error}") from error
        return decoded


Cache = bool | Literal["auto"]
CACHE_LIMIT = 2**30  # bytes of decoded files that cache="auto" keeps in memory
Transform = Callable[[Tensor], Tensor] | None


class DecodedDataModule(BenchmarkDataModule):
    """Samples that are read one by one, and decoded once before training, on several threads.

    ``cache`` keeps the decoded samples as a tensor a split (True), decodes them each time (False),
    or keeps them below 1 GiB in all (``"auto"``). A ValueError names the files that cannot be
    decoded or differ in size from the first.
    """

    kind: ClassVar[str]  # what the files are, in the plural, for messages
    decode: Callable[
        [Any], Tensor
    ]  # turns what `LabelledFile.read` returns into an input; loader processes pickle it

    def __init__(self, *, cache: Cache = "auto", **loader: Any) -> None:
        super().__init__(**loader)
        if cache not in (True, False, "auto"):
            raise ValueError(f"cache must be True, False or 'auto', got {cache!r}")
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
        targets = self.encode_labels(
            {split: [file.label for file in rows] for split, rows in labelled.items()}
        )
        self.texts = {split: [file.name for file in rows] for split, rows in labelled.items()}
        files = {split: DecodedFiles(rows, self.decode) for split, rows in labelled.items()}
        places = [(split, index) for split, rows in files.items() for index in range(len(rows))]
        first = None
        for index in sorted(
            range(len(files["train"])), key=lambda index: labelled["train"][index].place
        ):
            with suppress(ValueError):
                first = files["train"][index]
                break
        inputs: dict[str, Tensor | DecodedFiles] = dict(files)
        if first is not None:
            for split_files in files.values():
                split_files.shape = first.shape
            if self.cache is True or (self.cache and len(places) * first.nbytes < CACHE_LIMIT):
                inputs = {
                    split: torch.empty(len(rows), *first.shape, dtype=first.dtype)
                    for split, rows in files.items()
                }
        unusable: list[str] = []

        def decode_one(place: tuple[str, int]) -> Tensor | None:
            """Decode a file, into the cache if there is one; return the sums of a training file."""
            split, index = place
            try:
                decoded = files[split][index]
            except ValueError as error:
                unusable.append(str(error))
                return None
            if isinstance(cached := inputs[split], Tensor):
                cached[index] = decoded
            return value_sums(decoded) if split == "train" else None

        with (
            ThreadPoolExecutor() as pool
        ):  # Pillow, libsndfile and PyTorch release the interpreter's lock
            sums = [
                file_sums for file_sums in pool.map(decode_one, places) if file_sums is not None
            ]
        if unusable:
            raise ValueError(
                f"{len(unusable)} of {len(places)} {self.kind} cannot be used: "
                f"{shortened(sorted(unusable))}"
            )
        return self.transformed(inputs, targets, functools.reduce(torch.add, sums))

    def transformed(
        self,
        inputs: Mapping[str, Tensor | DecodedFiles],
        targets: Mapping[str, Tensor],
        sums: Tensor,
    ) -> dict[str, LabelledDataset]:
        """The splits with their `transforms`."""
        training, evaluation = self.transforms(sums, inputs["train"][0].shape)
        transforms = {split: training if split == "train" else evaluation for split in inputs}
        return {
            split: LabelledDataset(inputs[split], targets[split], transforms[split])
            for split in inputs
        }
