"""A module with the mixin on Lightning's command line, ``LightningCLI``."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import ASSoftmaxMixin

pytest.importorskip("jsonargparse", reason="LightningCLI needs jsonargparse: pip install jsonargparse[signatures]")


class Existing(pl.LightningModule):
    """Somebody's module, with arguments of its own."""

    def __init__(self, features: int = 4, lr: float = 0.5) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Linear(features, 3)
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        return self.criterion(self.net(batch[0]), batch[1])

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(4, 4), torch.zeros(4, dtype=torch.int64)), batch_size=2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class Huber(Existing):
    """Has a delta of its own, as a Huber loss does."""

    def __init__(self, delta: float = 5.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.huber = delta


class WithAS(ASSoftmaxMixin, Existing):
    as_softmax_replaces = "criterion"


class HuberAS(ASSoftmaxMixin, Huber):
    as_softmax_replaces = "criterion"


@pytest.fixture(autouse=True)
def _no_arguments_of_pytest(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py"])


def command_line(cls: type[pl.LightningModule], *args: str) -> pl.LightningModule:
    defaults = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu", "max_epochs": 1}
    return LightningCLI(cls, args=list(args), trainer_defaults=defaults, run=False, seed_everything_default=1).model


def test_the_command_line_sets_the_margin_its_warmup_and_the_modules_own_arguments():
    module = command_line(WithAS, "--model.delta=0.2", "--model.lr=0.25", "--model.delta_warmup.batches=3")
    assert (module.as_softmax_delta, module.hparams.delta, module.hparams.lr) == (0.2, 0.2, 0.25)
    assert module.hparams.delta_warmup["batches"] == 3
    module = command_line(WithAS)
    assert (module.as_softmax_delta, module.hparams.delta, module.hparams.lr) == (0.1, 0.1, 0.5)


def test_a_module_with_a_delta_of_its_own_keeps_it_beside_the_margin():
    module = command_line(HuberAS)
    assert (module.huber, module.as_softmax_delta) == (5.0, 0.1)
    module = command_line(HuberAS, "--model.delta=2", "--model.as_softmax_delta=0.3", "--model.features=4")
    assert (module.huber, module.as_softmax_delta) == (2.0, 0.3)


@pytest.mark.parametrize(
    ("cls", "args"),
    [
        (WithAS, []),
        (WithAS, ["--model.delta=0.2", "--model.lr=0.25", "--model.delta_warmup.ratio=0.5"]),
        (HuberAS, ["--model.as_softmax_delta=0.3"]),
        (HuberAS, ["--model.as_softmax_delta=0.3", "--model.delta=2"]),
    ],
)
def test_a_printed_configuration_makes_the_same_module_again(cls, args, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command_line(cls, *args, "--print_config")
    config = tmp_path / "config.yaml"
    config.write_text(capsys.readouterr().out)
    module, again = command_line(cls, *args), command_line(cls, f"--config={config}")
    assert again.hparams == module.hparams
    assert again.as_softmax_delta == module.as_softmax_delta
    assert getattr(again, "huber", None) == getattr(module, "huber", None)


def test_a_run_saves_its_configuration_and_a_checkpoint_that_loads_back(tmp_path):
    args = ["fit", "--model.delta=0.2", f"--trainer.default_root_dir={tmp_path}", "--trainer.max_epochs=1"]
    quiet = ["accelerator=cpu", "enable_progress_bar=false", "enable_model_summary=false"]
    cli = LightningCLI(WithAS, args=args + [f"--trainer.{setting}" for setting in quiet])
    assert "delta: 0.2" in next(tmp_path.rglob("config.yaml")).read_text()
    loaded = WithAS.load_from_checkpoint(cli.trainer.checkpoint_callback.best_model_path, weights_only=False)
    assert (loaded.as_softmax_delta, loaded.hparams.lr) == (0.2, 0.5)
