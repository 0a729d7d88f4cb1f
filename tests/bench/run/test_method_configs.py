"""Every file in ``conf/method`` is a complete method: it trains."""

import functools
import math

import pytest
import torch
from harness.scripted_masking import quiet_trainer
from hydra import compose, initialize_config_dir
from lightning.pytorch.callbacks import LambdaCallback
from omegaconf import DictConfig

from as_lightning.bench.data.digits import Digits
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.settings import names
from as_lightning.bench.run.train import configured, made_module, read_data


@functools.cache
def composed(method: str) -> DictConfig:
    """The app's configuration, composed once for all the tests of a method (they only read it)."""
    with initialize_config_dir(config_dir=str(config_dir()), version_base="1.3"):
        return compose("train", [f"method={method}", "experiment=digits", "lr_scheduler=null"])


@pytest.fixture(scope="module")
def digits() -> Digits:
    return read_data(composed("softmax"))


@pytest.mark.parametrize("method", names("method"))
def test_a_method_has_the_name_of_its_file_and_learns_a_batch_of_digits(method, digits):
    config, losses = composed(method), []
    assert config.method.name == method
    torch.manual_seed(0)
    note = LambdaCallback(
        on_train_batch_end=lambda trainer, *_: losses.append(trainer.callback_metrics["train/loss"])
    )
    few = {"max_epochs": 12, "overfit_batches": 1, "limit_val_batches": 1}
    callbacks = [note, *configured(config.method.callbacks)]
    trainer = quiet_trainer(check_val_every_n_epoch=12, callbacks=callbacks, **few)
    trainer.fit(made_module(config, digits), digits)
    assert len(losses) == 12
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < 0.9 * losses[0]
    for name in ("loss", "accuracy", "f1_macro"):
        assert math.isfinite(trainer.callback_metrics[f"val/{name}"])
