"""What the monitor logs, and when."""

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import KeepsRows, quiet_trainer
from harness.searches import FindsInTheSecondEpoch
from lightning.pytorch.callbacks import LearningRateFinder, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from as_lightning import (
    AccumulationSchedule,
    AdaptiveGradientAccumulation,
    ASSoftmaxLoss,
    ASSoftmaxMixin,
    DeltaWarmup,
    MarginHistogram,
    MaskingCounter,
    MaskingMonitor,
    TemperatureScaling,
)
from as_lightning.functional import MaskingCounts

NAMES = {f"masking/{name}" for name in ("sample_ratio", "class_ratio", "delta", "samples_seen")} | {
    "accumulation/steps"
}


def having(logger: KeepsRows, name: str) -> list[dict[str, float]]:
    return [row for row in logger.rows if name in row]


class Scripted(pl.LightningModule):
    """Trains, and reports the counts it is given, batch by batch."""

    def __init__(self, script: list[tuple[int, int, int, int]]) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.script = script
        self.masking_counter = MaskingCounter()

    def training_step(self, batch, batch_idx):
        step = self.trainer.current_epoch * self.trainer.num_training_batches + batch_idx
        self.masking_counter.update(MaskingCounts(*torch.tensor(self.script[step])))
        return self.net(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(module, callbacks, tmp_path, *, epochs=1, batches=6, **settings):
    logger, ckpt_path = KeepsRows(), settings.pop("ckpt_path", None)
    settings = {"log_every_n_steps": 1, "default_root_dir": tmp_path, **settings}
    trainer = quiet_trainer(max_epochs=epochs, logger=logger, callbacks=callbacks, **settings)
    loader = DataLoader(TensorDataset(torch.ones(batches, 1)), batch_size=1)
    trainer.fit(module, loader, ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return logger, trainer


def test_a_step_logs_the_ratio_of_its_window_and_not_of_its_last_batch(tmp_path):
    script = [(1, 10, 2, 20), (3, 10, 4, 20), (2, 30, 6, 60), (0, 10, 0, 20), (4, 4, 8, 8)]
    logger, _ = fit(
        Scripted(script), [MaskingMonitor()], tmp_path, batches=5, accumulate_grad_batches=2
    )
    written = having(logger, "masking/sample_ratio")
    ratios = [(row["masking/sample_ratio"], row["masking/class_ratio"]) for row in written]
    expected = [(4 / 20, 6 / 40), (2 / 40, 6 / 80), (4 / 4, 8 / 8)]
    torch.testing.assert_close(ratios, expected, rtol=1e-6, atol=0)
    assert [entry["masking/samples_seen"] for entry in written] == [20, 60, 64]
    assert [entry["accumulation/steps"] for entry in written] == [2, 2, 1]


def test_an_epoch_logs_the_ratio_of_its_sums(tmp_path):
    script = [(1, 10, 2, 20), (9, 90, 4, 180), (5, 50, 6, 60), (50, 50, 60, 60)]
    monitor = MaskingMonitor()
    logger, _ = fit(Scripted(script), [monitor], tmp_path, epochs=2, batches=2)
    written = having(logger, "masking/sample_ratio_epoch")
    names = "masking/sample_ratio_epoch", "masking/class_ratio_epoch"
    ratios = [tuple(float(row[name]) for name in names) for row in written]
    expected = [(10 / 100, 6 / 200), (55 / 100, 66 / 120)]
    torch.testing.assert_close(ratios, expected, rtol=1e-6, atol=0)
    assert [*map(tuple, monitor.history)] == [(0, 10, 100, 6, 200), (1, 55, 100, 66, 120)]


@pytest.mark.parametrize("length", [1, 3])
def test_the_first_step_is_written_however_short_the_training_is(length, tmp_path):
    script = [(batch, 10, 0, 20) for batch in range(8)]
    settings = {"batches": 8, "log_every_n_steps": 50, "accumulate_grad_batches": length}
    logger, _ = fit(Scripted(script), [MaskingMonitor()], tmp_path, **settings)
    (first,) = having(logger, "masking/sample_ratio")
    assert first["step"] == 0
    assert first["masking/sample_ratio"] == sum(range(length)) / (10 * length)
    assert first["masking/samples_seen"] == 10 * length


def test_windows_of_ignored_rows_alone_have_ratio_zero(tmp_path):
    logger, _ = fit(Scripted([(0, 0, 0, 0)] * 2), [MaskingMonitor()], tmp_path, batches=2)
    assert [row["masking/sample_ratio"] for row in having(logger, "masking/sample_ratio")] == [0, 0]


def test_a_module_with_the_mixin_logs_the_five_names_and_its_warmup(tmp_path):
    class Module(ASSoftmaxMixin, pl.LightningModule):
        def __init__(self):
            super().__init__(delta=0.2)
            self.net = nn.Linear(1, 3)

        def training_step(self, batch, batch_idx):
            return self.as_softmax_loss(self.net(batch[0]), torch.tensor([1]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    logger, _ = fit(Module(), [DeltaWarmup(batches=2), MaskingMonitor()], tmp_path, batches=4)
    written = having(logger, "masking/sample_ratio")
    assert all(entry.keys() >= NAMES for entry in written)
    assert [entry["masking/delta"] for entry in written] == pytest.approx([1.0, 1.0, 0.2, 0.2])


class Classifier(ASSoftmaxMixin, pl.LightningModule):
    """Counts for real; ``lr`` is there for a learning-rate search."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.lr = nn.Linear(1, 3), 0.01

    def training_step(self, batch, batch_idx):
        loss = self.as_softmax_loss(
            self.net(batch[0]), torch.zeros(len(batch[0]), dtype=torch.int64)
        )
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Fails(pl.Callback):
    """Raises at a batch, once."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == self.batch:
            self.batch = -1
            raise RuntimeError("out of luck")


def samples(monitor: MaskingMonitor) -> list[int]:
    return [epoch.samples for epoch in monitor.history]


def test_an_earlier_fit_is_not_counted(tmp_path):
    module, monitor = Classifier(), MaskingMonitor()
    module.as_softmax_loss(torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]))  # nor a call before
    for _ in range(3):
        logger, _ = fit(module, [monitor], tmp_path, batches=6)
    assert samples(monitor) == [6]
    assert having(logger, "masking/samples_seen")[-1]["masking/samples_seen"] == 6


@pytest.mark.parametrize("order", [1, -1], ids=["monitor first", "search first"])
@pytest.mark.parametrize(
    "search", [lambda: LearningRateFinder(num_training_steps=5), FindsInTheSecondEpoch]
)
def test_a_learning_rate_search_is_not_counted(search, order, tmp_path):
    found = []
    for searches in ([], [search()]):  # nor has it a part in windows and weights
        torch.manual_seed(0)
        monitor, speed = MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)
        module = Classifier()
        module.lr = 1.0  # masks within an epoch
        callbacks = [monitor, *searches, speed][::order]
        fit(module, callbacks, tmp_path, epochs=4, enable_checkpointing=bool(searches))
        assert samples(monitor) == [6, 6, 6, 6]
        assert max(window.length for window in speed.history) > 1
        found.append((monitor.history, speed.history, module.net.weight.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("same_trainer", [True, False])
def test_a_training_that_failed_is_not_counted(same_trainer, tmp_path):
    module, monitor, fails = Classifier(), MaskingMonitor(), Fails(batch=3)
    trainer = quiet_trainer(max_epochs=2, callbacks=[monitor, fails], accumulate_grad_batches=3)
    loader = DataLoader(TensorDataset(torch.ones(6, 1)), batch_size=1)
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer.fit(module, loader)
    if not same_trainer:
        trainer = quiet_trainer(max_epochs=2, callbacks=[monitor], accumulate_grad_batches=3)
    trainer.fit(module, loader)
    assert [tuple(epoch[:1]) + epoch[2:3] for epoch in monitor.history] == [(0, 6), (1, 6)]


def test_a_checkpoint_of_an_epochs_last_step_loses_no_epoch_and_doubles_none(tmp_path):
    script = [(1, 2, 3, 4)] * 12
    keeps = ModelCheckpoint(tmp_path, every_n_train_steps=6, save_top_k=-1, filename="{step}")
    callbacks = [MaskingMonitor(), keeps]
    fit(Scripted(script), callbacks, tmp_path, epochs=2, enable_checkpointing=True)
    resumed = MaskingMonitor()
    fit(Scripted(script), [resumed], tmp_path, epochs=2, ckpt_path=tmp_path / "step=6.ckpt")
    assert [tuple(epoch) for epoch in resumed.history] == [(0, 6, 12, 18, 24), (1, 6, 12, 18, 24)]


@pytest.mark.parametrize("optimizers", [1, 2, 3])
def test_with_manual_optimizers_the_monitor_logs_at_the_steps_of_the_modules_own_metrics(
    optimizers, tmp_path
):
    class Manual(Classifier):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.manual_backward(loss)
            stepped = self.optimizers()
            for optimizer in stepped if isinstance(stepped, list) else [stepped]:
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), lr=0.01) for _ in range(optimizers)]

    for every in (1, 3):
        logger, _ = fit(
            Manual(), [MaskingMonitor()], tmp_path, epochs=2, batches=7, log_every_n_steps=every
        )
        steps = [row["step"] for row in having(logger, "train_loss")]
        written = [row["step"] for row in having(logger, "masking/sample_ratio")]
        assert written == sorted({0, *steps})
        assert len(steps) == 14 // every


