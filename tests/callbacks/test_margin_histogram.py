"""The histogram of the margin."""

from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness.own_modules import WithCriterion
from harness.scripted_masking import quiet_trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import ASSoftmaxLoss, ASSoftmaxMixin, MarginHistogram
from as_lightning.functional.leads import target_leads

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(50, 8, generator=GENERATOR)
TARGET = torch.randint(5, (50,), generator=GENERATOR)
LOADER = DataLoader(TensorDataset(INPUTS, TARGET), batch_size=8)


class Plain(WithCriterion):
    """A classifier without AS-Softmax that counts its forward passes and remembers its leads."""

    def __init__(self) -> None:
        super().__init__()
        self.forwards = 0
        self.leads: list[torch.Tensor] = []

    def forward(self, inputs):
        self.forwards += 1
        return super().forward(inputs)

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.leads.append(target_leads(logits, batch[1]))
        self.log("val_loss", self.criterion(logits, batch[1]))


class Masked(ASSoftmaxMixin, Plain):
    as_softmax_replaces = "criterion"


def fit(module, *callbacks, logger=False, validation=LOADER):
    trainer = quiet_trainer(
        max_epochs=1, num_sanity_val_steps=1, logger=logger, callbacks=list(callbacks)
    )
    trainer.fit(module, LOADER, validation)
    return trainer


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


@pytest.mark.parametrize("module", [Plain, Masked])
def test_the_counts_are_those_of_all_validation_samples_at_no_second_forward_pass(module, tmp_path):
    histogram, model = MarginHistogram(bins=10), module()
    trainer = fit(model, histogram, logger=CSVLogger(tmp_path))
    leads = torch.cat(model.leads[1:])  # the first batch is that of the sanity check
    expected, _ = np.histogram(leads.numpy(), bins=10, range=(-1, 1))
    assert histogram.counts.tolist() == expected.tolist()
    assert model.forwards == 1 + 2 * len(LOADER)
    logged = trainer.logged_metrics
    assert float(logged["margin/mean"]) == pytest.approx(float(leads.mean()))
    if module is Masked:
        assert float(logged["margin/share_above_delta"]) == pytest.approx(
            float((leads > 0.5).float().mean())
        )
    else:
        assert "margin/share_above_delta" not in logged


class ValidatedBySoftmax(Masked):
    as_softmax_validation = "softmax"


def with_a_loss_module(delta):
    module = Plain()
    module.criterion = ASSoftmaxLoss(delta=delta)
    return module


@pytest.mark.parametrize("make", [ValidatedBySoftmax, with_a_loss_module])
def test_the_share_above_the_margin_is_that_of_the_loss_of_training(make):
    model = make(delta=0.05)
    logged = fit(model, MarginHistogram()).callback_metrics
    leads = torch.cat(model.leads[1:])
    assert float(logged["margin/share_above_delta"]) == pytest.approx(
        float((leads > 0.05).float().mean())
    )


def test_unknown_labels_take_no_part():
    target = F.one_hot(TARGET, 5).float()
    target[::2, 0] = -100.0
    histogram = MarginHistogram(
        logits=lambda module, batch: (module(batch[0]), target[: len(batch[0])]), bins=10
    )
    data, module = DataLoader(TensorDataset(INPUTS, TARGET), batch_size=50), Plain()
    trainer = fit(module, histogram, validation=data)
    leads = target_leads(module.net(INPUTS), target)
    assert 25 <= len(leads) == int(histogram.counts.sum()) < 50
    assert float(trainer.callback_metrics["margin/mean"]) == pytest.approx(
        float(leads.mean()), rel=1e-5
    )


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_logits_of_one_class_and_no_bins_are_refused(shape):
    def one_class(module, batch):
        return module(batch[0])[:, 0].reshape(shape), (batch[1] > 2).float().reshape(shape)

    with pytest.raises(MisconfigurationException, match=r"C of at least 2, got \(8,"):
        fit(Plain(), MarginHistogram(logits=one_class))
    with pytest.raises(ValueError, match="bins must be an integer of at least 1, got 0"):
        MarginHistogram(bins=0)


def test_a_second_training_starts_without_the_counts_of_the_first():
    fit(Plain(), histogram := MarginHistogram())
    assert int(histogram.counts.sum()) == 50
    fit(Plain(), histogram, validation=None)
    assert histogram.counts is None


def test_a_lead_that_is_not_a_number_is_in_no_bin():
    def with_nan(module, batch):
        return module(batch[0]).index_fill(0, torch.tensor([1]), torch.nan), batch[1]

    histogram = MarginHistogram(with_nan)
    logged = fit(Plain(), histogram).callback_metrics
    assert int(histogram.counts.sum()) == 50 - len(LOADER)
    assert torch.isnan(logged["margin/mean"])


class CallsAfterTheStep(pl.Callback):
    """Looks at other inputs after each step, as a callback that plots an example does."""

    def on_validation_batch_end(self, trainer, pl_module, *args):
        pl_module(torch.zeros(4, 8))


@pytest.mark.parametrize("order", [1, -1])
def test_the_logits_are_those_of_the_step_and_not_of_a_callbacks_call(order):
    module, histogram = Plain(), MarginHistogram(bins=10)
    fit(module, *[CallsAfterTheStep(), histogram][::order])
    expected, _ = np.histogram(torch.cat(module.leads[1:]).numpy(), bins=10, range=(-1, 1))
    assert histogram.counts.tolist() == expected.tolist()


def test_tensorboard_gets_the_histogram_with_a_bounded_number_of_buckets(tmp_path):
    histogram = MarginHistogram(bins=12)
    fit(Masked(), histogram, logger=TensorBoardLogger(tmp_path, name="", version=""))
    (event,) = events(tmp_path).Histograms("margin/validation")
    value = event.histogram_value
    assert event.step == len(LOADER)
    assert value.num == 50
    assert len(value.bucket) == 12
    assert list(value.bucket) == histogram.counts.tolist()


class Wraps(SingleDeviceStrategy):
    """As DDP does, it trains a wrapper of the module, so that Lightning calls a step as the
    module's forward.
    """

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def setup(self, trainer: pl.Trainer) -> None:
        super().setup(trainer)
        self.model = Wrapper(self.model)


class Wrapper(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


class ReturnsScores(Plain):
    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        return torch.zeros(len(batch[1]), 5)


class ReturnsLogits(Plain):
    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.leads.append(target_leads(logits, batch[1]))
        return logits


def test_where_the_strategy_wraps_the_module_other_scores_that_a_step_returns_are_refused():
    settings = {"max_epochs": 1, "num_sanity_val_steps": 0, "callbacks": [MarginHistogram()]}
    trainer, module = quiet_trainer(strategy=Wraps(), **settings), ReturnsLogits()
    trainer.fit(module, LOADER, LOADER)
    expected = float(torch.cat(module.leads).mean())
    assert trainer.callback_metrics["margin/mean"] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(MisconfigurationException, match="logits="):
        quiet_trainer(strategy=Wraps(), **settings).fit(ReturnsScores(), LOADER, LOADER)
