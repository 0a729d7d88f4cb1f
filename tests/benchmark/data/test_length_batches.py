"""Batches of texts of similar length: nothing lost, and little padding."""

from __future__ import annotations

import pytest
import torch
from harness.data_on_two_ranks import TRAIN, Numbered, Watches
from harness.scripted_masking import quiet_trainer
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler

from as_lightning.benchmark.data.loaders import EpochOrder, LengthBatchSampler

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=80)


@given(lengths=LENGTHS, batch_size=st.integers(1, 9), pool_batches=st.integers(1, 5), shuffle=st.booleans())
def test_every_index_comes_once_an_epoch_in_batches_of_the_size_asked_for(lengths, batch_size, pool_batches, shuffle):
    sampler = LengthBatchSampler(
        RandomSampler(lengths), batch_size, False, lengths=lengths, pool_batches=pool_batches, shuffle=shuffle
    )
    for _ in range(2):
        batches = list(sampler)
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        assert len(batches) == len(sampler) == -(-len(lengths) // batch_size)
        sizes = sorted((len(batch) for batch in batches), reverse=True)
        assert set(sizes[:-1]) <= {batch_size}


@given(lengths=LENGTHS, batch_size=st.integers(1, 9), pool_batches=st.integers(1, 5))
def test_within_a_pool_the_lengths_are_sorted_and_the_pool_is_the_samplers(lengths, batch_size, pool_batches):
    order = torch.randperm(len(lengths)).tolist()
    batches = list(LengthBatchSampler(order, batch_size, False, lengths=lengths, pool_batches=pool_batches))
    size = batch_size * pool_batches
    taken = [index for batch in batches for index in batch]
    for start in range(0, len(order), size):
        pool = taken[start : start + size]
        assert sorted(pool) == sorted(order[start : start + size])
        assert [lengths[index] for index in pool] == sorted(lengths[index] for index in pool)


@given(lengths=LENGTHS, batch_size=st.integers(1, 9), pool_batches=st.integers(1, 5), shuffle=st.booleans())
def test_a_short_batch_is_left_out_where_that_is_asked_for(lengths, batch_size, pool_batches, shuffle):
    batches = list(
        LengthBatchSampler(
            range(len(lengths)), batch_size, True, lengths=lengths, pool_batches=pool_batches, shuffle=shuffle
        )
    )
    assert {len(batch) for batch in batches} <= {batch_size}
    assert len(batches) == len(lengths) // batch_size
    assert len({index for batch in batches for index in batch}) == len(batches) * batch_size


def test_the_order_of_shuffled_batches_is_a_function_of_seed_and_epoch():
    def batches(seed: int, epoch: int) -> list[list[int]]:
        order = EpochOrder(range(64), seed)
        order.set_epoch(epoch)
        sampler = LengthBatchSampler(order, 4, False, lengths=[1] * 64, pool_batches=4, shuffle=True)
        torch.rand(seed + epoch)  # the global random state makes no difference
        return list(sampler)

    assert batches(0, 0) == batches(0, 0)
    assert len({str(batches(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_the_batches_of_a_pool_do_not_come_in_the_order_of_their_lengths():
    sampler = LengthBatchSampler(range(64), 4, False, lengths=list(range(64)), shuffle=True)
    assert sorted(sampler) == [list(range(start, start + 4)) for start in range(0, 64, 4)]
    assert list(sampler) != sorted(sampler)


def test_a_pool_of_no_batches_is_refused():
    with pytest.raises(ValueError, match="pool_batches must be at least 1, got 0"):
        LengthBatchSampler([0], 1, False, lengths=[1], pool_batches=0)


def test_a_trainer_on_one_process_sees_every_sample_once_an_epoch():
    module = Watches()
    quiet_trainer(max_epochs=2).fit(module, datamodule=Numbered())
    assert [sorted(epoch) for epoch in module.trained] == [list(range(TRAIN))] * 2
    assert module.trained[0] != module.trained[1]


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_loader_handed_to_predict_gives_every_sample(split):
    data = Numbered()
    data.setup()
    loader = data.train_dataloader() if split == "train" else data.test_dataloader()
    predicted = quiet_trainer().predict(Watches(), loader)
    assert sorted(torch.cat(predicted).tolist()) == list(range(len(data.splits[split])))
