"""A tiny token model, and batches whose numbers of items differ: what item weights are for."""

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import as_cross_entropy

FEATURES, CLASSES, IGNORED = 4, 5, -100
Batch = tuple[Tensor, Tensor]


def token_batches(counts, *, length=12, seed=0, dtype=torch.float64):
    """Batches of two padded sequences with so many tokens to learn, the other targets ignored."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for count in counts:
        inputs = torch.randn(2, length, FEATURES, generator=generator, dtype=dtype)
        target = torch.full((2 * length,), IGNORED)
        places = torch.randperm(2 * length, generator=generator)[:count]
        target[places] = torch.randint(CLASSES, (count,), generator=generator)
        batches.append((inputs, target.view(2, length)))
    return batches


def tokens_in(batch):
    return int((batch[1] != IGNORED).sum())


class Tagger(pl.LightningModule):
    """Two layers, each in a parameter group of its own; the loss is the mean over the tokens that
    count.
    """

    def __init__(self, optimizer=torch.optim.AdamW, dtype=torch.float64):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.net = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES)).to(
                dtype
            )
        self.optimizer = optimizer

    def losses(self, window):
        """The loss of each item of all batches."""
        logits = torch.cat([self.net(inputs).flatten(0, 1) for inputs, _ in window])
        target = torch.cat([target.flatten() for _, target in window])
        return F.cross_entropy(
            logits[target != IGNORED], target[target != IGNORED], reduction="none"
        )

    def training_step(self, batch, batch_idx):
        return self.losses([batch]).mean()  # of no items: not a number, and its gradient neither

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.losses([batch]).sum())

    def configure_optimizers(self):
        groups = [
            {"params": self.net[0].parameters(), "lr": 0.02},
            {"params": self.net[2].parameters(), "lr": 0.05, "weight_decay": 0.1},
        ]
        return self.optimizer(groups, lr=0.01)


class SkipsBatches(Tagger):
    """Has no loss in some batches: first in a window, last in one, inside, and the last batch of
    ten.
    """

    skipped = (0, 3, 5, 9)

    def training_step(self, batch, batch_idx):
        return None if batch_idx in self.skipped else super().training_step(batch, batch_idx)


class MaskedTagger(ASSoftmaxMixin, Tagger):
    """The mixin's loss, whose counter knows the items."""

    def __init__(self, **kwargs):
        super().__init__(delta=0.05, **kwargs)

    def losses(self, window):
        logits = torch.cat([self.net(inputs).flatten(0, 1) for inputs, _ in window])
        target = torch.cat([target.flatten() for _, target in window])
        losses = as_cross_entropy(
            logits, target, delta=0.05, ignore_index=IGNORED, reduction="none"
        )
        return losses[target != IGNORED]

    def training_step(self, batch, batch_idx):
        inputs, target = batch
        return self.as_softmax_loss(
            self.net(inputs).flatten(0, 1), target.flatten(), ignore_index=IGNORED
        )
