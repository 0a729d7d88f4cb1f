"""Files of a data set, decoded once before training, and the mean and deviation of what they hold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor

from as_lightning.benchmark.data.files import shortened

CONSTANT = 1e-9  # variance below which values count as all equal


def value_sums(values: Tensor) -> Tensor:
    """Number, sum and sum of squares ``(3, C)`` of each channel's values ``(..., C, H, W)``; ``(N)`` is one channel's.

    They are exact (``int64``) for integers, and ``float64`` for floating-point values.
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


class DecodedFiles(Sequence[Tensor]):
    """Files of one split, each decoded when it is taken; a ValueError names the place of one that cannot be."""

    def __init__(self, files: Sequence[Any], places: Sequence[str], decode: Callable[[Any], Tensor]) -> None:
        self.files, self.places, self.decode = files, places, decode

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one at a time, no slices
        try:
            return self.decode(self.files[index])
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.places[index]}: {error}") from error


Cache = bool | Literal["auto"]
CACHE_LIMIT = 2**30  # bytes of decoded files that cache="auto" keeps in memory


def decode_once(
    files: Mapping[str, DecodedFiles], cache: Cache, *, kind: str, advice: str = ""
) -> tuple[dict[str, Tensor | DecodedFiles], Tensor]:
    """Decode each file once, on several threads: the inputs of each split, and `value_sums` of the training split.

    ``cache`` keeps what is decoded as one tensor a split (True), decodes each time (False), or keeps all splits below
    1 GiB (``"auto"``). ``kind`` names the files in messages, ``advice`` says what to do with files of several sizes. A
    ValueError names files that cannot be decoded, or are of another shape than the others.
    """
    if cache not in (True, False, "auto"):
        raise ValueError(f"cache must be True, False or 'auto', got {cache!r}")
    places = [(split, index) for split, rows in files.items() for index in range(len(rows))]
    first = _first_decodable(files["train"])
    inputs: dict[str, Tensor | DecodedFiles] = dict(files)
    if first is not None and cache and (cache is True or len(places) * first.nbytes < CACHE_LIMIT):
        inputs = {split: torch.empty(len(rows), *first.shape, dtype=first.dtype) for split, rows in files.items()}
    damaged: list[str] = []
    other_sizes: list[str] = []

    def decode_one(place: tuple[str, int]) -> Tensor | None:
        """Keep a file where files are kept, and give the sums of one of the training split."""
        split, index = place
        try:
            decoded = files[split][index]
        except ValueError as error:
            damaged.append(str(error))
            return None
        if first is not None and decoded.shape != first.shape:
            other_sizes.append(f"{files[split].places[index]} is {_size(decoded)}")
            return None
        kept = inputs[split]
        if isinstance(kept, Tensor):
            kept[index] = decoded
        return value_sums(decoded) if split == "train" else None

    with ThreadPoolExecutor() as pool:  # Pillow, libsndfile and PyTorch let go of the interpreter's lock
        training_sums = [sums for sums in pool.map(decode_one, places) if sums is not None]
    if damaged:
        raise ValueError(f"{len(damaged)} of {len(places)} {kind} cannot be used: {shortened(sorted(damaged))}")
    assert first is not None
    if other_sizes:
        raise ValueError(f"{kind} must be of one size, {min(other_sizes)}, others are {_size(first)}: {advice}")
    return inputs, functools.reduce(torch.add, training_sums)


def _first_decodable(files: DecodedFiles) -> Tensor | None:
    """The first in alphabetical order that can be decoded."""
    for index in sorted(range(len(files)), key=files.places.__getitem__):
        with suppress(ValueError):
            return files[index]
    return None


def _size(decoded: Tensor) -> str:
    """Width by height, as image programs say it."""
    return "x".join(str(length) for length in reversed(decoded.shape[1:]))
