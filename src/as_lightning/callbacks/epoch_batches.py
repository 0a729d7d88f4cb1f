"""The batches of an epoch that leaves out samples, drawn by the sampler and the batch sampler of the user's loader."""

from __future__ import annotations

import copy
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

Batches = Sequence[list[int]]


class SlicedBatches(Sequence[list[int]]):
    """An order of sample numbers cut into batches of one size; the numbers stay in one tensor.

    Args:
        order: sample numbers, ``int64`` of shape ``(n,)``.
        batch_size: samples per batch.
        drop_last: leave out a last batch that is not full.

    Example:
        >>> list(SlicedBatches(torch.tensor([3, 1, 2]), batch_size=2, drop_last=False))
        [[3, 1], [2]]
    """

    def __init__(self, order: Tensor, batch_size: int, drop_last: bool) -> None:
        self.order, self.batch_size, self.drop_last = order, batch_size, drop_last

    def __len__(self) -> int:
        return (len(self.order) + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"expected a batch from 0 to {len(self) - 1}, got {index}")
        return self.order[index * self.batch_size : (index + 1) * self.batch_size].tolist()


class DrawnOrder:
    """A sampler that yields given numbers: it takes the place of the user's sampler in the user's batch sampler."""

    def __init__(self, order: Tensor) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        for block in self.order.split(2**16):
            yield from block.tolist()


def replicas_of(loader: DataLoader[Any]) -> tuple[int, int]:
    """How many processes share the data of ``loader``, and which of them this one is, by its ``DistributedSampler``."""
    sampler = getattr(loader.batch_sampler, "sampler", None)
    return (sampler.num_replicas, sampler.rank) if isinstance(sampler, DistributedSampler) else (1, 0)


