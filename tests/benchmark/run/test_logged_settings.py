"""What TensorBoard's tab HParams shows of a run, and the lines at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from as_lightning.benchmark.run.summary import summary
from as_lightning.benchmark.run.train import train

SHORT = ("experiment=digits", "trainer.max_epochs=1", "trainer.limit_train_batches=6", "optimizer.lr=1e-2")


def hparams_of(folder: Path) -> dict[str, object]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    content = accumulator.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    values = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}


def test_the_tab_has_method_margin_rate_budget_and_score_of_a_run_and_its_summary_the_score(composed, tmp_path):
    result = train(composed(*SHORT, "method=as_speed", "+comparison={budget:0.25}"))
    folder = tmp_path / "run"
    shown = hparams_of(folder)
    assert shown == {"method": "as_speed", "delta": 0.1, "lr": 0.01, "seed": 0.0, "budget": 0.25}
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    (score,) = accumulator.Scalars("hparams/test_accuracy")
    assert score.value == pytest.approx(result.metrics["accuracy"])
    (masked, *_), last = accumulator.Scalars("masking/sample_ratio"), accumulator.Scalars("masking/sample_ratio")[-1]
    assert (masked.step, last.step) == (0, result.optimizer_steps - 1)
    lines = dict(summary(result, folder))
    assert lines["test accuracy"] == f"{result.metrics['accuracy']:.4f}"
    assert lines["masked samples"].endswith("% in the last epoch")
    assert (folder / "result.json").as_posix() in lines["files"]
    assert lines["curves"] == f"tensorboard --logdir {folder}"


def test_a_run_without_a_margin_is_shown_with_that_of_plain_cross_entropy(composed, tmp_path):
    train(composed(*SHORT, "method=softmax"))
    assert hparams_of(tmp_path / "run")["delta"] == 1.0


def test_a_run_whose_optimizer_has_no_rate_shows_none(composed, tmp_path):
    train(composed(*SHORT[:-1], "~optimizer.lr", "lr_scheduler=null"))
    assert "lr" not in hparams_of(tmp_path / "run")
