"""Every row of the table: a small training with the feature, and what must hold after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from compatibility.matrix import section
from compatibility.runs import BATCHES, EPOCHS, SIZE, Run, Theirs, WithAS, batches
from harness.rank_processes import Seen
from harness.scripted_masking import loader_of
from harness.torch_limits import FSDP2_ON_A_CPU, SELF_LOG_COMPILED
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import MaskingCounter

WHOLE_EPOCH = BATCHES * SIZE


def refusal(message: str, **arguments: Callable[[], Any]) -> Callable[[Path], None]:
    """The check that a training with these arguments, each made for it, is refused with the message."""

    def check(folder: Path) -> None:
        with pytest.raises(MisconfigurationException, match=message):
            Run(folder, **{name: make() for name, make in arguments.items()})

    return check


def by_hand(make_module: Callable[[], Any] = lambda: WithAS(delta=0.1), **arguments: Any) -> Callable[[Path], None]:
    """The check that the weights of a training with these arguments are those of a hand-written loop."""
    return lambda folder: Run(folder, module=make_module(), **arguments).trained().equals_by_hand()


def stream() -> DataLoader:
    return loader_of(batches(), length_known=False)


supported, refused = section("Devices and strategies")
supported("one device", "weights equal those of a hand-written loop, bit for bit", where="one process")(by_hand())


@supported(
    "DDP",
    "all processes use the same windows, from the joint counts; gradients are reduced only at an optimizer step",
    where="two processes",
)
def ddp(seen: Seen) -> None:
    first, second = seen("ddp")
    assert first["windows"] == second["windows"]
    assert first["samples"] == second["samples"] == [2 * WHOLE_EPOCH] * EPOCHS
    assert_same_weights(first["weights"], second["weights"])
    assert first["longest_window"] > 1


@supported(
    "FSDP2 (ModelParallelStrategy)",
    "the weights are those of DDP; Lightning reduces the gradients of every batch there",
    where="two processes",
    limit=FSDP2_ON_A_CPU,
)
def fully_sharded(seen: Seen) -> None:
    first, second = seen("fully_sharded")
    replicated, _ = seen("ddp")
    assert first["windows"] == second["windows"] == replicated["windows"]
    assert first["samples"] == second["samples"] == [2 * WHOLE_EPOCH] * EPOCHS
    assert_same_weights(first["weights"], replicated["weights"])


@supported(
    "tensor parallel (ModelParallelStrategy)", "processes that share a batch are counted once", where="two processes"
)
def tensor_parallel(seen: Seen) -> None:
    first, second = seen("tensor_parallel")
    assert first["windows"] == second["windows"]
    assert first["samples"] == second["samples"] == [WHOLE_EPOCH] * EPOCHS
    assert_same_weights(first["weights"], second["weights"])


def assert_same_weights(weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight)


class AccumulatesByItself(SingleDeviceStrategy):
    """As DeepSpeed does, whose package and GPU this does without."""

    handles_gradient_accumulation = True


refused("DeepSpeed with adaptive accumulation", "it fixes the accumulation when it starts", where="one process")(
    refusal("as DeepSpeed does.* Use strategy=", strategy=lambda: AccumulatesByItself(torch.device("cpu")))
)


supported, refused = section("Precision")


def precision(name: str, weights: torch.dtype, *, by_hand: bool) -> None:
    @supported(name)
    def check(folder: Path) -> None:
        run = Run(folder, precision=name).trained()
        assert run.module.net[0].weight.dtype == weights
        if by_hand:
            run.equals_by_hand(batches(dtype=weights))


precision("32-true", torch.float32, by_hand=True)
precision("64-true", torch.float64, by_hand=True)
precision("bf16-mixed", torch.float32, by_hand=False)
precision("bf16-true", torch.bfloat16, by_hand=False)
supported("16-mixed", "gradients are rescaled after unscaling", where="CUDA")(
    lambda folder: Run(folder, precision="16-mixed", accelerator="gpu", gradient_clip_val=1.0).trained()
)


supported, refused = section("Gradients")


def clipping(by: str, limit: float) -> None:
    @supported(f"clipping by {by}", "clips the gradient of the whole window")
    def check(folder: Path) -> None:
        run = Run(folder, gradient_clip_val=limit, gradient_clip_algorithm=by).trained()
        run.equals_by_hand(**{f"clip_{by}": limit})
        assert not torch.equal(run.module.net[0].weight, Run(folder).module.net[0].weight)


clipping("norm", 0.4)
clipping("value", 0.05)


@supported("Trainer(accumulate_grad_batches) with the mixin and the monitor", "ratios are per window")
def fixed_accumulation(folder: Path) -> None:
    run = Run(folder, adaptive=False, accumulate_grad_batches=3)
    assert run.samples == [WHOLE_EPOCH] * EPOCHS
    assert run.trainer.global_step == EPOCHS * BATCHES / 3


refused("Trainer(accumulate_grad_batches) with adaptive accumulation", "both would set the accumulation")(
    refusal(r"Remove that argument .*, or the callback", accumulate_grad_batches=lambda: 3)
)


class Manual(WithAS):
    """Steps by itself."""

    def __init__(self) -> None:
        super().__init__(delta=0.1)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        optimizer.step()


supported("manual optimization with the mixin and the monitor", "every batch is a window")(
    lambda folder: Run(folder, module=Manual(), adaptive=False).trained()
)
refused("manual optimization with adaptive accumulation", "the training step decides when to step")(
    refusal(r"automatic_optimization is False.* Set it to True", module=Manual)
)


class Checkpoints(WithAS):
    """Recomputes its first layers in the backward pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net[2](checkpoint(self.net[:2], inputs.requires_grad_(), use_reentrant=False))


