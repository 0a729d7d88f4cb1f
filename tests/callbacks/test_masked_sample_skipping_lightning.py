"""What Lightning sees of epochs that change their length: validation, progress, schedules, checkpoints, neighbours."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import quiet_trainer
from harness.sleeping_samples import SAMPLES, NumberedSamples, SleepingClassifier, numbered_loader
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import default_collate

from as_lightning.callbacks import AdaptiveGradientAccumulation, MaskingMonitor
from as_lightning.callbacks.epoch_plan import least_batches
from as_lightning.callbacks.masked_sample_skipping import MaskedSampleSkipping
from as_lightning.callbacks.random_skipping import RandomSkipping

NO_GUARDS: dict[str, Any] = {"min_masked": 0.0, "max_woken": 1.0, "class_floor": 0.0}
EPOCHS, FULL = 8, 8  # batches of a full epoch


def fit(
    module: SleepingClassifier,
    callbacks: list[pl.Callback],
    *,
    loader: Any = None,
    ckpt_path: Any = None,
    **settings: Any,
) -> pl.Trainer:
    torch.manual_seed(0)
    trainer = quiet_trainer(**({"max_epochs": EPOCHS, "callbacks": callbacks} | settings))
    loader = numbered_loader() if loader is None else loader
    trainer.fit(module, loader, numbered_loader(shuffle=False), ckpt_path=ckpt_path)
    return trainer


def shortened(module: SleepingClassifier) -> list[int]:
    lengths = [len(epoch) for epoch in module.epochs]
    assert lengths == module.lengths
    assert lengths[0] == FULL > min(lengths)
    return lengths


def test_validation_runs_at_the_end_of_every_shortened_epoch() -> None:
    module = SleepingClassifier()
    fit(module, [MaskedSampleSkipping(**NO_GUARDS)], num_sanity_val_steps=0)
    lengths = shortened(module)
    assert module.validated == [(epoch, sum(lengths[: epoch + 1])) for epoch in range(EPOCHS)]


def test_val_check_interval_as_a_share_is_of_each_epochs_own_length() -> None:
    module = SleepingClassifier()
    fit(module, [MaskedSampleSkipping(max_sleep=1, **NO_GUARDS)], num_sanity_val_steps=0, val_check_interval=0.5)
    expected, before = [], 0
    for epoch, length in enumerate(shortened(module)):
        interval = max(1, length // 2)
        expected += [(epoch, before + batch) for batch in range(interval, length + 1, interval)]
        before += length
    assert module.validated == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"val_check_interval": 7},
        {"limit_train_batches": 0.2},
        {"limit_train_batches": 0.5, "val_check_interval": 4},
        {"limit_train_batches": 7, "val_check_interval": 5},
    ],
)
def test_an_epoch_is_no_shorter_than_the_trainers_limits_allow(settings: dict[str, Any]) -> None:
    module = SleepingClassifier()
    fit(module, [RandomSkipping([1.0, 0.2])], num_sanity_val_steps=0, max_epochs=4, **settings)
    assert len(module.epochs) == 4
    assert len({epoch for epoch, _ in module.validated}) == 4


@pytest.mark.parametrize("limit", [share / 100 for share in range(1, 101)])
def test_the_fewest_batches_of_an_epoch_are_those_that_lightning_asks_for(limit: float) -> None:
    for least in (1, 3):
        trainer = quiet_trainer(limit_train_batches=limit, val_check_interval=1.0 if least == 1 else least)
        batches = least_batches(trainer)
        assert int(batches * limit) >= least > int((batches - 1) * limit)


def test_progress_bars_see_the_length_of_every_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    class Totals(TQDMProgressBar):
        seen: list[int] = []  # noqa: RUF012

        def on_train_batch_end(self, *args: Any) -> None:
            super().on_train_batch_end(*args)
            if self.trainer.is_last_batch:
                self.seen.append((int(self.total_train_batches), int(self.train_progress_bar.n)))

    module, bar = SleepingClassifier(), Totals()
    fit(module, [MaskedSampleSkipping(**NO_GUARDS), bar], enable_progress_bar=True)
    assert bar.seen == [(length, length) for length in shortened(module)]


def test_limit_train_batches_as_a_share_is_of_each_epochs_own_length() -> None:
    module = SleepingClassifier()
    skipping = MaskedSampleSkipping(max_sleep=1, **NO_GUARDS)
    fit(module, [skipping], limit_train_batches=0.5)
    assert module.lengths[0] == FULL // 2
    assert all(epoch.visits <= epoch.awake for epoch in skipping.history)
    assert min(epoch.awake for epoch in skipping.history) < SAMPLES


def one_cycle(optimizer: torch.optim.Optimizer, steps: int) -> OneCycleLR:
    return OneCycleLR(optimizer, max_lr=0.3, total_steps=steps, cycle_momentum=False)


def counting(optimizer: torch.optim.Optimizer, steps: int) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: 1.0 / (1 + step / 1000))


@pytest.mark.parametrize(
    ("callbacks", "settings"),
    [
        (list, {}),
        (list, {"accumulate_grad_batches": 2}),
        (lambda: [AdaptiveGradientAccumulation(3)], {}),
    ],
    ids=["alone", "accumulate 2", "adaptive accumulation"],
)
@pytest.mark.parametrize("scheduler", [one_cycle, counting])
def test_the_schedule_is_at_its_end_when_training_is(callbacks: Any, settings: dict[str, Any], scheduler: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message=".*(num_workers|many workers|LeafSpec|log_every_n_steps|litlogger).*")
        module = SleepingClassifier(scheduler=scheduler)
        trainer = fit(module, [MaskedSampleSkipping(**NO_GUARDS), *callbacks()], **settings)
    full_steps = -(-FULL // settings.get("accumulate_grad_batches", 1)) * EPOCHS
    assert min(module.lengths) < FULL
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == full_steps


def test_the_schedule_follows_the_data_inside_each_epoch() -> None:
    class Follows(SleepingClassifier):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            scheduler, length = self.trainer.lr_scheduler_configs[0].scheduler, self.trainer.num_training_batches
            covered = FULL * (self.trainer.current_epoch + (batch_idx + 1) / length)
            self.steps = [*getattr(self, "steps", []), (scheduler.last_epoch, covered)]

    module = Follows(scheduler=counting)
    fit(module, [MaskedSampleSkipping(max_sleep=1, **NO_GUARDS)])
    assert isinstance(module, Follows)
    assert all(exact - 1 < steps <= exact + 1e-9 for steps, exact in module.steps)


def test_the_schedule_follows_optimizer_steps_if_asked_to() -> None:
    module = SleepingClassifier(scheduler=counting)
    trainer = fit(module, [MaskedSampleSkipping(lr_pace="steps", **NO_GUARDS)])
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == trainer.global_step < FULL * EPOCHS


@pytest.mark.parametrize("scheduler", [one_cycle, counting])
def test_the_schedule_follows_optimizer_steps_if_these_alone_end_the_training(scheduler: Any) -> None:
    module = SleepingClassifier(scheduler=scheduler)
    trainer = fit(module, [MaskedSampleSkipping(**NO_GUARDS)], max_epochs=-1, max_steps=40)
    assert min(module.lengths) < FULL
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == trainer.global_step == 40


def test_the_trainer_and_the_loader_are_as_they_were_after_fit() -> None:
    module, loader = SleepingClassifier(), numbered_loader()
    sampler = loader.batch_sampler
    trainer = fit(module, [MaskedSampleSkipping(**NO_GUARDS)], loader=loader)
    assert trainer.reload_dataloaders_every_n_epochs == 0
    assert "process_dataloader" not in vars(trainer.strategy)
    assert loader.batch_sampler is sampler
    assert len(loader) == FULL


def test_a_data_module_and_a_module_may_give_the_loader() -> None:
    class Data(pl.LightningDataModule):
        def train_dataloader(self) -> Any:
            return numbered_loader()

    class Own(SleepingClassifier):
        def train_dataloader(self) -> Any:
            return numbered_loader()

    seen = []
    for module, data in [(SleepingClassifier(), Data()), (Own(), None)]:
        torch.manual_seed(0)
        trainer = quiet_trainer(max_epochs=EPOCHS, callbacks=[MaskedSampleSkipping(**NO_GUARDS)])
        trainer.fit(module, datamodule=data)
        seen.append(shortened(module))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("persistent_workers", [True, False])
def test_worker_processes_give_the_batches_of_the_plan(persistent_workers: bool) -> None:
    plain, workers = SleepingClassifier(), SleepingClassifier()
    settings = {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1}
    data = {"shuffle": False, "batch_size": 4}
    fit(plain, [MaskedSampleSkipping(**NO_GUARDS)], loader=numbered_loader(**data), **settings)
    loader = numbered_loader(**data, num_workers=2, persistent_workers=persistent_workers, prefetch_factor=3)
    fit(workers, [MaskedSampleSkipping(**NO_GUARDS)], loader=loader, **settings)
    assert plain.epochs == workers.epochs
    assert len(plain.epochs[1]) < len(plain.epochs[0])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_that_is_stopped_early_leaves_the_rest_awake(num_workers: int) -> None:
    class StopsTheSecondEpoch(SleepingClassifier):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if self.trainer.current_epoch == 1 and batch_idx == 2 else None

    module, skipping = StopsTheSecondEpoch(), MaskedSampleSkipping(**NO_GUARDS)
    fit(module, [skipping], loader=numbered_loader(num_workers=num_workers), max_epochs=3)
    planned = {number for number, live in module.live[0].items() if live}
    visited = set(module.visited(1))
    assert len(visited) == 16 < len(planned)
    still_awake = planned - visited
    assert still_awake | {number for number in visited if module.live[1][number]} <= set(module.visited(2))
    assert not {number for number in visited if not module.live[1][number]} & set(module.visited(2))


def test_accumulation_beside_it_counts_what_is_awake() -> None:
    class MonitorsCounts(MaskingMonitor):
        pass

    module, monitor, skipping = SleepingClassifier(), MonitorsCounts(), MaskedSampleSkipping(**NO_GUARDS)
    speed = AdaptiveGradientAccumulation(3)
    fit(module, [skipping, monitor, speed])
    for epoch in range(EPOCHS):
        windows = [window for window in speed.history if window.epoch == epoch]
        assert sum(window.length for window in windows) == len(module.epochs[epoch])
        assert sum(window.samples for window in windows) == skipping.history[epoch].visits
        assert sum(window.masked_samples for window in windows) == skipping.history[epoch].masked
        assert monitor.history[epoch].samples == skipping.history[epoch].visits


class Batchless(SleepingClassifier):
    """Skips a batch by returning None."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == 1 else super().training_step(batch, batch_idx)


