"""Sample numbers stay with their batches, and the batches of a shortened epoch are those of the user's samplers."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
import torch
from harness.length_batches import LengthBatches, length_of
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from as_lightning.callbacks.epoch_batches import batches_of_awake, refilled, sizes_meant
from as_lightning.callbacks.numbered_loader import NumberedLoader

SAMPLES = 41


class Numbers(Dataset[int]):
    """Each sample is its own number."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index


class TokenBudget:
    """A batch sampler of one's own: no sampler inside, batches of several sizes, another order each time."""

    def __init__(self, sizes: Sequence[int] = (2, 5, 3)) -> None:
        self.sizes = sizes

    def __iter__(self) -> Iterator[list[int]]:
        order, start, turn = random.Random(torch.randint(99, ()).item()).sample(range(SAMPLES), SAMPLES), 0, 0
        while start < SAMPLES:
            yield order[start : start + self.sizes[turn % len(self.sizes)]]
            start, turn = start + self.sizes[turn % len(self.sizes)], turn + 1


class Precomputed(BatchSampler):
    """Has a ``sampler``, but made its batches when it was made."""

    def __init__(self) -> None:
        super().__init__(SequentialSampler(range(SAMPLES)), 4, False)
        self.batches = [list(range(start, min(start + 4, SAMPLES))) for start in range(0, SAMPLES, 4)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


def by_length() -> LengthBatches:
    return LengthBatches(RandomSampler(range(SAMPLES)), 4, False)


LOADERS: dict[str, dict[str, Any]] = {
    "random": {"batch_size": 4, "shuffle": True},
    "sequential": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "weighted": {"batch_size": 4, "sampler": WeightedRandomSampler(torch.arange(SAMPLES) + 1.0, 30)},
    "subset": {"batch_size": 4, "sampler": SubsetRandomSampler(range(3, 30))},
}
BATCH_SAMPLERS = {"by length": by_length, "token budget": TokenBudget, "precomputed": Precomputed}


def loader_of(kind: str, **settings: Any) -> DataLoader[Any]:
    if kind in BATCH_SAMPLERS:
        return DataLoader(Numbers(), batch_sampler=BATCH_SAMPLERS[kind](), **settings)
    return DataLoader(Numbers(), **LOADERS[kind], **settings)


every_kind = pytest.mark.parametrize("kind", [*LOADERS, *BATCH_SAMPLERS])
every_third = torch.arange(SAMPLES) % 3 == 0


def handed_over(loader: NumberedLoader, batches: int | None = None) -> list[tuple[list[int], list[int]]]:
    """Pairs of the batch itself and the numbers that the loader tells."""
    pairs = []
    for batch in islice(iter(loader), batches):
        assert loader.numbers is not None
        pairs.append((batch.tolist(), list(loader.numbers)))
    return pairs


@every_kind
@pytest.mark.parametrize("num_workers", [0, 2])
def test_numbers_are_those_of_the_batch_handed_over(kind: str, num_workers: int) -> None:
    loader = NumberedLoader(loader_of(kind, num_workers=num_workers))
    loader.plan(loader.loader.batch_sampler, 0)
    pairs = handed_over(loader)
    assert len(pairs) > 5
    assert all(batch == numbers for batch, numbers in pairs)


@pytest.mark.parametrize("persistent_workers", [True, False])
def test_numbers_stay_with_their_batches_after_a_pass_that_was_stopped_early(persistent_workers: bool) -> None:
    loader = NumberedLoader(loader_of("random", num_workers=2, persistent_workers=persistent_workers))
    loader.plan(loader.loader.batch_sampler, 11)
    stopped = handed_over(loader, batches=3)
    whole = handed_over(loader)
    assert len(stopped) == 3
    assert sorted(number for _, numbers in whole for number in numbers) == list(range(SAMPLES))
    assert all(batch == numbers for batch, numbers in stopped + whole)


def test_a_second_pass_begun_inside_the_first_leaves_the_numbers_with_their_batches() -> None:
    loader = NumberedLoader(loader_of("random"))
    loader.plan(loader.loader.batch_sampler, 11)
    for batch in loader:
        numbers = loader.numbers
        next(iter(loader))
        assert batch.tolist() == list(numbers)


@every_kind
def test_a_loader_that_starts_when_the_first_batch_is_asked_for_tells_the_numbers_too(kind: str) -> None:
    class Lazy(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            yield from super().__iter__()

    mine = loader_of(kind)
    lazy = Lazy(Numbers(), batch_sampler=mine.batch_sampler)
    loader = NumberedLoader(lazy)
    loader.plan(lazy.batch_sampler, 0)
    first, second = iter(loader), iter(loader)
    for batches in (second, first, second, first):
        batch = next(batches)
        assert batch.tolist() == list(loader.numbers)


@every_kind
def test_the_users_loader_is_unchanged_and_yields_the_same_batches(kind: str) -> None:
    mine = loader_of(kind)
    sampler = mine.batch_sampler
    torch.manual_seed(1)
    expected = [batch.tolist() for batch in mine]
    numbered = NumberedLoader(mine)
    numbered.plan(mine.batch_sampler, 0)
    torch.manual_seed(1)
    assert [batch for batch, _ in handed_over(numbered)] == expected
    assert mine.batch_sampler is sampler


@every_kind
def test_a_shortened_epoch_takes_each_drawn_sample_that_is_awake_and_no_other(kind: str) -> None:
    loader = loader_of(kind)
    torch.manual_seed(2)
    drawn = [number for batch in loader.batch_sampler for number in batch]
    torch.manual_seed(2)
    taken = [number for batch in batches_of_awake(loader, every_third, 0) for number in batch]
    expected = [number for number in drawn if every_third[number]]
    if kind == "drop_last":
        assert set(taken) <= set(torch.arange(SAMPLES)[every_third].tolist())
        assert len(taken) == len(range(0, SAMPLES, 3)) // 4 * 4
    else:
        joining = len(taken) - len(expected)  # so that no batch has a single sample
        assert joining == (len(expected) % 4 == 1 and kind != "token budget")
        assert sorted(number for number in taken if every_third[number]) == sorted(expected)


@every_kind
def test_batches_of_a_shortened_epoch_are_full(kind: str) -> None:
    loader = loader_of(kind)
    batches = list(batches_of_awake(loader, every_third, 0))
    if kind == "token budget":
        assert len([batch for batch in batches if len(batch) not in (2, 3, 5)]) <= 1
    else:
        assert [len(batch) for batch in batches[:-1]] == [4] * (len(batches) - 1)


@pytest.mark.parametrize("kind", ["random", "by length", "token budget", "precomputed"])
def test_no_batch_has_a_single_sample(kind: str) -> None:
    for count in range(1, SAMPLES):
        batches = list(batches_of_awake(loader_of(kind), torch.arange(SAMPLES) < count, 0))
        assert min(len(batch) for batch in batches) > 1
        assert set(range(count)) <= {number for batch in batches for number in batch}


def test_a_random_sampler_draws_the_order_of_a_shortened_epoch() -> None:
    torch.manual_seed(3)
    order = torch.tensor(list(RandomSampler(range(SAMPLES))))
    torch.manual_seed(3)
    batches = list(batches_of_awake(loader_of("random"), every_third, 0))
    assert [number for batch in batches for number in batch] == order[every_third[order]].tolist()


def test_batches_by_length_are_still_by_length_when_samples_sleep() -> None:
    batches = [sorted(map(length_of, batch)) for batch in batches_of_awake(loader_of("by length"), every_third, 0)]
    spans = [lengths[-1] - lengths[0] for lengths in batches if len(lengths) == 4]
    assert sum(spans) / len(spans) < 15  # at random: 20 of 22


def test_the_sampler_is_told_the_epoch() -> None:
    loader = DataLoader(Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), num_replicas=1, rank=0))
    orders = [[n for batch in batches_of_awake(loader, every_third, epoch) for n in batch] for epoch in (0, 1, 1)]
    assert orders[0] != orders[1] == orders[2]


