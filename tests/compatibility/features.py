"""Features of Lightning with the mixin, the monitor and adaptive accumulation: a small training
with each of them.
"""

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import loader_of, quiet_trainer, same_weights
from harness.two_ranks import main
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    ModelCheckpoint,
)
from lightning.pytorch.utilities import CombinedLoader
from oracles.accumulation_loop import train_by_hand
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters as dynamo
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from as_lightning import (
    AdaptiveGradientAccumulation,
    ASSoftmaxMixin,
    MaskingMonitor,
    TemperatureScaling,
)

CLASSES, BATCHES, SIZE, EPOCHS = 8, 12, 8, 2
WHOLE_EPOCH = BATCHES * SIZE


class Classifier(ASSoftmaxMixin, pl.LightningModule):
    """Learns an easy task, so that masking sets in at once."""

    def __init__(self) -> None:
        super().__init__(delta=0.1)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(CLASSES, 16), nn.Tanh(), nn.Linear(16, CLASSES))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.as_softmax_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.as_softmax_loss(self(batch[0]), batch[1]))

    test_step = validation_step

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def batches(count=BATCHES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    targets = [torch.randint(CLASSES, (SIZE,), generator=generator) for _ in range(count)]
    return [(4 * torch.eye(CLASSES, dtype=dtype)[target], target) for target in targets]


class Run:
    """A training and its callbacks; ``arguments`` go to the trainer, and all ``processes`` take the
    same batches.
    """

    processes: ClassVar[int] = 1

    def __init__(
        self,
        folder,
        *,
        module=None,
        callbacks=(),
        data=None,
        validation=False,
        adaptive=True,
        **arguments,
    ):
        self.module = Classifier() if module is None else module
        self.monitor, self.speed = MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)
        settings: dict[str, Any] = {
            "max_epochs": EPOCHS,
            "devices": self.processes,
            "default_root_dir": folder,
        }
        if self.processes > 1:
            settings |= {"strategy": "ddp", "use_distributed_sampler": False}
        settings["callbacks"] = [*callbacks, self.monitor, *([self.speed] if adaptive else [])]
        self.trainer = quiet_trainer(**settings | arguments)
        data = loader_of(batches()) if data is None else data
        self.trainer.fit(self.module, data, loader_of(batches(2)) if validation else None)

    def trained(self, *samples: int) -> "Run":
        """The monitor counted these samples in the epochs, by default all; the windows cover them,
        some are masked.
        """
        samples = samples or (WHOLE_EPOCH,) * EPOCHS
        assert [epoch.samples for epoch in self.monitor.history] == [
            self.processes * epoch for epoch in samples
        ]
        assert any(epoch.masked_samples for epoch in self.monitor.history)
        assert self.trainer.accumulate_grad_batches == 1
        assert sum(window.samples for window in self.speed.history) == self.processes * sum(samples)
        assert max(window.length for window in self.speed.history) > 1
        return self

    def equals_by_hand(self, dtype: torch.dtype = torch.float32, *, autocast: bool = False) -> None:
        """The weights are those of a hand-written loop over the windows that were taken, bit for
        bit.
        """
        reference = Classifier().to(dtype)

        def loss_of(batch: Any) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
                return reference.as_softmax_loss(reference(batch[0]), batch[1])

        windows = [(window.epoch, window.batch, window.length) for window in self.speed.history]
        optimizer = reference.configure_optimizers()
        epochs = [batches(dtype=dtype)] * EPOCHS
        train_by_hand(reference, optimizer, epochs, windows, loss_of=loss_of, rate_scale=math.sqrt)
        assert next(self.module.parameters()).dtype == dtype
        assert same_weights(self.module, reference)


class Checkpoints(Classifier):
    """Recomputes its layers and its loss in the backward pass."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        def loss_of(inputs: Tensor, target: Tensor) -> Tensor:
            return self.as_softmax_loss(self(inputs), target)

        return checkpoint(
            loss_of, batch[0].requires_grad_(), batch[1], use_reentrant=batch_idx % 2 == 0
        )


def compiled(folder: Path) -> None:
    torch._dynamo.reset()
    dynamo.clear()
    module, plain = Classifier(), Run(folder)
    settings: Any = {"callbacks": [TemperatureScaling()], "num_sanity_val_steps": 2}
    run = Run(folder, module=torch.compile(module, backend="eager"), validation=True, **settings)
    assert module.as_softmax_temperature is not None
    assert run.speed.history == plain.speed.history
    assert run.monitor.history == plain.monitor.history
    # A window's first batch and the others, and breaks at the loss and at self.log: no graph for
    # every batch.
    assert dynamo["stats"]["unique_graphs"] < EPOCHS * BATCHES
    for trained, expected in zip(module.parameters(), plain.module.parameters(), strict=True):
        torch.testing.assert_close(trained, expected)


def compiled_network(folder: Path) -> None:
    torch._dynamo.reset()
    module, compiler = Classifier(), CompileCounter()
    module.net = torch.compile(module.net, backend=compiler, fullgraph=True)
    Run(folder, module=module).trained().equals_by_hand()
    assert compiler.frame_count == 1


class FromDictionaries(Classifier):
    """Takes batches of two loaders."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, target = map(torch.cat, zip(batch["first"], batch["second"], strict=True))
        return super().training_step((inputs, target), batch_idx)


