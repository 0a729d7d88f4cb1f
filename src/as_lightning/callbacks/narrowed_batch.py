"""A batch narrowed to some of its samples."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, MutableMapping
from numbers import Number
from typing import Any

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

Hook = Callable[[Any, Tensor], Any]


def narrow_batch(batch: Any, kept: Tensor, samples: int, hook: Hook | None = None) -> Any:
    """The samples ``kept`` of a batch of ``samples``, in the same structure; the batch itself stays as it is.

    - A tensor or an array whose first dimension is ``samples`` is narrowed: it counts as one row for each sample. A
      tensor without dimensions stays.
    - A list or a tuple of parts that can be narrowed, a named tuple, a mapping or a dataclass is narrowed part by part.
    - Another list or tuple of ``samples`` elements has one per sample (names, boxes of several sizes).
    - Numbers, strings and None stay.
    - Anything else is given to ``hook``.

    Args:
        batch: what ``training_step`` takes.
        kept: numbers in the batch of the samples that stay, ``int64``, shape ``(K,)``.
        samples: the samples ``N`` of the batch.
        hook: called as ``hook(part, kept)`` for a part that none of these rules covers; returns it narrowed.

    Raises:
        MisconfigurationException: if there is such a part and no hook. The message names the part and the way out.

    Example:
        >>> batch = {"image": torch.zeros(3, 2), "name": ["a", "b", "c"], "scale": 0.5}
        >>> narrow_batch(batch, torch.tensor([0, 2]), samples=3)
        {'image': tensor([[0., 0.],
                [0., 0.]]), 'name': ['a', 'c'], 'scale': 0.5}
    """
    return _Narrowing(kept, samples, hook).part(batch, "batch")


class _CannotNarrow(Exception):
    pass


class _Narrowing:
    def __init__(self, kept: Tensor, samples: int, hook: Hook | None) -> None:
        self.kept, self.samples, self.hook = kept, samples, hook
        self._numbers: list[int] | None = None

    @property
    def numbers(self) -> list[int]:
        if self._numbers is None:
            self._numbers = self.kept.tolist()
        return self._numbers

    def part(self, part: Any, path: str) -> Any:
        try:
            return self._narrowed(part, path)
        except _CannotNarrow as error:
            raise MisconfigurationException(
                f"skip_backward=True narrows a batch of {self.samples} samples to the live ones, but {error}: define "
                "`def narrow_batch(self, part, kept)` in the module, which returns such a part with the samples of the "
                "numbers `kept` alone, or sleep only (skip_backward=False)."
            ) from None

    def _narrowed(self, part: Any, path: str) -> Any:
        if part is None or isinstance(part, (str, bytes, Number)):
            return part
        if isinstance(part, Tensor) and not part.is_nested and part.layout == torch.strided:
            if part.dim() == 0:
                return part
            if len(part) == self.samples:
                return part.index_select(0, self.kept.to(part.device))
        elif (
            isinstance(part, tuple)
            and hasattr(part, "_make")
            and not isinstance(part, torch.nn.utils.rnn.PackedSequence)
        ):
            return type(part)._make(self._narrowed(value, f"{path}.{name}") for name, value in _fields(part))
        elif type(part) in (list, tuple):
            return self._sequence(part, path)
        elif isinstance(part, MutableMapping):
            narrowed = copy.copy(part)
            for key, value in part.items():
                narrowed[key] = self._narrowed(value, f"{path}[{key!r}]")
            return narrowed
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):
            narrowed = copy.copy(part)  # type: ignore[arg-type]
            for field in dataclasses.fields(part):
                value = self._narrowed(getattr(part, field.name), f"{path}.{field.name}")
                object.__setattr__(narrowed, field.name, value)  # also of a frozen one
            return narrowed
        elif (
            not isinstance(part, Tensor)
            and hasattr(part, "__array__")
            and getattr(part, "shape", ())[:1] == (self.samples,)
        ):
            return part[self.numbers]
        if self.hook is not None:
            return self.hook(part, self.kept)
        shape = f" of shape {tuple(part.shape)}" if hasattr(part, "shape") and not getattr(part, "is_nested", 0) else ""
        raise _CannotNarrow(f"{path} is a {type(part).__name__}{shape}")

    def _sequence(self, part: Any, path: str) -> Any:
        plain = all(value is None or isinstance(value, (str, bytes, Number)) for value in part)
        if not plain:
            try:
                return type(part)(self._narrowed(value, f"{path}[{index}]") for index, value in enumerate(part))
            except _CannotNarrow:
                if len(part) != self.samples:
                    raise
        return type(part)(part[number] for number in self.numbers) if len(part) == self.samples else part


def _fields(part: Any) -> list[tuple[str, Any]]:
    return list(zip(part._fields, part, strict=True))
