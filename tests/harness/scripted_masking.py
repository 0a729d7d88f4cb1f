"""A tiny module that reports whatever masking a test scripts, so that any sequence of windows can
be asked for.
"""

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset, IterableDataset

from as_lightning.functional import MaskingCounts
from as_lightning.masking_counter import MaskingCounter

SAMPLES = 720_720  # divisible by 1..16: masking all but SAMPLES / k of them asks for exactly k

OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda module: torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.1),
}


def masking_that_asks_for(steps):
    masked = SAMPLES - SAMPLES // steps
    return MaskingCounts(*torch.tensor([masked, SAMPLES, 3 * masked, 3 * SAMPLES]))


class ScriptedMasking(pl.LightningModule):
    """A two-layer net on cross-entropy; window ``i`` reports the masking that asks for ``script[i %
    len]`` batches.
    """

    def __init__(
        self,
        script=(1,),
        *,
        optimizer="sgd",
        dtype=torch.float32,
        scheduler=None,
        schedule_length=None,
    ):
        super().__init__()
        self.script = script
        self.optimizer_name = optimizer
        self.scheduler = scheduler
        self.schedule_length = schedule_length
        self.masking_counter = MaskingCounter()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)).to(dtype)

    def loss_of(self, batch):
        inputs, target = batch
        return F.cross_entropy(self.net(inputs), target)

    def training_step(self, batch, batch_idx):
        counts = masking_that_asks_for(self.script[self.trainer.global_step % len(self.script)])
        self.masking_counter.update(MaskingCounts(*(count.to(self.device) for count in counts)))
        return self.loss_of(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss_of(batch))

    def configure_optimizers(self):
        optimizer = OPTIMIZERS[self.optimizer_name](self)
        if self.scheduler is None:
            return optimizer
        steps = self.schedule_length or int(self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": self.scheduler(optimizer, steps)}


class Plain(ScriptedMasking):
    """A module without the mixin and without a masking counter."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        del self.masking_counter

    def training_step(self, batch, batch_idx):
        return self.loss_of(batch)


def batches_of(count, *, size=2, last_size=None, dtype=torch.float32, seed=1):
    """Random batches of ``(inputs, target)``, the last one maybe of another size."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [size] * (count - 1) + [last_size or size]
    return [
        (
            torch.randn(n, 3, dtype=dtype, generator=generator),
            torch.randint(4, (n,), generator=generator),
        )
        for n in sizes
    ]


class Batches(Dataset):
    """Ready-made batches as a sized data set."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


class BatchStream(IterableDataset):
    """Ready-made batches whose number nobody knows in advance."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def loader_of(batches, *, length_known=True):
    return DataLoader(Batches(batches) if length_known else BatchStream(batches), batch_size=None)


def one_cycle(optimizer, steps):
    """A scheduler whose rate is another one at each step, for a module."""
    return {"scheduler": OneCycleLR(optimizer, max_lr=0.1, total_steps=steps), "interval": "step"}


def quiet_trainer(**kwargs):
    """A trainer on the CPU that writes nothing."""
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(**(settings | kwargs))


def with_a_scaler(**settings):
    """Scales the gradients by powers of two, which costs no bit, and leaves the types
    as they are.
    """
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", **settings))
    plugin.autocast_context_manager = lambda: torch.autocast("cpu", enabled=False)  # type: ignore[assignment, method-assign]
    return plugin


def same_weights(module, other):
    """Whether two modules hold the same bits."""
    return all(
        torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True)
    )


class SavesEveryBatch(pl.Callback):
    """Not a ``Checkpoint``, so Lightning leaves it where it stands in the list."""

    def __init__(self, folder, *, between=False):
        # whether validations and epochs that end are saved too
        self.folder, self.between = (folder, between)

    def _save(self, trainer, place=""):
        trainer.save_checkpoint(
            self.folder / f"{trainer.current_epoch}-{trainer.fit_loop.batch_idx:02d}{place}.ckpt"
        )

    def on_train_batch_end(self, trainer, *args):
        self._save(trainer)

    def on_validation_end(self, trainer, pl_module):
        if self.between and not trainer.sanity_checking:
            self._save(trainer, "-validated")

    def on_train_epoch_end(self, trainer, pl_module):
        if self.between:
            self._save(trainer, "-whole")

    def checkpoints(self):
        return sorted(self.folder.glob("*.ckpt"))


class KeepsRows(DummyLogger):
    """A logger that keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def log_metrics(self, metrics, step=None):
        self.rows.append({"step": step, **metrics})