def combined_loader(folder: Path) -> None:
    for mode, epoch in (("max_size_cycle", 2 * WHOLE_EPOCH), ("min_size", WHOLE_EPOCH)):
        loaders = {"first": loader_of(batches()), "second": loader_of(batches(BATCHES // 2))}
        Run(folder, module=FromDictionaries(), data=CombinedLoader(loaders, mode)).trained(
            epoch, epoch
        )


class ShrinkingData(pl.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        return loader_of(batches(BATCHES - 5 * self.trainer.current_epoch))


def limited_batches(folder: Path) -> None:
    limits = {"limit_train_batches": 0.5, "limit_val_batches": 1, "limit_test_batches": 1}
    run = Run(folder, validation=True, **limits).trained(WHOLE_EPOCH // 2, WHOLE_EPOCH // 2)
    run.trainer.test(run.module, loader_of(batches(2)), verbose=False)
    run.trained(WHOLE_EPOCH // 2, WHOLE_EPOCH // 2)


def early_stopping(folder: Path) -> None:
    for ratio in ("sample_ratio", "sample_ratio_epoch"):
        settings: Any = {"mode": "max", "stopping_threshold": 0.5, "patience": 100}
        settings["check_on_train_epoch_end"] = ratio.endswith("epoch")
        stops = EarlyStopping(f"masking/{ratio}", **settings)
        run = Run(folder, callbacks=[stops], max_epochs=50, log_every_n_steps=1, validation=True)
        assert run.trainer.current_epoch < 50
        assert run.trainer.callback_metrics[f"masking/{ratio}"] > 0.5


def model_checkpoint(folder: Path) -> None:
    for ratio, when in (("sample_ratio_epoch", {}), ("sample_ratio", {"every_n_train_steps": 1})):
        keeps = ModelCheckpoint(folder / ratio, monitor=f"masking/{ratio}", mode="max", **when)
        run = Run(folder, callbacks=[keeps], enable_checkpointing=True, log_every_n_steps=1)
        best = max(epoch.masked_samples / epoch.samples for epoch in run.monitor.history)
        assert best > 0
        highest = float(keeps.best_model_score)
        assert highest >= best if when else highest == pytest.approx(best)
        assert Path(keeps.best_model_path).is_file()


def accumulation_scheduler(folder: Path) -> None:
    run = Run(folder, callbacks=[GradientAccumulationScheduler({0: 1, 1: 3})], adaptive=False)
    assert [epoch.samples for epoch in run.monitor.history] == [
        run.processes * WHOLE_EPOCH
    ] * EPOCHS
    assert run.trainer.global_step == BATCHES + BATCHES // 3


def by_hand(**arguments: Any) -> Callable[[Path], None]:
    """The check that a training with these settings of the trainer equals the hand-written loop."""
    return lambda folder: Run(folder, **arguments).trained().equals_by_hand()


FEATURES: dict[str, Callable[[Path], object]] = {
    "float64": lambda folder: (
        Run(folder, precision="64-true").trained().equals_by_hand(torch.float64)
    ),
    "bfloat16": lambda folder: (
        Run(folder, precision="bf16-true").trained().equals_by_hand(torch.bfloat16)
    ),
    "bfloat16_mixed": lambda folder: (
        Run(folder, precision="bf16-mixed").trained().equals_by_hand(autocast=True)
    ),
    "activation_checkpointing": lambda folder: (
        Run(folder, module=Checkpoints()).trained().equals_by_hand()
    ),
    "compiled": compiled,
    "compiled_network": compiled_network,
    "combined_loader": combined_loader,
    "limited_batches": limited_batches,
    "overfit_batches": lambda folder: Run(folder, overfit_batches=3, max_epochs=6).trained(
        *[3 * SIZE] * 6
    ),
    "reloaded_loaders": lambda folder: Run(
        folder, data=ShrinkingData(), reload_dataloaders_every_n_epochs=1
    ).trained(WHOLE_EPOCH, WHOLE_EPOCH - 5 * SIZE),
    "early_stopping": early_stopping,
    "model_checkpoint": model_checkpoint,
    "accumulation_scheduler": accumulation_scheduler,
    "fast_dev_run": lambda folder: Run(folder, validation=True, fast_dev_run=8).trained(8 * SIZE),
    "detect_anomaly": by_hand(detect_anomaly=True),
    "barebones": by_hand(barebones=True),
    "profiler": by_hand(profiler="pytorch"),
}


def of_one_rank(feature: str) -> Callable[[Path], dict[str, Any]]:
    def check(folder: Path) -> dict[str, Any]:
        torch.manual_seed(0)
        FEATURES[feature](folder / feature)
        return {"passed": feature}

    return check


if __name__ == "__main__":
    Run.processes = 2
    main(Path(sys.argv[1]), sys.argv[2:], {feature: of_one_rank(feature) for feature in FEATURES})
