"""Files of a data set, decoded once before training, and the mean and deviation of what they hold."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from as_lightning.benchmark.data.files import shortened

CONSTANT = 1e-9  # variance below which values count as all equal


def value_sums(values: Tensor) -> Tensor:
    """Number, sum and sum of squares of each channel's values ``(..., C, H, W)`` (or fewer dimensions for one channel).

    Shape ``(3, C)``, exact (``int64``) for integers and ``float64`` for floating-point values.
    """
    dtype = torch.float64 if values.is_floating_point() else torch.int64
    channels = (values.movedim(-3, 0) if values.ndim > 2 else values[None]).flatten(1).to(dtype)
    count = torch.full((len(channels),), channels.shape[1], dtype=dtype)
    return torch.stack([count, channels.sum(1), channels.square().sum(1)])


def mean_and_std(sums: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    r"""Each channel's mean and standard deviation of ``x / scale``, ``float64`` of shape ``(C,)``.

    $$
    \mu = \frac{1}{n s} \sum x, \qquad \sigma = \frac{1}{s} \sqrt{\frac{1}{n} \sum x^2 - (s \mu)^2}
    $$

    A channel that is constant gets $\sigma = 1$.
    """
    number, total, squares = sums.double()
    mean = total / number
    variance = squares / number - mean.square()
    return mean / scale, torch.where(variance > CONSTANT, variance, scale**2).sqrt() / scale


class Standardise(nn.Module):
    """A transform: values less ``mean``, divided by ``std``."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, values: Tensor) -> Tensor:
        return values.sub(self.mean).div_(self.std)


Cache = bool | Literal["auto"]
CACHE_LIMIT = 2**30  # bytes of decoded files that cache="auto" keeps in memory


class DecodableFiles(Sequence[Tensor]):
    """Files of one split, each decoded when it is taken; a ValueError names one that cannot be."""

    @abstractmethod
    def __getitem__(self, index: int) -> Tensor: ...  # type: ignore[override]  # one at a time, no slices

    @abstractmethod
    def where(self, index: int) -> str:
        """The file as an error message names it."""


class Decoded(NamedTuple):
    """The inputs of each split, and the `value_sums` of the training split."""

    inputs: dict[str, Tensor | DecodableFiles]
    training_sums: Tensor


def check_cache(cache: Cache) -> Cache:
    """``cache`` itself; a ValueError if it is neither True, False nor ``"auto"``."""
    if cache not in (True, False, "auto"):
        raise ValueError(f"cache must be True, False or 'auto', got {cache!r}")
    return cache


def decode_once(files: Mapping[str, DecodableFiles], cache: Cache, *, kind: str, advice: str = "") -> Decoded:
    """Decode each file once, on several threads, and keep the results as one tensor a split, or not.

    ``cache`` keeps what is decoded (True), decodes each time (False), or keeps all splits below 1 GiB (``"auto"``);
    ``kind`` names the files in messages, ``advice`` says what to do where they are of several sizes.

    Raises:
        ValueError: if files cannot be decoded (the first five are named), or are of another shape than the others.
    """
    count = sum(len(split) for split in files.values())
    first = _first_decodable(files["train"])
    kept: dict[str, Tensor] = {}
    if first is not None and (
        cache is True or (cache == "auto" and count * math.prod(first.shape) * first.element_size() < CACHE_LIMIT)
    ):
        kept = {split: torch.empty(len(rows), *first.shape, dtype=first.dtype) for split, rows in files.items()}
    damaged: list[str] = []
    other_sizes: list[str] = []

    def decode_one(split: str, index: int) -> Tensor | None:
        """The sums of a training file."""
        try:
            decoded = files[split][index]
        except ValueError as error:
            damaged.append(str(error))
            return None
        if first is not None and decoded.shape != first.shape:
            other_sizes.append(f"{files[split].where(index)} is {_size(decoded)}")
            return None
        if split in kept:
            kept[split][index] = decoded
        return value_sums(decoded) if split == "train" else None

    training_sums: Tensor | None = None
    with ThreadPoolExecutor() as pool:  # Pillow, libsndfile and PyTorch let go of the interpreter's lock
        for split, rows in files.items():
            for sums in pool.map(decode_one, [split] * len(rows), range(len(rows))):
                if sums is not None:
                    training_sums = sums if training_sums is None else training_sums + sums
    if damaged:
        raise ValueError(f"{len(damaged)} of {count} {kind} cannot be used: {shortened(sorted(damaged))}")
    assert first is not None
    assert training_sums is not None
    if other_sizes:
        raise ValueError(f"{kind} must be of one size, {min(other_sizes)}, others are {_size(first)}: {advice}")
    return Decoded({split: kept.get(split, rows) for split, rows in files.items()}, training_sums)


def _first_decodable(files: DecodableFiles) -> Tensor | None:
    """The first in alphabetical order that can be decoded."""
    for index in sorted(range(len(files)), key=files.where):
        with suppress(ValueError):
            return files[index]
    return None


def _size(decoded: Tensor) -> str:
    """Width by height, as image programs say it."""
    return "x".join(str(length) for length in reversed(decoded.shape[1:]))
