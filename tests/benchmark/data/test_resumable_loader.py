"""A training loader that is resumed where a checkpoint was saved, alone and by Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.data_on_two_ranks import Numbered, Watches
from harness.scripted_masking import quiet_trainer
from torch.utils.data import BatchSampler

from as_lightning.benchmark.data.loaders import EpochOrder, ResumableLoader

LENGTH, BATCH = 22, 4
BATCHES = -(-LENGTH // BATCH)


class Numbers(torch.utils.data.Dataset):
    """Each sample is its index; ``taken`` are those that were asked for."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        self.taken.append(index)
        return index


def loader(seed: int = 0, **arguments: Any) -> ResumableLoader:
    numbers = Numbers()
    return ResumableLoader(numbers, batch_size=BATCH, sampler=EpochOrder(numbers, seed), **arguments)


def batches(loader: ResumableLoader, epoch: int) -> list[list[int]]:
    loader.sampler.set_epoch(epoch)
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("given", [0, 1, 3, BATCHES])
def test_a_loader_goes_on_behind_the_batches_that_were_given(given, num_workers):
    undisturbed, killed = loader(), loader()
    killed.sampler.set_epoch(2)
    batch = iter(killed)
    first = [next(batch).tolist() for _ in range(given)]
    resumed = loader(num_workers=num_workers)
    resumed.load_state_dict(killed.state_dict())
    assert first + batches(resumed, 2) == batches(undisturbed, 2)
    assert batches(resumed, 3) == batches(undisturbed, 3)


def test_batches_that_were_given_are_not_loaded_again():
    resumed = loader()
    resumed.load_state_dict({"epoch": 0, "batches": 4})
    assert [number for batch in resumed for number in batch.tolist()] == resumed.dataset.taken
    assert len(resumed.dataset.taken) == LENGTH - 4 * BATCH


def test_a_state_of_another_epoch_starts_at_the_first_batch():
    resumed = loader()
    resumed.load_state_dict({"epoch": 1, "batches": 4})
    assert batches(resumed, 2) == batches(loader(), 2)


def test_the_place_is_used_once():
    resumed = loader()
    resumed.load_state_dict({"epoch": 0, "batches": 4})
    assert len(batches(resumed, 0)) == BATCHES - 4
    assert len(batches(resumed, 0)) == BATCHES


def test_an_iterator_of_which_no_batch_is_taken_does_not_use_the_place_up():
    resumed = loader()
    resumed.load_state_dict({"epoch": 0, "batches": 4})
    iter(resumed)
    iter(resumed)
    assert resumed.state_dict() == {"epoch": 0, "batches": 4}
    assert len(batches(resumed, 0)) == BATCHES - 4


def test_any_batch_sampler_is_resumed():
    numbers = Numbers()
    sampler = BatchSampler(EpochOrder(numbers, 0), BATCH, drop_last=True)
    resumed = ResumableLoader(numbers, batch_sampler=sampler)
    resumed.load_state_dict({"epoch": 0, "batches": 2})
    assert [batch.tolist() for batch in resumed] == list(sampler)[2:]


class Saves(pl.Callback):
    """Saves a checkpoint after each batch and each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.global_step:03}.ckpt")

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.global_step:03}-epoch.ckpt")


@pytest.mark.parametrize("length_buckets", [True, False])
@pytest.mark.parametrize("limits", [{}, {"limit_train_batches": 3}, {"reload_dataloaders_every_n_epochs": 1}])
def test_a_run_that_is_resumed_anywhere_sees_the_batches_of_one_that_was_never_stopped(
    tmp_path, length_buckets, limits
):
    def fit(*callbacks: pl.Callback, checkpoint: Path | None = None) -> list[list[int]]:
        torch.manual_seed(0)
        torch.rand(len(callbacks))  # another random state, the same seed
        module = Watches()
        trainer = quiet_trainer(max_epochs=3, callbacks=list(callbacks), **limits)
        data = Numbered(train=30, length_buckets=length_buckets)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
        return module.batches

    undisturbed = fit(Saves(tmp_path))
    checkpoints = sorted(tmp_path.iterdir())
    assert len(checkpoints) == len(undisturbed) + 3
    for checkpoint in checkpoints[:-2]:  # the last two end the training
        assert fit(checkpoint=checkpoint) == undisturbed[int(checkpoint.name[:3]) :], checkpoint.name
