"""Mixed precision, compilation, no logger: options of the trainer, in real runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hydra.errors import InstantiationException
from torch._dynamo.utils import counters

from as_lightning.benchmark.commands.mistakes import is_mistake
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.train import train

SHORT = ("experiment=digits", "trainer.max_epochs=2", "trainer.limit_train_batches=10")
ONE = ("experiment=digits", "trainer.max_epochs=1", "trainer.limit_train_batches=3")
WHOLE_BATCHES = ("experiment=digits", "data.first=1024", "trainer.max_epochs=1")  # else compiled anew


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of the best checkpoint."""
    return torch.load(folder / "checkpoints" / "best.ckpt")["state_dict"]


def losses(result: Result) -> list[float]:
    return [evaluation["loss"] for evaluation in result.evaluations]


def test_mixed_precision_trains_as_full_precision_does_up_to_rounding(composed, tmp_path):
    full = train(composed(*SHORT, "method=as_speed", output="full"))
    mixed = train(composed(*SHORT, "method=as_speed", "trainer.precision=bf16-mixed", output="mixed"))
    assert losses(mixed) != losses(full)
    assert losses(mixed) == pytest.approx(losses(full), rel=0.05)
    assert weights(tmp_path / "mixed")["head.weight"].dtype == torch.float32


def test_a_compiled_encoder_trains_as_the_same_one_does_uncompiled(composed, tmp_path):
    plain = train(composed(*WHOLE_BATCHES, output="plain"))
    counters.clear()
    compiled = train(composed(*WHOLE_BATCHES, "compile={backend: aot_eager}", output="compiled"))
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["inductor"]  # the default, which would take half a minute here
    assert weights(tmp_path / "compiled").keys() == weights(tmp_path / "plain").keys()
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-4)
    assert compiled.metrics["accuracy"] == pytest.approx(plain.metrics["accuracy"], abs=0.01)


@pytest.mark.parametrize(
    ("logger", "files"), [("none", set()), ("csv", {"csv"}), ("tensorboard", {"events", "hparams.yaml"})]
)
def test_a_run_writes_the_logs_that_it_is_asked_for_and_no_others(composed, tmp_path, logger, files):
    train(composed(*ONE, f"logger={logger}"))
    written = {"events" if path.name.startswith("events.") else path.name for path in (tmp_path / "run").iterdir()}
    assert written - {"checkpoints", "predictions.npz", "result.json", "run.lock"} == files


def test_a_callback_that_is_set_to_null_is_left_out(composed, tmp_path):
    result = train(composed(*ONE, "callbacks.temperature_scaling=null"))
    assert "nll_scaled" not in result.metrics


@pytest.mark.parametrize(("debug", "batches"), [("fast_dev_run", 1), ("overfit", 60)])
def test_a_debug_setting_runs_the_batches_that_it_says(composed, debug, batches):
    assert train(composed("experiment=digits", f"debug={debug}", "logger=none")).optimizer_steps == batches


@pytest.mark.parametrize("logger", ["wandb", "mlflow"])
def test_a_logger_whose_package_is_missing_names_it(composed, monkeypatch, logger):
    monkeypatch.setitem(sys.modules, logger, None)
    with pytest.raises(InstantiationException, match=rf"ModuleNotFoundError.*pip install -U .{logger}>") as raised:
        train(composed("experiment=digits", f"logger={logger}"))
    assert is_mistake(raised.value)


def test_another_optimizer_of_the_group_trains_with_its_own_settings(composed, tmp_path):
    config = composed(*ONE, "optimizer=sgd", "optimizer.lr=0.03")
    train(config)
    (group,) = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt")["optimizer_states"][0]["param_groups"]
    assert (group["momentum"], group["weight_decay"], group["initial_lr"]) == (0.9, 1e-4, pytest.approx(0.03 / 25))