supported("activation checkpointing", "keep the loss outside the recomputed part: it would be counted twice")(
    by_hand(lambda: Checkpoints(delta=0.1))
)


@supported(
    "torch.compile of the module",
    "compiles twice: for a window's first batch and for the others",
    limit=SELF_LOG_COMPILED,
)
def compiled(folder: Path) -> None:
    torch._dynamo.reset()
    module = WithAS(delta=0.1)
    plain, run = Run(folder), Run(folder, module=torch.compile(module, backend="eager"))
    assert run.speed.history == plain.speed.history
    assert run.monitor.history == plain.monitor.history
    assert_same_weights(module.state_dict(), plain.module.state_dict())


@supported("torch.compile of the network alone", "the loss and self.log stay outside")
def compiled_network(folder: Path) -> None:
    torch._dynamo.reset()
    module, compiler = WithAS(delta=0.1), CompileCounter()
    module.net = torch.compile(module.net, backend=compiler, fullgraph=True)
    run = Run(folder, module=module).trained()
    assert compiler.frame_count == 1
    run.equals_by_hand()


supported, refused = section("Data")
supported("streams of unknown length", "the last window of an epoch may be cut short; it keeps its scale")(
    lambda folder: Run(folder, data=stream()).trained().equals_by_hand(exactly=False)
)


