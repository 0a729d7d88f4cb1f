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


@pytest.mark.parametrize(
    ("cls", "args", "expected"),
    [
        (WithAS, [], (0.1, 0.5, None)),
        (WithAS, ["delta=0.2", "lr=0.25", "delta_warmup.batches=3"], (0.2, 0.25, None)),
        (HuberAS, [], (0.1, 0.5, 5.0)),
        (HuberAS, ["as_softmax_delta=0.3", "delta=2"], (0.3, 0.5, 2.0)),
    ],
)
def test_the_command_line_sets_each_argument_and_what_it_prints_makes_the_same_module_again(
    cls, args, expected, tmp_path, capsys
):
    args = [f"--model.{argument}" for argument in args]
    with pytest.raises(SystemExit):
        command_line(cls, *args, "--print_config")
    config = tmp_path / "config.yaml"
    config.write_text(capsys.readouterr().out)
    module, again = command_line(cls, *args), command_line(cls, f"--config={config}")
    assert again.hparams == module.hparams
    for made in (module, again):
        assert (made.as_softmax_delta, made.hparams.lr, getattr(made, "huber", None)) == expected
    assert (module.hparams.delta_warmup or {"batches": 3})["batches"] == 3


def test_a_run_saves_its_configuration_and_a_checkpoint_that_loads_back(tmp_path):
    args = ["fit", "--model.delta=0.2", f"--trainer.default_root_dir={tmp_path}", "--trainer.max_epochs=1"]
    quiet = ["accelerator=cpu", "enable_progress_bar=false", "enable_model_summary=false"]
    cli = LightningCLI(WithAS, args=args + [f"--trainer.{setting}" for setting in quiet])
    assert "delta: 0.2" in next(tmp_path.rglob("config.yaml")).read_text()
    loaded = WithAS.load_from_checkpoint(cli.trainer.checkpoint_callback.best_model_path, weights_only=False)
    assert (loaded.as_softmax_delta, loaded.hparams.lr) == (0.2, 0.5)
