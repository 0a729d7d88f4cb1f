"""One of two processes that share their data: ``python data_on_two_ranks.py FOLDER SCENARIO...``,
as two_ranks.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
import torch
from harness import two_ranks
from harness.data_settings import TEXT
from harness.scripted_masking import quiet_trainer
from torch import Tensor, nn

from as_lightning.bench.data.text.data_module import Sentence, TextDataModule

TRAIN, VALIDATION, BATCH, EPOCHS = 480, 101, 8, 2


class Numbered(TextDataModule):
    """Texts of one to nine words, whose class is their number."""

    def __init__(self, train=TRAIN, **text):
        super().__init__(**(TEXT | {"batch_size": BATCH} | text))
        self.train = train

    def read_splits(self):
        sizes = {
            "train": self.train,
            "validation": min(self.train, VALIDATION),
            "test": min(self.train, VALIDATION),
        }
        return {
            split: [
                Sentence(" ".join(["word"] * (number * 7 % 9 + 1)), f"{number:04}")
                for number in range(size)
            ]
            for split, size in sizes.items()
        }


class Watches(pl.LightningModule):
    """Notes the targets, which are the samples' numbers, and the shapes of the batches that this
    rank is given.
    """

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.trained: list[list[int]] = []
        self.batches: list[list[int]] = []
        self.validated: list[int] = []
        self.shapes: list[tuple[int, ...]] = []

    def training_step(self, batch, batch_idx):
        if batch_idx == 0 or not self.trained:
            self.trained.append([])
        self.trained[-1] += batch[1].tolist()
        self.batches.append(batch[1].tolist())
        self.shapes.append((*batch[0].shape, int((batch[0] != 0).sum())))
        return self.weight.square()

    def validation_step(self, batch, batch_idx):
        self.validated += batch[1].tolist()

    def predict_step(self, batch, batch_idx):
        return batch[1]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    @property
    def seen(self):
        return {"trained": self.trained, "validated": self.validated, "shapes": self.shapes}


def trainer(*callbacks):
    return quiet_trainer(
        max_epochs=EPOCHS,
        devices=2,
        strategy="ddp",
        num_sanity_val_steps=0,
        check_val_every_n_epoch=2,
        enable_checkpointing=bool(callbacks),
        callbacks=list(callbacks),
    )


def loaders_of_the_hooks(folder):
    module = Watches()
    trainer().fit(module, datamodule=Numbered())
    return module.seen


def loaders_handed_over(folder):
    module, data = Watches(), Numbered()
    data.setup()
    trainer().fit(module, data.train_dataloader(), data.val_dataloader())
    return module.seen


def resumed(folder):
    undisturbed, later = Watches(), Watches()
    each_epoch = pl.callbacks.ModelCheckpoint(
        folder, "{epoch}", save_on_train_epoch_end=True, save_top_k=-1
    )
    trainer(each_epoch).fit(undisturbed, datamodule=Numbered())
    torch.rand(3)
    trainer().fit(later, datamodule=Numbered(), ckpt_path=str(folder / "epoch=0.ckpt"))
    return {"undisturbed": undisturbed.batches, "resumed": later.batches}


def predictions(folder):
    data = Numbered()
    data.setup()
    predicted = trainer().predict(Watches(), data.test_dataloader())
    assert predicted is not None
    return {
        "predicted": torch.cat([part for part in predicted if isinstance(part, Tensor)]).tolist()
    }


if __name__ == "__main__":
    two_ranks.main(Path(sys.argv[1]), sys.argv[2:], globals())