def batches_of_awake(
    loader: DataLoader[Any],
    awake: Tensor,
    epoch: int,
    *,
    least: int = 1,
    broadcast: Callable[[Any], Any] = lambda order: order,
    least_over_ranks: Callable[[int], int] = int,
) -> Batches:
    """Draw the batches of one epoch and leave out the samples that sleep; the batches stay full.

    The user's sampler draws an order. A plain ``BatchSampler``, and any batch sampler that takes its samples from its
    ``sampler``, then makes batches of what is awake in it. Of another batch sampler the batches are drawn, and refilled
    from one another (:func:`refilled`).

    An epoch has at least ``least`` batches for each process, if all samples make as many, and no last batch of a single
    sample, which BatchNorm refuses: sleeping samples join in, no more batches of them than it takes, in the order
    drawn.

    Under a ``DistributedSampler`` the order is that of process 0. Each process takes the same number of its awake
    samples, so that up to ``processes - 1`` of them are left out.

    Args:
        loader: the user's loader.
        awake: boolean, shape ``(N,)``, true for the samples that take part.
        epoch: for samplers that have ``set_epoch``.
        least: the fewest batches of a process.
        broadcast: gives every process the argument of process 0.
        least_over_ranks: gives every process the least of the processes' arguments.

    Raises:
        MisconfigurationException: if a sampler yields what is no number of a sample.
    """
    batch_sampler = loader.batch_sampler
    sampler: Any = getattr(batch_sampler, "sampler", None)
    plain = type(batch_sampler) is BatchSampler
    if sampler is None or not (plain or _takes_its_samples_from_its_sampler(batch_sampler)):
        assert batch_sampler is not None
        drawn = [sample_numbers(batch, len(awake)).tolist() for batch in batch_sampler]
        return _refilled_to(least, drawn, awake)
    replicas, rank = replicas_of(loader)
    if isinstance(sampler, DistributedSampler):
        sampler = _unsharded(sampler)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    order = broadcast(_order_of(sampler, len(awake)))
    size = getattr(batch_sampler, "batch_size", None) or 1
    of_each = least * size
    while True:
        taken = order[_taken(order, awake, of_each, size, replicas)]
        taken_here = taken[: len(taken) // replicas * replicas][rank::replicas]
        if plain:
            assert isinstance(batch_sampler, BatchSampler)
            return SlicedBatches(taken_here, batch_sampler.batch_size, batch_sampler.drop_last)
        batches = list(_with_order(batch_sampler, taken_here))
        batches = batches[: least_over_ranks(len(batches))] if replicas > 1 else batches
        if len(batches) >= least or len(taken) == len(order):
            return batches
        of_each = len(taken_here) + (least - len(batches)) * size


def refilled(batches: Sequence[list[int]], awake: Tensor) -> list[list[int]]:
    """Leave sleeping samples out of ready-made batches, and make full batches of what is left.

    Samples move only between batches of one size, so that a batch sampler that bounds the size of a batch (so many
    tokens, say) keeps its bound. What then remains of the larger batches joins the smaller ones at the end.

    Example:
        >>> refilled([[0, 1], [2, 3], [4, 5]], awake=torch.tensor([True, False, True, True, False, True]))
        [[0, 2], [3, 5]]
    """
    full, waiting = [], defaultdict[int, list[int]](list)
    for batch, size in zip(batches, sizes_meant(batches), strict=True):
        kept = waiting[size]
        kept += [number for number, takes_part in zip(batch, awake[batch].tolist(), strict=True) if takes_part]
        if len(kept) >= size:
            full.append(kept[:size])
            del kept[:size]
    rest: list[int] = []
    for size in sorted(waiting, reverse=True):
        rest += waiting[size]
        while len(rest) >= size:
            full.append(rest[:size])
            del rest[:size]
    return [*full, rest] if rest else full


def _refilled_to(least: int, drawn: list[list[int]], awake: Tensor) -> list[list[int]]:
    """Drawn batches, refilled, with the sleeping samples that join in."""
    awake, batches, start = awake.clone(), refilled(drawn, awake), 0
    while len(batches) < least and start < len(drawn):
        joining = drawn[start : start + least - len(batches)]
        start += len(joining)
        awake[[number for batch in joining for number in batch]] = True
        batches = refilled(drawn, awake)
    if batches and len(batches[-1]) == 1 < max(map(len, drawn)):
        batches[-1] += [number for batch in drawn for number in batch if not awake[number]][:1]
    return batches


def sizes_meant(batches: Sequence[list[int]]) -> list[int]:
    """The size that each batch was to have: a last one of a size of its own, below that before it, is what was left.

    Example:
        >>> sizes_meant([[0, 1], [2, 3], [4]])
        [2, 2, 2]
    """
    sizes = [len(batch) for batch in batches]
    if len(sizes) > 1 and sizes[-1] < sizes[-2] and sizes.count(sizes[-1]) == 1:
        sizes[-1] = sizes[-2]
    return sizes


def sample_numbers(batch: Any, samples: int) -> array[int]:
    """The numbers of a batch, or an error if they are no numbers of ``samples`` samples."""
    try:
        numbers = array("q", batch)
    except (TypeError, ValueError, OverflowError):
        numbers = array("q")
    if not numbers:
        raise MisconfigurationException(
            "Skipping samples needs a batch sampler that yields lists of sample numbers, such as [3, 0, 7], got "
            f"{batch!r}: let it yield the indices of the samples, or remove the callback."
        )
    if min(numbers) < 0 or max(numbers) >= samples:
        raise _out_of_range(min(numbers), max(numbers), samples)
    return numbers


def _out_of_range(lowest: int, highest: int, samples: int) -> MisconfigurationException:
    return MisconfigurationException(
        f"Skipping samples needs sample numbers from 0 to {samples - 1} for a data set of {samples} samples, got "
        f"{lowest if lowest < 0 else highest}: let the sampler yield the indices of the data set's samples."
    )


def _order_of(sampler: Iterable[Any], samples: int) -> Tensor:
    try:
        order = array("q", sampler)
    except TypeError:
        first = next(iter(sampler), None)
        raise MisconfigurationException(
            f"Skipping samples needs a sampler that yields sample numbers, but {type(sampler).__name__} yields "
            f"{first!r}: let it yield the indices of the samples, or remove the callback."
        ) from None
    if not order:
        return torch.empty(0, dtype=torch.int64)
    numbers = torch.frombuffer(order, dtype=torch.int64)
    lowest, highest = (int(bound) for bound in numbers.aminmax())
    if lowest < 0 or highest >= samples:
        raise _out_of_range(lowest, highest, samples)
    return numbers


def _taken(order: Tensor, awake: Tensor, least: int, batch_size: int, replicas: int) -> Tensor:
    """Which entries of ``order`` take part: what is awake, and the sleeping samples that join in, to ``least`` each."""
    taken = awake[order]
    count = int(torch.count_nonzero(taken))
    of_each = max(count // replicas, least)
    if batch_size > 1 and of_each % batch_size == 1:
        of_each += 1
    joining = max(of_each * replicas - count, 0)
    taken[(~taken).nonzero().squeeze(-1)[:joining]] = True
    return taken


def _unsharded(sampler: DistributedSampler[Any]) -> DistributedSampler[Any]:
    """The same sampler for a single process: it yields the order of all processes, without repetitions."""
    whole = copy.copy(sampler)
    whole.num_replicas, whole.rank, whole.drop_last = 1, 0, False
    whole.num_samples = whole.total_size = len(whole.dataset)  # type: ignore[arg-type]
    return whole


def _with_order(batch_sampler: Any, order: Tensor) -> Any:
    other = copy.copy(batch_sampler)
    other.sampler = DrawnOrder(order)
    return other


def _takes_its_samples_from_its_sampler(batch_sampler: Any) -> bool:
    """Whether a batch sampler looks at its ``sampler`` when it makes batches: from an empty one it then makes none."""
    with isolate_rng():
        try:
            return next(iter(_with_order(batch_sampler, torch.empty(0, dtype=torch.int64))), None) is None
        except Exception:
            return False
