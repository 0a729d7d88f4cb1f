"""Learning-rate schedules follow the batches, or the optimizer steps, whatever the windows are."""

from functools import partial
from typing import Any

import lightning.pytorch as pl
import pytest
from harness.scripted_masking import ScriptedMasking, batches_of, loader_of, quiet_trainer
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)

from as_lightning.callbacks import AdaptiveGradientAccumulation

RESTLESS = (1, 3, 2, 8, 5, 2, 1, 4, 4, 4, 3)


def one_cycle(optimizer: Optimizer, steps: int) -> LRScheduler:
    return OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)


def cosine(optimizer: Optimizer, steps: int) -> LRScheduler:
    return CosineAnnealingLR(optimizer, T_max=steps)


def warmup_and_decay(optimizer: Optimizer, steps: int) -> LRScheduler:
    warmup = max(1, steps // 10)
    return LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warmup, max(0.0, (steps - step) / (steps - warmup))),
    )


def by_step(optimizer: Optimizer, steps: int) -> dict[str, Any]:
    return {"interval": "step", "scheduler": LambdaLR(optimizer, lambda step: 1.0 / (1 + step))}


SCHEDULES = [one_cycle, cosine, warmup_and_decay]


class RecordsRates(pl.Callback):
    """The learning rate that each batch's step would use, and the scheduler as training
    leaves it.
    """

    def __init__(self) -> None:
        self.rates: dict[tuple[int, int], float] = {}
        self.last_step = -1

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.rates[trainer.current_epoch, batch_idx] = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.last_step = trainer.lr_scheduler_configs[0].scheduler.last_epoch


def fit(
    build,
    *,
    batches=23,
    script=RESTLESS,
    callbacks=(),
    config=None,
    length_known=True,
    kind=ScriptedMasking,
    **arguments,
):
    records = RecordsRates()
    module = kind(
        script,
        scheduler=lambda optimizer, steps: {
            "interval": "step",
            **(config or {}),
            "scheduler": build(optimizer, steps),
        },
    )
    trainer = quiet_trainer(callbacks=[records, *callbacks], **{"max_epochs": 3, **arguments})
    validation = loader_of(batches_of(1)) if "val_check_interval" in arguments else None
    trainer.fit(module, loader_of(batches_of(batches), length_known=length_known), validation)
    return records


@pytest.mark.parametrize("frequency", [1, 2, 3, 7])
@pytest.mark.parametrize("build", SCHEDULES)
def test_by_batches_every_window_uses_the_rate_of_its_first_batch(build, frequency):
    every_batch = fit(build, config={"frequency": frequency})
    speed = AdaptiveGradientAccumulation(max_steps=5, monotone=False, lr_scale="none")
    accumulated = fit(build, config={"frequency": frequency}, callbacks=[speed])

    assert len(speed.history) < 3 * 23
    for window in speed.history:
        start = (window.epoch, window.batch)
        assert accumulated.rates[start] == pytest.approx(every_batch.rates[start], rel=1e-12)
    assert accumulated.last_step == every_batch.last_step == 3 * (23 // frequency)


@pytest.mark.parametrize("build", SCHEDULES)
def test_by_optimizer_steps_the_schedule_counts_optimizer_steps(build):
    speed = AdaptiveGradientAccumulation(max_steps=5, monotone=False, lr_interval="step")
    records = fit(build, callbacks=[speed])
    assert records.last_step == len(speed.history) < 3 * 23


@pytest.mark.parametrize("interval", ["batch", "step"])
def test_a_scheduler_by_epoch_is_left_alone(interval: Any) -> None:
    halves = partial(StepLR, step_size=1, gamma=0.5)
    speed = AdaptiveGradientAccumulation(max_steps=5, lr_interval=interval)
    records = fit(
        lambda optimizer, _: halves(optimizer), config={"interval": "epoch"}, callbacks=[speed]
    )
    assert [records.rates[epoch, 0] for epoch in range(3)] == [0.1, 0.05, 0.025]
    assert records.last_step == 3


def test_reduce_on_plateau_by_step_counts_optimizer_steps() -> None:
    class LogsItsLoss(ScriptedMasking):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    speed, plateau = (
        AdaptiveGradientAccumulation(max_steps=4),
        partial(ReduceLROnPlateau, patience=100),
    )
    records = fit(
        lambda optimizer, _: plateau(optimizer),
        kind=LogsItsLoss,
        config={"monitor": "loss"},
        callbacks=[speed],
    )
    assert records.last_step == len(speed.history) < 3 * 23


@pytest.mark.parametrize("script", [(1,), (16,), RESTLESS])
@pytest.mark.parametrize("optimizer_steps", [1, 20, 40])
def test_with_max_steps_the_schedule_counts_optimizer_steps_and_ends_with_training(
    optimizer_steps, script
):
    speed = AdaptiveGradientAccumulation(max_steps=5, monotone=False)
    limits = {"max_epochs": None, "max_steps": optimizer_steps}
    records = fit(one_cycle, script=script, callbacks=[speed], **limits)
    assert records.last_step == len(speed.history) == optimizer_steps


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (lambda optimizer, _: StepLR(optimizer, step_size=4), {"length_known": False}),
        (one_cycle, {"val_check_interval": 3, "num_sanity_val_steps": 1}),
    ],
    ids=["no known length", "validation inside an epoch"],
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#12894",
    "With accumulation a learning-rate schedule no longer keeps the pace of the epochs.",
)
def test_the_schedule_counts_the_batches_of_training(build: Any, settings: dict[str, Any]) -> None:
    speed = AdaptiveGradientAccumulation(max_steps=4, monotone=False)
    assert fit(build, callbacks=[speed], **settings).last_step == 3 * 23


def test_a_module_that_steps_its_own_scheduler_is_asked_to() -> None:
    calls = []

    class OwnStep(ScriptedMasking):
        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
            calls.append(metric)
            scheduler.step()

    fit(cosine, kind=OwnStep, callbacks=[AdaptiveGradientAccumulation()])
    assert calls == [None] * 3 * 23


def test_a_schedule_is_built_from_every_batch_of_training_also_on_resume(tmp_path: Any) -> None:
    built = []

    def records_length(optimizer: Optimizer, steps: int) -> dict[str, Any]:
        built.append(steps)
        return {"scheduler": cosine(optimizer, steps), "interval": "step"}

    data = loader_of(batches_of(12))
    trainer = quiet_trainer(max_epochs=2, callbacks=[AdaptiveGradientAccumulation(max_steps=4)])
    trainer.fit(ScriptedMasking((16,), scheduler=records_length), data)
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    resumed = quiet_trainer(max_epochs=4, callbacks=[AdaptiveGradientAccumulation(max_steps=4)])
    resumed.fit(
        ScriptedMasking((16,), scheduler=records_length), data, ckpt_path=tmp_path / "end.ckpt"
    )
    assert built == [24, 48]


def test_torch_does_not_warn_about_the_order_of_steps(recwarn: pytest.WarningsRecorder) -> None:
    fit(cosine, callbacks=[AdaptiveGradientAccumulation(max_steps=4)])
    assert not [warning for warning in recwarn if "lr_scheduler.step()" in str(warning.message)]
