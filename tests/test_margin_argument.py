"""Whose ``delta`` is it: the margin, or the module's own argument; in Python and on the command
line of Lightning.
"""

import lightning.pytorch as pl
import pytest
import torch
from harness.own_modules import WithCriterion
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import ASSoftmaxMixin


class Existing(WithCriterion):
    def train_dataloader(self):
        return DataLoader(
            TensorDataset(torch.ones(4, 8), torch.zeros(4, dtype=torch.int64)), batch_size=2
        )


class Huber(Existing):
    """Has a delta of its own, as a Huber loss does."""

    def __init__(self, hidden: int = 4, delta: float = 5.0, lr: float = 0.5) -> None:
        super().__init__(lr, hidden)
        self.huber = delta


class PassesOn(Huber):
    def __init__(self, *args, extra: int = 0, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.extra = extra


class ExistingAS(ASSoftmaxMixin, Existing):
    as_softmax_replaces = "criterion"


class HuberAS(ASSoftmaxMixin, Huber):
    as_softmax_replaces = "criterion"
    as_softmax_delta = 0.3


class PassesOnAS(ASSoftmaxMixin, PassesOn):
    as_softmax_delta = 0.3


@pytest.mark.filterwarnings("ignore:as_softmax_delta= is deprecated")
@pytest.mark.parametrize("name", ["delta", "as_softmax_delta"])
def test_both_names_set_the_margin_of_a_module_without_a_delta_of_its_own(name):
    module = ExistingAS(**{name: 0.3})
    assert module.as_softmax_delta == 0.3
    assert dict(module.hparams) == {"lr": 0.01, "hidden": 16, "delta": 0.3, "delta_warmup": None}
    assert ExistingAS(**{name: None}).hparams.delta == 0.1


class OneConfig(pl.LightningModule):
    """All its arguments are in one configuration, as with Hydra."""

    def __init__(self, config: dict[str, float]) -> None:
        super().__init__()
        self.save_hyperparameters(config)
        self.criterion = torch.nn.CrossEntropyLoss()


class OneConfigAS(ASSoftmaxMixin, OneConfig):
    as_softmax_replaces = "criterion"


@pytest.mark.parametrize("own", [1.5, 0.1, None])
@pytest.mark.parametrize("margin", [None, 0.3])
def test_a_delta_inside_a_modules_configuration_is_its_own(own, margin):
    module = OneConfigAS({"delta": own}, delta=margin)
    assert module.hparams.delta == own
    module.as_softmax_delta = 0.2
    assert (module.hparams.delta, module.as_softmax_delta) == (own, 0.2)


@pytest.mark.parametrize("cls", [HuberAS, PassesOnAS])
@pytest.mark.parametrize(
    ("args", "arguments", "huber"),
    [((), {"delta": 2.0}, 2.0), ((), {}, 5.0), ((), {"delta": None}, 5.0), ((4, 7.0), {}, 7.0)],
    ids=["by name", "its default", "None stands for what is not given", "by position"],
)
def test_a_module_with_a_delta_of_its_own_keeps_it_and_has_its_margin_from_the_class(
    cls, args, arguments, huber
):
    module = cls(*args, **arguments)
    assert (module.huber, module.as_softmax_delta) == (huber, 0.3)
    module.as_softmax_delta = 0.2
    assert (module.hparams.delta, module.as_softmax_delta) == (huber, 0.2)


@pytest.mark.parametrize("next_class", [Huber, PassesOn])
def test_a_delta_that_could_be_the_margin_is_refused_where_the_class_is_made_with_the_way_out(
    next_class,
):
    with pytest.raises(
        TypeError,
        match=r"Huber.__init__ has an argument delta of its own.*`as_softmax_delta = 0.1`",
    ):
        type("Unclear", (ASSoftmaxMixin, next_class), {})
    with pytest.raises(ValueError, match=r"delta .* \[0, 1\], got"):
        type("OutOfRange", (ASSoftmaxMixin, next_class), {"as_softmax_delta": 1.5})


@pytest.mark.parametrize("cls", [HuberAS, PassesOnAS])
def test_a_checkpoint_loads_back_with_both_deltas(cls, tmp_path):
    trainer = pl.Trainer(logger=False, accelerator="cpu", default_root_dir=tmp_path)
    trainer.strategy.connect(cls(delta=2.0))
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = cls.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert (loaded.huber, loaded.as_softmax_delta) == (2.0, 0.3)


@pytest.mark.filterwarnings("ignore:as_softmax_delta= is deprecated")
def test_a_checkpoint_of_0_3_loads_with_its_margin():
    assert (
        HuberAS(
            hidden=4, delta=2.0, lr=0.5, as_softmax_delta=0.7, delta_warmup=None
        ).as_softmax_delta
        == 0.7
    )


def test_setting_the_margin_changes_the_hyperparameter_that_holds_it():
    module = ExistingAS(delta=0.3)
    module.as_softmax_delta = 0.4
    assert module.hparams.delta == 0.4


@pytest.mark.parametrize("delta", [-0.1, 1.5])
def test_a_margin_outside_zero_and_one_is_refused_when_it_is_set(delta):
    module = ExistingAS()
    with pytest.raises(ValueError, match=r"delta .* \[0, 1\], got"):
        module.as_softmax_delta = delta
    assert module.as_softmax_delta == 0.1


@pytest.fixture
def command_line(monkeypatch):
    """Makes Lightning's command line of a module."""
    pytest.importorskip(
        "jsonargparse",
        reason="LightningCLI needs jsonargparse: pip install jsonargparse[signatures]",
    )
    from lightning.pytorch.cli import LightningCLI

    monkeypatch.setattr("sys.argv", ["train.py"])
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "max_epochs": 1,
    }

    def made(cls, *args: str, run: bool = False) -> LightningCLI:
        return LightningCLI(
            cls, args=list(args), trainer_defaults=quiet, run=run, seed_everything_default=1
        )

    return made


