"""The order of the training samples, as a function of seed and epoch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.data.loaders import EpochOrder


@given(length=st.integers(1, 50), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 1000))
def test_every_index_comes_once_whatever_the_seed_and_the_epoch(length, seed, epoch):
    order = EpochOrder(range(length), seed)
    order.set_epoch(epoch)
    assert sorted(order) == list(range(length))
    assert len(order) == length


def test_each_seed_and_each_epoch_have_an_order_of_their_own():
    found = set()
    for seed in range(5):
        order = EpochOrder(range(50), seed)
        for epoch in range(5):
            order.set_epoch(epoch)
            found.add(tuple(order))
    assert len(found) == 25


def order_of(data: Digits, epoch: int) -> list[int]:
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return torch.cat([targets for _, targets in loader]).tolist()


def test_the_order_depends_on_the_runs_seed_and_the_epoch_and_not_on_the_random_state():
    data = Digits()
    data.setup()
    torch.manual_seed(3)
    first = order_of(data, 1)
    torch.rand(7)
    assert order_of(data, 1) == first
    assert order_of(data, 2) != first
    torch.manual_seed(4)
    assert order_of(data, 1) != first


def test_loading_batches_leaves_the_random_state_alone():
    data = Digits()
    data.setup()
    before = torch.get_rng_state()
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        list(loader)
    assert torch.equal(torch.get_rng_state(), before)