def test_samples_of_a_batch_that_training_step_skips_stay_awake() -> None:
    module = Batchless()
    skipping = MaskedSampleSkipping(**NO_GUARDS)
    fit(module, [skipping], loader=numbered_loader(shuffle=False), max_epochs=2)
    assert skipping.history[0].visits == SAMPLES - 8
    taken = skipping.history[1].awake
    assert taken == 8 + sum(module.live[0].values())


class RunningMeans(pl.Callback):
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.seen.append(pl_module.net[1].running_mean.clone())


def test_batch_norm_is_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="refresh_batch_norm=True") as caught:
        fit(SleepingClassifier(batch_norm=True), [MaskedSampleSkipping(**NO_GUARDS)], max_epochs=3)
    assert sum("refresh_batch_norm=True" in str(warning.message) for warning in caught) == 1


def test_refreshed_batch_norm_statistics_are_those_of_all_data() -> None:
    module, means = SleepingClassifier(batch_norm=True), RunningMeans()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(module, [MaskedSampleSkipping(refresh_batch_norm=True, **NO_GUARDS), means], max_epochs=4)
    assert not [warning for warning in caught if "BatchNorm" in str(warning.message)]
    whole = module.net[0](NumberedSamples().inputs).mean(0).detach()  # all of it: 32 batches cover the data
    torch.testing.assert_close(means.seen[-1], whole, rtol=0.0, atol=0.12)
    assert module.net[1].momentum == 0.1
    assert module.training