class FromDictionaries(WithAS):
    """Takes batches of two loaders."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        first, second = batch["first"], batch["second"]
        together = (torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]]))
        return super().training_step(together, batch_idx)


@supported("CombinedLoader", "a combined batch counts as one batch")
def combined_loader(folder: Path) -> None:
    loaders = {"first": loader_of(batches()), "second": loader_of(batches(BATCHES // 2))}
    run = Run(folder, module=FromDictionaries(delta=0.1), data=CombinedLoader(loaders, "max_size_cycle"))
    run.trained(samples=[2 * WHOLE_EPOCH] * EPOCHS)
    assert (
        Run(folder, module=FromDictionaries(delta=0.1), data=CombinedLoader(loaders, "min_size")).samples[0]
        == WHOLE_EPOCH
    )


@supported("limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches")
def limited_batches(folder: Path) -> None:
    Run(folder, validation=True, limit_train_batches=7, limit_val_batches=1).trained(samples=[7 * SIZE] * EPOCHS)
    Run(folder, limit_train_batches=0.5).trained(samples=[WHOLE_EPOCH // 2] * EPOCHS)
    Run(folder, data=stream(), limit_train_batches=7).trained(samples=[7 * SIZE] * EPOCHS)
    run = Run(folder, limit_test_batches=1, limit_predict_batches=1)
    run.trainer.test(run.module, loader_of(batches(2)), verbose=False)
    assert len(run.trainer.predict(run.module, loader_of(batches(2)))) == 1
    run.trained()


supported("overfit_batches")(
    lambda folder: Run(folder, overfit_batches=3, max_epochs=6).trained(samples=[3 * SIZE] * 6)
)


@supported("reload_dataloaders_every_n_epochs", "epochs may differ in length")
def reloaded_loaders(folder: Path) -> None:
    class ShrinkingData(pl.LightningDataModule):
        def train_dataloader(self) -> DataLoader:
            return loader_of(batches(BATCHES - 5 * self.trainer.current_epoch))

    run = Run(folder, data=ShrinkingData(), reload_dataloaders_every_n_epochs=1)
    run.trained(samples=[WHOLE_EPOCH, WHOLE_EPOCH - 5 * SIZE])


supported("val_check_interval", "a validation inside a window changes nothing")(
    by_hand(validation=True, val_check_interval=5)
)


supported, refused = section("Length of training")


@supported("max_steps", "counts optimizer steps, as Lightning does")
def max_steps(folder: Path) -> None:
    run = Run(folder, max_epochs=-1, max_steps=9)
    assert run.trainer.global_step == len(run.speed.history) == 9
    run.equals_by_hand()


@supported("max_time", "an unfinished window takes no step when the time is up")
def max_time(folder: Path) -> None:
    class LetsTimePass(Timer):
        """An hour per batch, without waiting for it."""

        def time_elapsed(self, stage: str = "train") -> float:
            return 3600.0 * (self.batches if stage == "train" else 0)

        def on_train_batch_start(self, *args: Any) -> None:
            self.batches += 1

    timer = LetsTimePass("00:18:00:00")
    timer.batches = 0
    run = Run(folder, max_epochs=-1, callbacks=[timer])
    assert run.trainer.fit_loop.total_batch_idx + 1 == 18
    assert sum(window.length for window in run.speed.history) == 16  # up inside the window of the batches 16 to 19
    run.equals_by_hand()


@supported("EarlyStopping on masking/sample_ratio", "works at the steps that the logger writes")
def early_stopping_by_step(folder: Path) -> None:
    stops = EarlyStopping("masking/sample_ratio", mode="max", stopping_threshold=0.5, patience=100)
    run = Run(folder, callbacks=[stops], max_epochs=50, log_every_n_steps=1, validation=True)
    assert run.trainer.current_epoch < 50
    assert run.trainer.callback_metrics["masking/sample_ratio"] > 0.5


@supported("EarlyStopping on masking/sample_ratio_epoch", "with a validation loop: check_on_train_epoch_end=True")
def early_stopping_by_epoch(folder: Path) -> None:
    for validation, at_epoch_end in ((False, None), (True, True)):
        settings = {"mode": "max", "stopping_threshold": 0.5, "patience": 100, "check_on_train_epoch_end": at_epoch_end}
        stops = EarlyStopping("masking/sample_ratio_epoch", **settings)
        run = Run(folder, callbacks=[stops], max_epochs=50, validation=validation)
        assert run.trainer.current_epoch < 50
        last = run.monitor.history[-1]
        assert last.masked_samples > 0.5 * last.samples


@supported("EarlyStopping on val_loss", "val_loss is the masked loss: see as_softmax_validation")
def early_stopping_on_val_loss(folder: Path) -> None:
    class ValidatesWithSoftmax(WithAS):
        as_softmax_validation = "softmax"

    def val_loss(module: Any) -> float:
        stops = EarlyStopping("val_loss")
        return float(
            Run(folder, module=module, callbacks=[stops], validation=True).trainer.callback_metrics["val_loss"]
        )

    masked, softmax = val_loss(WithAS(delta=0.1)), val_loss(ValidatesWithSoftmax(delta=0.1))
    assert masked < softmax


supported, refused = section("Checkpoints")


@supported("ModelCheckpoint on masking/sample_ratio_epoch", "saves at the end of the training epoch")
def model_checkpoint(folder: Path) -> None:
    keeps = ModelCheckpoint(folder / "best", "{epoch}", monitor="masking/sample_ratio_epoch", mode="max")
    run = Run(folder, callbacks=[keeps], enable_checkpointing=True, max_epochs=4)
    ratios = [epoch.masked_samples / epoch.samples for epoch in run.monitor.history]
    assert float(keeps.best_model_score) == pytest.approx(max(ratios))
    loaded = WithAS.load_from_checkpoint(keeps.best_model_path)
    assert loaded.as_softmax_delta == 0.1


@supported("ModelCheckpoint on masking/sample_ratio by steps", "needs log_every_n_steps=1")
def model_checkpoint_by_steps(folder: Path) -> None:
    keeps = ModelCheckpoint(folder / "best", monitor="masking/sample_ratio", mode="max", every_n_train_steps=1)
    Run(folder, callbacks=[keeps], enable_checkpointing=True, log_every_n_steps=1).trained()
    assert float(keeps.best_model_score) > 0


@supported("resuming, also inside a window", "windows, counts and weights are those of a run without a break")
def resuming(folder: Path) -> None:
    class Saves(pl.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.current_epoch == 1 and batch_idx == 5:
                assert trainer.accumulate_grad_batches > 2
                trainer.save_checkpoint(folder / "inside.ckpt")

    whole = Run(folder, callbacks=[Saves()])
    resumed = Run(folder, fit=False)
    rest = batches()[6:]  # what a stateful loader would yield
    resumed.trainer.fit(resumed.module, loader_of([*rest, *rest]), ckpt_path=folder / "inside.ckpt")
    assert resumed.monitor.history == whole.monitor.history
    assert resumed.speed.history == whole.speed.history[-len(resumed.speed.history) :]
    assert_same_weights(resumed.module.state_dict(), whole.module.state_dict())


supported, refused = section("Debugging and profiling")


@supported("fast_dev_run")
def fast_dev_run(folder: Path) -> None:
    assert Run(folder, validation=True, fast_dev_run=3).samples == [3 * SIZE]


supported("detect_anomaly")(by_hand(detect_anomaly=True))
supported("barebones", "nothing is logged; history is kept")(by_hand(barebones=True))


@supported("profiler: simple, advanced, pytorch")
def profilers(folder: Path) -> None:
    for profiler in ("simple", "advanced", "pytorch"):
        Run(folder, profiler=profiler).trained()


@supported("validate, test, predict", "these count nothing; the counts of fit stay")
def evaluation(folder: Path) -> None:
    run = Run(folder)
    history, windows = list(run.monitor.history), list(run.speed.history)
    evaluated = loader_of(batches(2))
    (validated,) = run.trainer.validate(run.module, evaluated, verbose=False)
    (tested,) = run.trainer.test(run.module, evaluated, verbose=False)
    assert validated["val_loss"] == tested["val_loss"] >= 0
    predicted = run.trainer.predict(run.module, evaluated)
    assert predicted is not None
    assert len(predicted) == 2
    assert (run.monitor.history, run.speed.history) == (history, windows)
    assert run.module.masking_counter.open_counts.sum() == 0


supported, refused = section("Callbacks of Lightning")


@supported("LearningRateFinder", "the batches of its search are not counted")
def learning_rate_finder(folder: Path) -> None:
    finds = LearningRateFinder(num_training_steps=10, attr_name="lr")
    module = WithAS(delta=0.1)
    module.lr = 0.5
    run = Run(folder, module=module, callbacks=[finds], enable_checkpointing=True)
    assert run.samples == [WHOLE_EPOCH] * EPOCHS
    assert finds.optimal_lr is not None


class SizedData(pl.LightningDataModule):
    """A data module whose batch size can be searched."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 2

    def train_dataloader(self) -> DataLoader:
        inputs, targets = (torch.cat(parts) for parts in zip(*batches(), strict=True))
        return DataLoader(TensorDataset(inputs, targets), batch_size=self.batch_size)

    val_dataloader = train_dataloader