@given(
    st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=6), max_size=12),
    st.lists(st.booleans(), min_size=50, max_size=50),
)
def test_refilled_batches_keep_every_awake_sample_and_no_batch_grows(
    batches: list[list[int]], awake: list[bool]
) -> None:
    result = refilled(batches, torch.tensor(awake))
    kept = sorted(number for batch in batches for number in batch if awake[number])
    assert sorted(number for batch in result for number in batch) == kept
    sizes = sizes_meant(batches)
    largest = {n: max(size for batch, size in zip(batches, sizes, strict=True) if n in batch) for n in kept}
    assert all(len(batch) <= largest[number] for batch in result for number in batch)
    assert len([batch for batch in result if len(batch) not in sizes]) <= 1


@every_kind
def test_an_epoch_has_at_least_one_batch(kind: str) -> None:
    batches = list(batches_of_awake(loader_of(kind), torch.zeros(SAMPLES, dtype=torch.bool), 0))
    assert len(batches) == 1
    assert len(batches[0]) in (2, 4)


@every_kind
@pytest.mark.parametrize("least", [2, 5, 100])
def test_sleeping_samples_join_until_an_epoch_has_the_batches_that_are_asked_for(kind: str, least: int) -> None:
    torch.manual_seed(0)
    awake = torch.arange(SAMPLES) < 6
    of_all = len(list(batches_of_awake(loader_of(kind), torch.ones(SAMPLES, dtype=torch.bool), 0)))
    batches = list(batches_of_awake(loader_of(kind), awake, 0, least=least))
    assert len(batches) in (range(least, least + 2) if least < of_all else [of_all])
    if kind not in ("weighted", "subset"):  # their samplers draw not all samples
        assert set(range(6)) <= {number for batch in batches for number in batch}