class FreezesBatchNorm(SleepingClassifier):
    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self.net[1].eval()


@pytest.mark.parametrize("refresh", [False, True])
def test_frozen_batch_norm_keeps_its_statistics_and_is_not_warned_of(refresh: bool) -> None:
    module = FreezesBatchNorm(batch_norm=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(module, [MaskedSampleSkipping(refresh_batch_norm=refresh, **NO_GUARDS)], max_epochs=4)
    assert min(module.lengths) < FULL
    assert not [warning for warning in caught if "BatchNorm" in str(warning.message)]
    assert not module.net[1].running_mean.any()
    assert not module.net[1].training


def test_a_layer_behind_a_frozen_one_is_refreshed_as_it_trains() -> None:
    class FreezesTheFirst(SleepingClassifier):
        def __init__(self) -> None:
            super().__init__(batch_norm=True)
            behind = [torch.nn.Dropout(0.9), torch.nn.BatchNorm1d(3)]
            self.net = torch.nn.Sequential(*self.net, *behind).double()

        def on_train_epoch_start(self) -> None:
            super().on_train_epoch_start()
            self.net[1].eval()
            self.net[-2].eval()

    module, means = FreezesTheFirst(), []

    class Reads(pl.Callback):
        def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            means.append(pl_module.net[-1].running_mean.clone())

    fit(module, [MaskedSampleSkipping(refresh_batch_norm=True, **NO_GUARDS), Reads()], max_epochs=4)
    whole = module.eval().net[:-1](NumberedSamples().inputs).mean(0).detach()
    torch.testing.assert_close(means[-1], whole, rtol=0.0, atol=0.15)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_refreshing_batch_norm_takes_inputs_in_the_trainers_precision(precision: Any) -> None:
    data = NumberedSamples()
    data.inputs = data.inputs.float()
    module, means = SleepingClassifier(batch_norm=True), RunningMeans()
    callbacks = [MaskedSampleSkipping(refresh_batch_norm=True, **NO_GUARDS), means]
    trainer = quiet_trainer(max_epochs=3, callbacks=callbacks, precision=precision)
    trainer.fit(module, numbered_loader(data), numbered_loader(data))
    assert min(module.lengths) < FULL
    assert (
        means.seen[-1].dtype == module.net[1].weight.dtype == trainer.precision_plugin.convert_input(data.inputs).dtype
    )


def test_a_validation_after_a_training_that_has_failed_leaves_batch_norm_alone() -> None:
    class Fails(SleepingClassifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.current_epoch == 2 and batch_idx == 1:
                raise RuntimeError("in a shortened epoch")
            return super().training_step(batch, batch_idx)

    module = Fails(batch_norm=True)
    trainer = quiet_trainer(max_epochs=4, callbacks=[MaskedSampleSkipping(refresh_batch_norm=True, **NO_GUARDS)])
    with pytest.raises(RuntimeError, match="in a shortened epoch"):
        trainer.fit(module, numbered_loader(), numbered_loader())
    assert module.lengths[-1] < FULL
    before = module.net[1].running_mean.clone()
    trainer.validate(module, numbered_loader(), verbose=False)
    assert torch.equal(module.net[1].running_mean, before)


def test_refreshing_batch_norm_draws_no_random_numbers_of_the_training() -> None:
    epochs = []
    for refresh in (False, True):
        module = SleepingClassifier(batch_norm=True, dropout=0.2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(module, [MaskedSampleSkipping(refresh_batch_norm=refresh, **NO_GUARDS)], max_epochs=4)
        epochs.append(module.epochs)
    assert epochs[0] == epochs[1]


# Resuming

AT = {"end of epoch": (3, None), "inside an epoch": (3, 1), "inside the first epoch": (0, 4)}


class SavesAt(pl.Callback):
    def __init__(self, epoch: int, batch: int | None, path: Path) -> None:
        self.epoch, self.batch, self.path = epoch, batch, path

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == (self.epoch, self.batch):
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if (trainer.current_epoch, None) == (self.epoch, self.batch):
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("schedule", [None, one_cycle, counting])
@pytest.mark.parametrize("at", AT)
def test_a_resumed_training_goes_on_with_the_same_plan_to_the_same_weights(
    at: str, schedule: Any, tmp_path: Path
) -> None:
    loader = {"loader": numbered_loader(shuffle=False)}  # the checkpoint holds no state of random numbers
    whole, skipping = SleepingClassifier(scheduler=schedule), MaskedSampleSkipping(**NO_GUARDS)
    fit(whole, [skipping, SavesAt(*AT[at], tmp_path / "saved.ckpt")], **loader)
    resumed, again = SleepingClassifier(scheduler=schedule), MaskedSampleSkipping(**NO_GUARDS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = fit(resumed, [again], ckpt_path=tmp_path / "saved.ckpt", **loader)
    assert not [warning for warning in caught if "not resumable" in str(warning.message)]
    assert [tuple(epoch) for epoch in again.history] == [tuple(epoch) for epoch in skipping.history]
    assert all(torch.equal(weight, resumed.weights()[name]) for name, weight in whole.weights().items())
    assert whole.epochs[-1] == resumed.epochs[-1]
    assert min(whole.lengths) < FULL
    assert trainer.current_epoch == EPOCHS


class SavesEachLastBatch(pl.Callback):
    """As ``ModelCheckpoint(every_n_train_steps=...)`` does when it hits the last batch of an epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.is_last_batch:
            trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")


def test_a_training_resumed_at_the_last_batch_of_an_epoch_goes_on_with_the_plan_of_the_next(tmp_path: Path) -> None:
    skips: dict[str, Any] = {"max_sleep": 1, **NO_GUARDS}  # epochs become longer and shorter
    loader = {"loader": numbered_loader(shuffle=False)}
    whole, skipping = SleepingClassifier(scheduler=counting), MaskedSampleSkipping(**skips)
    fit(whole, [skipping, SavesEachLastBatch(tmp_path)], **loader)
    steps_up = [now < after for now, after in itertools.pairwise(whole.lengths)]
    assert set(steps_up) == {True, False}
    for epoch in (0, 1, steps_up.index(True), EPOCHS - 1):
        resumed, again = SleepingClassifier(scheduler=counting), MaskedSampleSkipping(**skips)
        trainer = fit(resumed, [again], ckpt_path=tmp_path / f"{epoch}.ckpt", **loader)
        batches = [batch for numbers in resumed.epochs for batch in numbers]
        assert batches == [batch for numbers in whole.epochs[epoch + 1 :] for batch in numbers], epoch
        assert [tuple(passed) for passed in again.history] == [tuple(passed) for passed in skipping.history]
        assert all(torch.equal(weight, resumed.weights()[name]) for name, weight in whole.weights().items())
        assert trainer.current_epoch == EPOCHS


@pytest.mark.parametrize("epoch", [0, 2, 3])
def test_a_training_that_max_steps_alone_ends_resumes_at_the_end_of_an_epoch(epoch: int, tmp_path: Path) -> None:
    skips: dict[str, Any] = {"max_sleep": 1, **NO_GUARDS}
    settings: dict[str, Any] = {"loader": numbered_loader(shuffle=False), "max_epochs": -1, "max_steps": 40}
    whole, skipping = SleepingClassifier(scheduler=one_cycle), MaskedSampleSkipping(**skips)
    fit(whole, [skipping, SavesAt(epoch, None, tmp_path / "saved.ckpt")], **settings)
    resumed, again = SleepingClassifier(scheduler=one_cycle), MaskedSampleSkipping(**skips)
    trainer = fit(resumed, [again], ckpt_path=tmp_path / "saved.ckpt", **settings)
    assert resumed.epochs == whole.epochs[epoch + 1 :]
    assert [tuple(passed) for passed in again.history] == [tuple(passed) for passed in skipping.history]
    assert all(torch.equal(weight, resumed.weights()[name]) for name, weight in whole.weights().items())
    assert trainer.global_step == 40


class Stops(SleepingClassifier):
    """Stops once, while a batch runs: in a hook of the batch before its step, in its step or after it."""

    stop: tuple[str, int, int] | None = None

    def stop_at(self, hook: str, batch_idx: int) -> None:
        if self.stop == (hook, self.trainer.current_epoch, batch_idx):
            raise RuntimeError("stopped")

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        if self.trainer.training:
            self.stop_at("transfer", self.trainer.fit_loop.batch_idx + 1)
        return batch

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.stop_at("step", batch_idx)
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.stop_at("end", batch_idx)


@pytest.mark.parametrize(
    "stop", [("step", 0, 3), ("step", 3, 0), ("step", 3, 1), ("step", 3, "last"), ("transfer", 3, 1), ("end", 3, 1)]
)
def test_a_training_that_an_exception_has_stopped_inside_a_batch_goes_on_as_if_it_had_not(
    stop: tuple[str, int, Any], tmp_path: Path
) -> None:
    loader = {"loader": numbered_loader(shuffle=False)}
    whole, skipping = SleepingClassifier(scheduler=counting), MaskedSampleSkipping(**NO_GUARDS)
    fit(whole, [skipping], **loader)
    hook, epoch, batch = stop
    stopped = Stops(scheduler=counting)
    stopped.stop = (hook, epoch, whole.lengths[epoch] - 1 if batch == "last" else batch)
    saves = ModelCheckpoint(tmp_path, filename="stopped", save_on_exception=True, every_n_epochs=100)
    with pytest.raises(RuntimeError, match="stopped"):
        fit(stopped, [MaskedSampleSkipping(**NO_GUARDS), saves], enable_checkpointing=True, **loader)
    resumed, again = SleepingClassifier(scheduler=counting), MaskedSampleSkipping(**NO_GUARDS)
    fit(resumed, [again], ckpt_path=tmp_path / "stopped.ckpt", num_sanity_val_steps=0, **loader)
    assert [tuple(passed) for passed in again.history] == [tuple(passed) for passed in skipping.history]
    assert all(torch.equal(weight, resumed.weights()[name]) for name, weight in whole.weights().items())
    assert resumed.validated == whole.validated[-len(resumed.validated) :]
    assert len(resumed.validated) == EPOCHS - epoch


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_training_resumed_inside_a_shuffled_epoch_takes_the_batches_that_were_left(
    num_workers: int, tmp_path: Path
) -> None:
    for epoch, batch in [(0, 3), (2, 1)]:
        loader = numbered_loader(num_workers=num_workers)
        whole = SleepingClassifier()
        fit(whole, [MaskedSampleSkipping(**NO_GUARDS), SavesAt(epoch, batch, tmp_path / "saved.ckpt")], loader=loader,
            max_epochs=3)  # fmt: skip
        resumed, again = SleepingClassifier(), MaskedSampleSkipping(**NO_GUARDS)
        fit(resumed, [again], ckpt_path=tmp_path / "saved.ckpt", max_epochs=3)
        assert resumed.epochs[0] == whole.epochs[epoch][batch + 1 :]
        assert again.history[epoch].visits == len(whole.visited(epoch))


def test_the_checkpoint_of_a_validation_at_the_end_of_an_epoch_resumes_with_the_next_plan(tmp_path: Path) -> None:
    loader = {"loader": numbered_loader(shuffle=False)}
    whole, skipping = SleepingClassifier(), MaskedSampleSkipping(**NO_GUARDS)
    saved = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=False)
    fit(whole, [skipping, saved], enable_checkpointing=True, **loader)
    resumed, again = SleepingClassifier(), MaskedSampleSkipping(**NO_GUARDS)
    fit(resumed, [again], ckpt_path=tmp_path / "epoch=2.ckpt", **loader)
    assert [tuple(epoch) for epoch in again.history] == [tuple(epoch) for epoch in skipping.history]
    assert all(torch.equal(weight, resumed.weights()[name]) for name, weight in whole.weights().items())


def test_testing_a_checkpoint_does_not_rewind_the_fit_before_it(tmp_path: Path) -> None:
    module, skipping = SleepingClassifier(), MaskedSampleSkipping(**NO_GUARDS)
    trainer = fit(module, [skipping, SavesAt(1, None, tmp_path / "saved.ckpt")], max_epochs=4)
    trainer.validate(module, numbered_loader(shuffle=False), ckpt_path=tmp_path / "saved.ckpt")
    assert [epoch.epoch for epoch in skipping.history] == [0, 1, 2, 3]


def test_a_second_fit_goes_on_where_the_first_ended() -> None:
    module, skipping = SleepingClassifier(), MaskedSampleSkipping(**NO_GUARDS)
    trainer = fit(module, [skipping], max_epochs=3)
    trainer.fit_loop.max_epochs = 5
    trainer.fit(module, numbered_loader())
    assert [epoch.epoch for epoch in skipping.history] == [0, 1, 2, 3, 4]
    assert len(module.epochs[3]) < FULL


def test_the_state_is_a_few_bytes_a_sample() -> None:
    skipping = MaskedSampleSkipping(**NO_GUARDS)
    fit(SleepingClassifier(), [skipping], max_epochs=2)
    tensors = [value for value in skipping.state_dict()["plan"].values() if isinstance(value, torch.Tensor)]
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) == 4 * SAMPLES


class SavesAtBatch(pl.Callback):
    def __init__(self, path: Path, batch: int) -> None:
        self.path, self.batch = path, batch

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("batch", [2, FULL - 1, FULL + 1])
def test_a_callback_named_before_the_projects_own_saves_the_batch_that_ends(batch: int, tmp_path: Path) -> None:
    def train(*before: pl.Callback, **settings: Any) -> tuple[Any, Any]:
        skipping, monitor = MaskedSampleSkipping(**NO_GUARDS), MaskingMonitor()
        fit(SleepingClassifier(), [*before, skipping, monitor], max_epochs=4, **settings)
        return skipping.history, [epoch.samples for epoch in monitor.history]

    path = tmp_path / "inside.ckpt"
    whole = train(SavesAtBatch(path, batch))
    resumed = train(ckpt_path=path)
    assert [epoch.visits for epoch in resumed[0]][: 1 + batch // FULL] == resumed[1][: 1 + batch // FULL]
    assert (resumed[0][0].visits, resumed[1][0]) == (whole[0][0].visits, whole[1][0]) == (SAMPLES, SAMPLES)


@pytest.mark.filterwarnings("ignore:train_dataloader yielded None")
def test_a_batch_of_none_visits_no_sample_and_is_not_repeated_after_a_resume(tmp_path: Path) -> None:
    class NoneForTheThird:
        """A ``collate_fn`` that finds nothing usable in the batch with sample 20."""

        def __call__(self, samples: list[Any]) -> Any:
            return None if any(number == 20 for *_, number in samples) else default_collate(samples)

    class SavesAfter(pl.Callback):
        def on_train_batch_end(
            self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch is None:
                trainer.save_checkpoint(path)

    path, loader = tmp_path / "after_none.ckpt", numbered_loader(shuffle=False, collate_fn=NoneForTheThird())
    whole, skipping = SleepingClassifier(), MaskedSampleSkipping(**NO_GUARDS)
    fit(whole, [skipping, SavesAfter()], loader=loader, max_epochs=1)
    assert 16 not in whole.visited(0)
    assert (skipping.history[0].visits, skipping.history[0].awake) == (SAMPLES - 8, SAMPLES)
    resumed = SleepingClassifier()
    fit(
        resumed,
        [MaskedSampleSkipping(**NO_GUARDS)],
        loader=loader,
        max_epochs=1,
        ckpt_path=path,
    )
    assert resumed.epochs[-1] == whole.epochs[0][2:]