@supported(
    "BatchSizeFinder",
    "the batches of its search are not counted; Lightning refuses it on several processes",
    where="one process",
)
def batch_size_finder(folder: Path) -> None:
    data = SizedData()
    finds = BatchSizeFinder(max_trials=2, steps_per_trial=2)
    run = Run(folder, callbacks=[finds], data=data, enable_checkpointing=True)
    assert data.batch_size > 2
    run.trained()


@supported("StochasticWeightAveraging without batch norm")
def weight_averaging(folder: Path) -> None:
    run = Run(folder, callbacks=[StochasticWeightAveraging(0.1, swa_epoch_start=1)], max_epochs=3)
    assert run.samples == [WHOLE_EPOCH] * 3


def with_batch_norm() -> WithAS:
    module = WithAS(delta=0.1)
    module.net.append(nn.BatchNorm1d(8))
    return module


refused(
    "StochasticWeightAveraging of a model with batch norm, with adaptive accumulation",
    "it sets the accumulation to renew the statistics",
)(
    refusal(
        "StochasticWeightAveraging both set",
        module=with_batch_norm,
        callbacks=lambda: [StochasticWeightAveraging(0.1)],
    )
)


@supported("GradientAccumulationScheduler with the mixin and the monitor")
def accumulation_scheduler(folder: Path) -> None:
    run = Run(folder, callbacks=[GradientAccumulationScheduler({0: 1, 1: 3})], adaptive=False)
    assert run.samples == [WHOLE_EPOCH] * EPOCHS
    assert run.trainer.global_step == BATCHES + BATCHES // 3


