"""Modules and data as a user would write them, for the comparison of one's own."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from as_lightning import ASSoftmaxMixin


class Points(pl.LightningDataModule):
    """Five classes of noisy points."""

    def __init__(self, rows: int = 300) -> None:
        super().__init__()
        self.rows = rows

    def setup(self, stage: str | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(self.rows, 8, generator=generator)
        scores = inputs @ torch.randn(8, 5, generator=generator) + torch.randn(
            self.rows, 5, generator=generator
        )
        third = self.rows // 3
        targets = scores.argmax(-1)
        self.parts = [
            TensorDataset(*part)
            for part in zip(inputs.split(third), targets.split(third), strict=True)
        ]

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[0], batch_size=25, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[1], batch_size=50)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[2], batch_size=50)


class WithCriterion(pl.LightningModule):
    """The commonest form: the loss is ``self.criterion``."""

    def __init__(self, lr: float = 0.01, hidden: int = 16) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 5))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.criterion(self(batch[0]), batch[1])

    def accuracy(self, batch: Any) -> Tensor:
        return (self(batch[0]).argmax(-1) == batch[1]).float().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/acc", self.accuracy(batch))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test/acc", self.accuracy(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])


class ByRank(WithCriterion):
    """Two processes with scores of their own; a test tells from which epoch its weights are."""

    tested = 0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log(
            "val/acc", ((0.5, 0.5), (0.9, 0.49), (0.6, 0.48))[self.current_epoch][self.global_rank]
        )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.tested = checkpoint["epoch"]

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test/acc", self.tested / 10)


def comparison_of_losses() -> dict[str, Any]:
    """The arguments of a comparison of losses, as ``call=`` takes them."""
    trainer = {"max_epochs": 1, "accelerator": "cpu", "limit_train_batches": 5}
    compared = {"factory": WithCriterion, "datamodule": Points(), "replaces": "criterion"}
    return compared | {"monitor": "val/acc", "trainer": trainer}


def comparison_of_two_ranks() -> dict[str, Any]:
    """The arguments of a comparison whose runs have two processes."""
    trainer = {"max_epochs": 3, "accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    compared = {"factory": {"a": ByRank, "b": ByRank}, "datamodule": Points()}
    return compared | {"monitor": "val/acc", "trainer": trainer}


class WithMixin(ASSoftmaxMixin, WithCriterion):
    """Its training_step calls ``self.as_softmax_loss``."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.as_softmax_loss(self(batch[0]), batch[1])


class Sentences(pl.LightningDataModule):
    """Batches as ``transformers`` takes them."""

    def __init__(self, rows: int = 60) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(5, 50, (rows, 6), generator=generator)
        labels = ids[:, 0] % 3
        self.rows: Dataset = [
            {"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)
        ]

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.rows, batch_size=20)

    val_dataloader = test_dataloader = train_dataloader


class HuggingFace(WithCriterion):
    """A sequence classifier of ``transformers``, which computes its loss itself."""

    def __init__(self, lr: float = 1e-3) -> None:
        super().__init__()
        from transformers import AutoModelForSequenceClassification, BertConfig

        self.hparams.clear()
        self.lr = lr
        config = BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=8,
            num_labels=3,
        )
        self.model = AutoModelForSequenceClassification.from_config(config)

    def forward(self, **batch: Tensor) -> Any:
        return self.model(**batch)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(**batch).loss

    def accuracy(self, batch: Any) -> Tensor:
        return (self.model(**batch).logits.argmax(-1) == batch["labels"]).float().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)