@pytest.mark.parametrize("sampler", [None, "by length"])
@given(st.lists(st.booleans(), min_size=SAMPLES, max_size=SAMPLES))
def test_ranks_share_the_plan_in_equal_parts_and_none_takes_a_sample_twice(
    sampler: str | None, awake: list[bool]
) -> None:
    plan, parts = torch.tensor(awake), []
    for rank in range(3):
        shard = DistributedSampler(Numbers(), num_replicas=3, rank=rank, seed=5)
        if sampler is None:
            loader = DataLoader(Numbers(), batch_size=4, sampler=shard)
        else:
            loader = DataLoader(Numbers(), batch_sampler=LengthBatches(shard, 4, False))
        parts.append(list(batches_of_awake(loader, plan, 0)))
    assert len({len(batches) for batches in parts}) == 1
    taken = [number for batches in parts for batch in batches for number in batch]
    assert len(taken) == len(set(taken))
    awake_numbers = set(plan.nonzero().squeeze(-1).tolist())
    of_each = max(len(awake_numbers) // 3, 4)
    assert len(taken) == 3 * (of_each + (of_each % 4 == 1))
    assert set(taken) <= awake_numbers or awake_numbers <= set(taken)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([[1, 2], [3]], "needs one torch.utils.data.DataLoader .* got a list"),
        (DataLoader(Stream()), "Stream is an iterable data set: give it __len__ and __getitem__"),
        (DataLoader(Numbers(), batch_size=None), "batch_size=None .* give it a batch_size"),
        (DataLoader(Numbers(), num_workers=2, in_order=False), "in_order=False .* set in_order=True"),
    ],
)
def test_a_loader_whose_samples_have_no_numbers_is_refused_with_the_way_out(loader: Any, message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message):
        NumberedLoader(loader)


@pytest.mark.parametrize("batch", [["a", "b"], [0.5, 1.0], [(0, 1), (1, 2)], 3, [], [0, SAMPLES], [-1]])
def test_a_batch_that_is_no_list_of_sample_numbers_is_refused(batch: Any) -> None:
    loader = NumberedLoader(DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=4))
    loader.plan([batch], 1)
    with pytest.raises(MisconfigurationException, match=r"sample numbers"):
        next(iter(loader))


class Pairs(Dataset[Tensor]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Tensor:
        return torch.tensor(index)


def test_a_sampler_that_yields_what_is_no_number_is_refused() -> None:
    loader = DataLoader(Pairs(), batch_size=2, sampler=[(0, 1), (1, 2), (2, 0)])
    with pytest.raises(MisconfigurationException, match=r"list yields \(0, 1\)"):
        batches_of_awake(loader, torch.tensor([True, False, True]), 0)


def test_what_is_left_of_a_pass_is_what_was_not_handed_over() -> None:
    loader = NumberedLoader(loader_of("random", num_workers=2))
    loader.plan(loader.loader.batch_sampler, 11)
    batches, given_over = iter(loader), []
    for _ in range(4):
        given_over.append(next(batches).tolist())
    rest = loader.rest_of_pass()
    assert rest == [batch.tolist() for batch in batches]
    assert sorted(number for batch in given_over + list(rest) for number in batch) == list(range(SAMPLES))


def test_an_attribute_that_neither_loader_has_is_missing_also_in_a_copy_that_is_being_made() -> None:
    loader = NumberedLoader(DataLoader(Numbers(), batch_size=4))
    assert loader.batch_size == 4
    assert not hasattr(loader, "no_such_attribute")
    assert not hasattr(object.__new__(NumberedLoader), "batch_size")
    for copied in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        copied.plan([[3, 1]], 1)
        assert [batch.tolist() for batch in copied] == [[3, 1]]
        assert copied.numbers.tolist() == [3, 1]