refused("GradientAccumulationScheduler with adaptive accumulation", "both would set the accumulation")(
    refusal("GradientAccumulationScheduler both set", callbacks=lambda: [GradientAccumulationScheduler({0: 1, 1: 3})])
)


supported, refused = section("Loggers")


@supported("several loggers", "each logger gets every metric")
def several_loggers(folder: Path) -> None:
    loggers = [CSVLogger(folder / name) for name in ("first", "second")]
    run = Run(folder, logger=loggers, callbacks=[LearningRateMonitor("step")], log_every_n_steps=1).trained()
    for logger in loggers if run.trainer.is_global_zero else []:  # the others write nothing
        columns = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0].split(",")
        assert {"masking/sample_ratio", "masking/delta", "masking/sample_ratio_epoch", "train_loss"} <= set(columns)


@supported("no logger", "callback_metrics still has every metric")
def no_logger(folder: Path) -> None:
    run = Run(folder, logger=False, log_every_n_steps=1).trained()
    assert run.trainer.callback_metrics.keys() >= {"masking/sample_ratio", "masking/sample_ratio_epoch"}


supported, refused = section("Modules")


class Silent(WithAS):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])


refused("a module that never calls the masked loss", "after the first batch; the message names both ways to call it")(
    refusal(r"self\.as_softmax_loss.*as_softmax_replaces", module=lambda: Silent(delta=0.1))
)
refused("a module without a masking counter", "the error of the callbacks names the mixin")(
    refusal(r"Mix in as_lightning\.ASSoftmaxMixin", module=Theirs)
)


@supported("a masking counter of one's own", "without the mixin: update it in training_step")
def own_counter(folder: Path) -> None:
    from as_lightning.functional import as_cross_entropy

    class Counts(Theirs):
        def __init__(self) -> None:
            super().__init__()
            self.masking_counter = MaskingCounter()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss, counts = as_cross_entropy(self(batch[0]), batch[1], 0.1, return_counts=True)
            self.masking_counter.update(counts)
            return loss

    Run(folder, module=Counts()).trained().equals_by_hand()


class TakesIterator(WithAS):
    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        raise AssertionError("training has started")


refused("training_step(dataloader_iter) with adaptive accumulation", "batches have no index there")(
    refusal("dataloader_iter: take", module=lambda: TakesIterator(delta=0.1))
)