@pytest.mark.parametrize(
    ("cls", "args", "expected"),
    [
        (ExistingAS, [], (0.1, 0.01, None)),
        (ExistingAS, ["delta=0.2", "lr=0.25", "delta_warmup.batches=3"], (0.2, 0.25, None)),
        (HuberAS, [], (0.3, 0.5, 5.0)),
        (HuberAS, ["delta=2"], (0.3, 0.5, 2.0)),
    ],
)
def test_the_command_line_sets_each_argument_and_what_it_prints_makes_the_same_module_again(
    command_line, cls, args, expected, tmp_path, capsys
):
    args = [f"--model.{argument}" for argument in args]
    with pytest.raises(SystemExit):
        command_line(cls, *args, "--print_config")
    config = tmp_path / "config.yaml"
    config.write_text(capsys.readouterr().out)
    module, again = command_line(cls, *args).model, command_line(cls, f"--config={config}").model
    assert again.hparams == module.hparams
    for made in (module, again):
        assert (made.as_softmax_delta, made.hparams.lr, getattr(made, "huber", None)) == expected
    assert (getattr(module.hparams, "delta_warmup", None) or {"batches": 3})["batches"] == 3


def test_a_run_saves_its_configuration_and_a_checkpoint_that_loads_back(command_line, tmp_path):
    folder = f"--trainer.default_root_dir={tmp_path}"
    cli = command_line(ExistingAS, "fit", "--model.delta=0.2", folder, run=True)
    assert "delta: 0.2" in next(tmp_path.rglob("config.yaml")).read_text()
    loaded = ExistingAS.load_from_checkpoint(
        cli.trainer.checkpoint_callback.best_model_path, weights_only=False
    )
    assert (loaded.as_softmax_delta, loaded.hparams.lr) == (0.2, 0.01)