def test_with_manual_optimization_each_loss_of_a_batch_is_counted_once():
    class Manual(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.criterion = torch.nn.Linear(4, 3), ASSoftmaxLoss(delta=0.1)
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for samples in (5, 2):
                target = torch.zeros(samples, dtype=torch.int64)
                self.manual_backward(self.criterion(self.net(torch.randn(samples, 4)), target))
            self.optimizers().step()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor := MaskingMonitor()])
    trainer.fit(Manual(), DataLoader(torch.ones(4, 1), batch_size=None))
    assert monitor.history[0].samples == 4 * (5 + 2)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_step_that_fetches_its_batches_itself_is_counted_and_logged_as_any_other(accumulate):
    class Fetches(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.criterion = torch.nn.Linear(4, 3), ASSoftmaxLoss(delta=0.1)

        def forward(self, inputs):
            return self.net(inputs)

        def training_step(self, dataloader_iter):
            (inputs, target), *_ = next(dataloader_iter)
            return self.criterion(self(inputs), target)

        def validation_step(self, batch, batch_idx):
            self(batch[0])

        test_step = validation_step

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = DataLoader(TensorDataset(torch.randn(22, 4), torch.arange(22) % 3), batch_size=2)
    callbacks, logger = (
        [monitor := MaskingMonitor(), MarginHistogram(), TemperatureScaling()],
        KeepsRows(),
    )
    settings = {"accumulate_grad_batches": accumulate, "logger": logger, "log_every_n_steps": 1}
    trainer = quiet_trainer(max_epochs=2, callbacks=callbacks, **settings)
    trainer.fit(module := Fetches(), data, data)
    assert [epoch.samples for epoch in monitor.history] == [22, 22]
    expected = [2 * min(batch, 11) for batch in range(accumulate, 11 + accumulate, accumulate)]
    seen = [row["masking/samples_seen"] for row in having(logger, "masking/samples_seen")]
    assert seen == expected + [22 + samples for samples in expected]
    assert "margin/mean" in trainer.callback_metrics
    assert "test/nll_scaled" in trainer.test(module, data, verbose=False)[0]


@pytest.mark.parametrize("schedule", [None, {0: 1}, {0: 2}])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_batch_of_none_has_no_step_and_logs_nothing(schedule, missing):
    data = [torch.ones(1, 1)] * 5
    data[missing] = None
    monitor, logger = MaskingMonitor(), KeepsRows()
    callbacks = [
        monitor,
        *([AdaptiveGradientAccumulation(AccumulationSchedule(schedule))] if schedule else []),
    ]
    trainer = quiet_trainer(max_epochs=1, callbacks=callbacks, logger=logger, log_every_n_steps=1)
    trainer.fit(Scripted([(1, 2, 3, 4)] * 5), DataLoader(data, batch_size=None))
    for name in ("masking/sample_ratio", "accumulation/steps")[: len(callbacks)]:
        assert [row["step"] for row in having(logger, name)] == list(range(trainer.global_step))
    assert monitor.history[0].samples == 4 * 2


class LeavesInsideAWindow(Scripted):
    def on_train_batch_start(self, batch, batch_idx):
        return -1 if (self.trainer.current_epoch, batch_idx) == (0, 5) else None


@pytest.mark.filterwarnings("ignore:Epoch 0 ended inside")
@pytest.mark.parametrize("schedule", [None, {0: 2}])
def test_what_an_epoch_drops_is_not_counted_in_the_next_one(schedule):
    class Data(Dataset):
        epoch = -1

        def __len__(self):
            return 8

        def __getitem__(self, index):
            self.epoch += index == 0
            return None if (self.epoch, index) == (1, 0) else torch.ones(1, 1)

    speed = AdaptiveGradientAccumulation(AccumulationSchedule(schedule)) if schedule else None
    monitor = MaskingMonitor()
    settings = {} if schedule else {"accumulate_grad_batches": 2}
    trainer = quiet_trainer(max_epochs=2, callbacks=[monitor, *filter(None, [speed])], **settings)
    trainer.fit(LeavesInsideAWindow([(1, 2, 3, 4)] * 16), DataLoader(Data(), batch_size=None))
    assert [epoch.samples for epoch in monitor.history] == [4 * 2, 7 * 2]
    assert speed is None or sum(window.samples for window in speed.history) == 11 * 2


@pytest.mark.filterwarnings("error:.*no logger configured")
def test_without_a_logger_the_monitor_warns_of_nothing():
    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor := MaskingMonitor()])
    trainer.fit(Scripted([(1, 2, 3, 4)] * 4), DataLoader(torch.ones(4, 1, 1), batch_size=None))
    assert (
        trainer.callback_metrics["masking/sample_ratio_epoch"]
        == monitor.history[0].masked_samples / 8
    )
