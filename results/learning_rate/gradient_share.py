"""How much of the gradient comes from rows that the model already gets right, step by step."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

PARTS = 20


class GradientShare(pl.Callback):
    """Sum the norms of the head's gradient row by row: for a row it is that of an outer product,
    |dL/do_i| |(h_i, 1)|.

    A row (a sample, or a token that counts) is right where its largest logit is the target's,
    before the step.

    Attributes:
        shares: of the last run, for each twentieth of its steps, the norms of right rows by those
            of all rows.
        right: in the same parts, the share of rows that are right.
        cpu_seconds: of the training steps, of this process: a machine that is shared does not
            change them much.
    """

    shares: ClassVar[list[float]] = []
    right: ClassVar[list[float]] = []
    cpu_seconds: ClassVar[float] = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sums = torch.zeros(PARTS, 4, dtype=torch.float64)
        self.batches = int(trainer.num_training_batches) * int(trainer.max_epochs or 1)
        self.seen = 0
        self.spent = 0.0
        self.target: Tensor | None = None
        head = pl_module.head
        assert isinstance(head, nn.Module)
        self.hook = head.register_forward_hook(self._watch)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.target = batch[1]
        self.started = time.process_time()

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.target = None
        self.seen += 1
        self.spent += time.process_time() - self.started

    def _watch(self, head: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        target = self.target
        if target is None or not logits.requires_grad or target.shape != logits.shape[:-1]:
            return  # of several labels per sample no row is right or wrong
        counted = target >= 0
        right = (logits.detach().argmax(-1) == target)[counted]
        width = (inputs[0].detach().float().square().sum(-1) + 1).sqrt()[counted]
        part = self.sums[min(self.seen * PARTS // self.batches, PARTS - 1)]

        def add(gradient: Tensor) -> None:
            norms = gradient.float().norm(dim=-1)[counted] * width
            part.add_(
                torch.stack([norms[right].sum(), norms.sum(), right.sum(), counted.sum()]).double()
            )

        logits.register_hook(add)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.hook.remove()
        norms, all_norms, right, rows = self.sums.T
        type(self).shares = [
            round(value, 4) for value in (norms / all_norms.clamp(min=1e-30)).tolist()
        ]
        type(self).cpu_seconds = round(self.spent, 1)
        type(self).right = [round(value, 4) for value in (right / rows.clamp(min=1)).tolist()]
