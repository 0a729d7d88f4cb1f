"""The margin warm-up."""

import math

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from harness.own_modules import WithCriterion
from hypothesis import given
from hypothesis import strategies as st
from lightning.fabric import Fabric
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from as_lightning import ASSoftmaxMixin, DeltaWarmup


def test_hold_stays_at_initial_and_then_drops_to_delta_and_linear_goes_there_in_equal_steps():
    hold = DeltaWarmup(ratio=0.3, initial=0.9)
    assert [hold.delta_at(batch, 10, 0.1) for batch in range(10)] == [0.9] * 3 + [0.1] * 7
    linear = DeltaWarmup(batches=4, initial=0.9, shape="linear")
    deltas = [linear.delta_at(batch, math.inf, 0.1) for batch in range(6)]
    assert deltas == pytest.approx([0.9, 0.7, 0.5, 0.3, 0.1, 0.1])


# code compiled with fast mathematics turns subnormal numbers off for its whole process
SHARES = st.floats(0, 1, allow_subnormal=False)


@given(
    ratio=SHARES,
    initial=SHARES,
    delta=SHARES,
    shape=st.sampled_from(["hold", "linear"]),
    total=st.integers(1, 1000),
)
def test_every_margin_lies_between_initial_and_delta_and_the_last_batch_after_the_warmup_is_at_delta(
    ratio, initial, delta, shape, total
):
    warmup = DeltaWarmup(ratio=ratio, initial=initial, shape=shape)
    low, high = sorted((initial, delta))
    margins = [warmup.delta_at(batch, total, delta) for batch in range(total)]
    assert all(low - 1e-12 <= margin <= high + 1e-12 for margin in margins)
    assert sum(margin != delta for margin in margins) <= int(ratio * total)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of ratio and batches"),
        ({"ratio": 0.1, "batches": 3}, "one of ratio and batches"),
        ({"ratio": 1.5}, r"ratio must be a number in \[0, 1\], got 1.5"),
        ({"ratio": "a"}, r"ratio must be a number in \[0, 1\], got 'a'"),
        ({"batches": -1}, "batches must be an integer of at least 0, got -1"),
        ({"batches": 1.5}, "batches must be an integer of at least 0, got 1.5"),
        ({"ratio": 0.1, "initial": 2.0}, r"initial must be a margin in \[0, 1\], got 2.0"),
        ({"ratio": 0.1, "shape": "cosine"}, "shape must be one of 'hold', 'linear', got 'cosine'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DeltaWarmup(**arguments)


class Module(ASSoftmaxMixin, pl.LightningModule):
    def __init__(self, **arguments) -> None:
        super().__init__(delta=0.2, **arguments)
        self.net = nn.Linear(4, 3)
        self.deltas: list[float] = []

    def training_step(self, batch, batch_idx):
        self.deltas.append(self.current_delta)
        return self.as_softmax_loss(self.net(batch[0]), batch[1])


BATCH = torch.ones(2, 4), torch.tensor([0, 1])


def plain(module: Module):
    return module, torch.optim.SGD(module.parameters(), lr=0.1), torch.Tensor.backward


def with_fabric(module: Module):
    fabric = Fabric(accelerator="cpu", devices=1)
    wrapped, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    return wrapped, optimizer, fabric.backward


def after_a_fit(module: Module):
    module.trainer = pl.Trainer(accelerator="cpu", logger=False)
    return plain(module)


def within_another(module: Module):
    outer = pl.LightningModule()
    outer.inner, outer.trainer = module, pl.Trainer(accelerator="cpu", logger=False)
    outer.trainer.strategy.connect(outer)
    outer.trainer.training = True
    return plain(module)


@pytest.mark.parametrize("loop", [plain, with_fabric, after_a_fit, within_another])
@pytest.mark.parametrize("shape", ["hold", "linear"])
def test_a_loop_without_a_trainer_says_how_far_training_is(loop, shape):
    warmup = DeltaWarmup(ratio=0.5, shape=shape)
    module = Module(delta_warmup=warmup)
    wrapped, optimizer, backward = loop(module)
    for batch in range(8):
        wrapped.as_softmax_progress = batch / 8
        backward(wrapped.training_step(BATCH, batch))
        optimizer.step()
        optimizer.zero_grad()
    assert module.deltas == pytest.approx([warmup.delta_at(batch, 8, 0.2) for batch in range(8)])
    assert module.deltas[0] == 1.0
    assert module.eval().current_delta == 0.2


@pytest.mark.parametrize("loop", [plain, with_fabric, within_another])
@pytest.mark.parametrize(
    ("warmup", "progress"),
    [(DeltaWarmup(ratio=0.5), None), (DeltaWarmup(batches=3), None), (DeltaWarmup(batches=3), 0.5)],
)
def test_a_warmup_that_cannot_know_how_far_training_is_is_refused_at_the_first_loss(
    loop, warmup, progress
):
    wrapped, *_ = loop(Module(delta_warmup=warmup))
    wrapped.as_softmax_progress = progress
    with pytest.raises(
        RuntimeError, match=r"ratio=\.\.\., and set module\.as_softmax_progress = batches / total"
    ):
        wrapped.training_step(BATCH, 0)
    with pytest.raises(ValueError, match=r"as_softmax_progress must be a share in \[0, 1\], got 3"):
        DeltaWarmup(ratio=0.5).delta_at_progress(3, 0.1)


def test_a_module_within_another_that_hands_it_the_hooks_goes_by_them():
    outer, inner = pl.LightningModule(), Module(delta_warmup=DeltaWarmup(ratio=0.5, shape="hold"))
    outer.inner, outer.training_step = inner, inner.training_step
    outer.on_train_batch_start = inner.on_train_batch_start
    outer.configure_optimizers = lambda: torch.optim.SGD(inner.parameters(), lr=0.1)
    pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False).fit(
        outer, DataLoader([BATCH] * 4, batch_size=None)
    )
    assert inner.deltas == [1.0, 1.0, 0.2, 0.2]


class Warmed(ASSoftmaxMixin, WithCriterion):
    as_softmax_replaces = "criterion"


def test_a_warmup_among_the_hyperparameters_is_logged_and_loaded_also_of_numbers_of_numpy(tmp_path):
    pytest.importorskip("omegaconf")  # with which Lightning looks into what it logs
    warmup = DeltaWarmup(ratio=np.float64(0.5), initial=np.float32(0.75))
    module = Warmed(delta_warmup=warmup)
    data = torch.utils.data.DataLoader([(torch.zeros(8), 1)] * 8, batch_size=2)
    logger = CSVLogger(tmp_path)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=logger, enable_progress_bar=False)
    trainer.fit(module, data, data)
    assert "DeltaWarmup" in (tmp_path / "lightning_logs/version_0/hparams.yaml").read_text()
    checkpoint = trainer.checkpoint_callback.best_model_path
    assert Warmed.load_from_checkpoint(checkpoint, weights_only=True).hparams.delta_warmup == warmup


def test_the_length_is_the_ratio_of_the_batches_also_where_a_float_is_below_it():
    for hundredths in range(101):
        warmup = DeltaWarmup(ratio=hundredths / 100)
        assert sum(warmup.delta_at(batch, 100, 0.1) == 1.0 for batch in range(100)) == hundredths
