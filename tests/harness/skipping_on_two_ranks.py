"""One of two processes that skip samples together: ``python skipping_on_two_ranks.py FOLDER SCENARIO...``."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
import torch
from harness.length_batches import LengthBatches
from harness.narrowed_modules import OneClass, backward_skipping
from harness.scripted_masking import quiet_trainer
from harness.sleeping_samples import NumberedSamples, SleepingClassifier, numbered_loader
from harness.two_ranks import main
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import RandomSampler, WeightedRandomSampler

from as_lightning.callbacks import MaskedSampleSkipping, MaskingMonitor

EPOCHS = 6
NO_GUARDS: dict[str, Any] = {"min_masked": 0.0, "max_woken": 1.0, "class_floor": 0.0}


class SavesInside(pl.Callback):
    """Inside epoch 2, and on its last batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == (2, 0):
            trainer.save_checkpoint(self.folder / "inside.ckpt")
        if trainer.current_epoch == 2 and trainer.is_last_batch:
            trainer.save_checkpoint(self.folder / "last_batch.ckpt")


def train(loader: Any, callbacks: list[pl.Callback] | None = None, **settings: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    ckpt_path = settings.pop("ckpt_path", None)
    module = settings.pop("module", None) or SleepingClassifier()
    skipping = MaskedSampleSkipping(**(NO_GUARDS | settings.pop("skipping", {})))
    trainer = quiet_trainer(
        max_epochs=EPOCHS, devices=2, strategy="ddp", callbacks=[skipping, *(callbacks or [])], **settings
    )
    trainer.fit(module, loader, numbered_loader(shuffle=False), ckpt_path=ckpt_path)
    return {
        "epochs": module.epochs,
        "live": module.live,
        "lengths": module.lengths,
        "validated": module.validated,
        "history": [tuple(epoch) for epoch in skipping.history],
        "weights": module.weights(),
    }


def random_order(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(batch_size=4))


def by_length(folder: Path) -> dict[str, Any]:
    samples = NumberedSamples()
    return train(numbered_loader(samples, batch_sampler=LengthBatches(RandomSampler(samples), 4, False)))


def weighted(folder: Path) -> dict[str, Any]:
    torch.manual_seed(int(__import__("os").environ["LOCAL_RANK"]))  # each rank would draw an order of its own
    return train(numbered_loader(batch_size=4, sampler=WeightedRandomSampler(torch.ones(61), 40, replacement=False)))


def without_sleep(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(NumberedSamples(64), batch_size=4), skipping={"max_sleep": 0})


def without_the_callback(folder: Path) -> dict[str, Any]:
    module = SleepingClassifier()
    trainer = quiet_trainer(max_epochs=EPOCHS, devices=2, strategy="ddp", reload_dataloaders_every_n_epochs=1)
    trainer.fit(module, numbered_loader(NumberedSamples(64), batch_size=4), numbered_loader(shuffle=False))
    return {"epochs": module.epochs, "weights": module.weights()}


def saved_inside(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(batch_size=4), [SavesInside(folder)])


def resumed_inside(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(batch_size=4), ckpt_path=folder / "inside.ckpt")


def resumed_at_the_last_batch(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(batch_size=4), ckpt_path=folder / "last_batch.ckpt")


class Stops(SleepingClassifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if (self.trainer.current_epoch, batch_idx) == (2, 1):
            raise RuntimeError("stopped")
        return super().training_step(batch, batch_idx)


def stopped(folder: Path) -> dict[str, Any]:
    saves = ModelCheckpoint(folder, filename="stopped", save_on_exception=True, every_n_epochs=100)
    with contextlib.suppress(RuntimeError):
        train(numbered_loader(batch_size=4), [saves], module=Stops(), enable_checkpointing=True)
    (state,) = [
        state
        for key, state in torch.load(folder / "stopped.ckpt", weights_only=False)["callbacks"].items()
        if key.startswith("MaskedSampleSkipping")
    ]
    return {"inside_epoch": list(state["inside_epoch"])}


def resumed_after_a_stop(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(batch_size=4), ckpt_path=folder / "stopped.ckpt")


def own_order_on_each_rank(folder: Path) -> dict[str, Any]:
    return train(numbered_loader(batch_size=4), use_distributed_sampler=False)


def narrowed(folder: Path) -> dict[str, Any]:
    return train_narrowed([backward_skipping(max_sleep=2)])


def not_narrowed(folder: Path) -> dict[str, Any]:
    return train_narrowed([MaskedSampleSkipping(2, **NO_GUARDS)])


def train_narrowed(callbacks: list[pl.Callback]) -> dict[str, Any]:
    """Rank 1 has nothing live in the first batches."""
    torch.manual_seed(0)

    class Module(OneClass):
        def loss(self, inputs: Any, target: Any) -> Any:
            sure = 50.0 * (self.global_rank == 1 and self.trainer.current_epoch == 0)
            return self.as_softmax_loss(
                self.head(self.body(inputs)) + sure * torch.nn.functional.one_hot(target, 3), target
            )

    module, monitor = Module(), MaskingMonitor()
    trainer = quiet_trainer(max_epochs=EPOCHS, devices=2, strategy="ddp", callbacks=[monitor, *callbacks])
    trainer.fit(module, numbered_loader(NumberedSamples(noise=0.4), batch_size=4))
    return {
        "weights": module.weights(),
        "sizes": module.sizes,
        "history": [tuple(epoch) for epoch in callbacks[0].history],  # type: ignore[attr-defined]
        "counts": [tuple(epoch) for epoch in monitor.history],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:], globals())
