"""The order of the samples, batches of similar length, resumed runs, and two processes (gloo)."""

from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from harness import data_on_two_ranks
from harness.data_on_two_ranks import BATCH, EPOCHS, TRAIN, VALIDATION, Numbered, Watches
from harness.rank_processes import Seen, run_two_ranks
from harness.scripted_masking import quiet_trainer
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import RandomSampler

from as_lightning.bench.data.digits import Digits
from as_lightning.bench.data.loaders import LengthBatchSampler


@pytest.mark.parametrize("module", [Digits, lambda: Numbered(train=600)], ids=["digits", "texts"])
def test_the_order_depends_on_seed_and_epoch_and_not_on_the_random_state(module):
    data = module()
    data.setup()

    def order_of(seed: int, epoch: int) -> list[int]:
        torch.manual_seed(seed)
        torch.rand((seed + epoch) % 7)
        before = torch.get_rng_state()
        loader = data.train_dataloader()
        loader.batch_sampler.sampler.set_epoch(epoch)
        order = torch.cat([targets for _, targets in loader]).tolist()
        for other in (data.val_dataloader(), data.test_dataloader()):
            list(other)
        assert torch.equal(torch.get_rng_state(), before)
        return order

    assert order_of(3, 1) == order_of(3, 1)
    orders = [order_of(*of) for of in ((3, 1), (3, 2), (4, 1), (2**64 - 1, 1))]
    assert len({*map(tuple, orders)}) == 4
    assert len({*map(tuple, map(sorted, orders))}) == 1  # every sample once
    data.trainer = quiet_trainer(overfit_batches=3)
    assert order_of(3, 1) == order_of(3, 2)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=80), st.integers(1, 9), st.booleans())
def test_every_index_comes_once_an_epoch(lengths, batch_size, shuffle):
    order = RandomSampler(lengths)
    sampler = LengthBatchSampler(order, batch_size, False, lengths=lengths, shuffle=shuffle)
    whole, rest = divmod(len(lengths), batch_size)
    sizes = [batch_size] * whole + ([rest] if rest else [])
    for _ in range(2):
        batches = list(sampler)
        assert sorted(map(len, batches), reverse=True) == sizes
        assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    assert len(sampler) == len(sizes)


@pytest.mark.parametrize("length_buckets", [True, False])
@pytest.mark.parametrize(
    "limits", [{}, {"limit_train_batches": 3}, {"reload_dataloaders_every_n_epochs": 1}]
)
def test_a_resumed_run_sees_the_batches_of_one_never_stopped(tmp_path, length_buckets, limits):
    def fit(*callbacks: pl.Callback, checkpoint: Path | None = None) -> list[list[int]]:
        torch.manual_seed(0)
        torch.rand(len(callbacks))  # another random state, the same seed
        module = Watches()
        trainer = quiet_trainer(
            max_epochs=3, callbacks=list(callbacks), enable_checkpointing=bool(callbacks), **limits
        )
        data = Numbered(train=30, length_buckets=length_buckets)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
        return module.batches

    undisturbed = fit(
        ModelCheckpoint(tmp_path, "{epoch}", save_on_train_epoch_end=True, save_top_k=-1)
    )
    for epoch in (0, 1):
        resumed = fit(checkpoint=tmp_path / f"epoch={epoch}.ckpt")
        assert resumed == undisturbed[(epoch + 1) * len(undisturbed) // 3 :]


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Seen:
    scenarios = ["loaders_of_the_hooks", "loaders_handed_over", "resumed", "predictions"]
    folder = tmp_path_factory.mktemp("data-on-two-ranks")
    return run_two_ranks(data_on_two_ranks.__file__, folder, scenarios, CUDA_VISIBLE_DEVICES="")


@pytest.mark.parametrize("scenario", ["loaders_of_the_hooks", "loaders_handed_over"])
def test_each_of_two_ranks_trains_on_its_own_part_in_batches_of_similar_length(seen, scenario):
    ranks = seen(scenario)
    for epoch in range(EPOCHS):
        parts = [rank["trained"][epoch] for rank in ranks]
        assert [len(part) for part in parts] == [TRAIN // 2] * 2
        assert sorted(parts[0] + parts[1]) == list(range(TRAIN))
    assert ranks[0]["trained"][0] != ranks[0]["trained"][1]
    # an odd number: one sample is validated on both ranks
    assert sorted(set(ranks[0]["validated"] + ranks[1]["validated"])) == list(range(VALIDATION))
    assert len(ranks[0]["validated"]) == len(ranks[1]["validated"]) == VALIDATION // 2 + 1
    for rank in ranks:
        samples, longest, present = torch.tensor(rank["shapes"]).unbind(-1)
        assert int(samples.max()) == BATCH
        assert int(present.sum()) > 0.95 * int((samples * longest).sum())


def test_two_resumed_ranks_see_the_batches_of_a_run_never_stopped(seen):
    for rank in seen("resumed"):
        assert rank["resumed"] == rank["undisturbed"][len(rank["undisturbed"]) // EPOCHS :]
        assert len(rank["resumed"]) == TRAIN // 2 // BATCH


def test_two_ranks_share_the_samples_of_a_prediction(seen):
    first, second = (rank["predicted"] for rank in seen("predictions"))
    assert sorted(first + second) == list(range(VALIDATION))
