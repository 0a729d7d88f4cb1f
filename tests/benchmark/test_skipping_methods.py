"""The methods that skip samples, through the app."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from as_lightning.benchmark.run.config_dir import config_dir
from as_lightning.benchmark.run.random_skip import random_skipping
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.train import train


def run(folder: Path, method: str, *overrides: str) -> Result:
    with initialize_config_dir(config_dir=str(config_dir()), version_base="1.3"):
        settings = [f"method={method}", "experiment=digits", "trainer.max_epochs=5", "logger=none", *overrides]
        settings += ["trainer.enable_progress_bar=false", "optimizer.lr=0.01"]
        config = compose("train", [*settings, f"output_dir={folder}"], return_hydra_config=False)
    OmegaConf.resolve(config)
    return train(config)


@pytest.fixture(scope="module")
def skipping_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("skipping") / "run"
    run(folder, "softmax_skip")
    return folder


def test_a_run_that_skips_writes_what_it_took_of_each_epoch(skipping_run: Path) -> None:
    result = Result.read(skipping_run / "result.json")
    assert [epoch["epoch"] for epoch in result.skipping] == [0, 1, 2, 3, 4]
    assert [epoch["visits"] for epoch in result.skipping] == [epoch["samples"] for epoch in result.masking]
    assert min(epoch["awake"] for epoch in result.skipping) < 0.8 * result.skipping[0]["samples"]
    assert len(result.evaluations) == 5
    assert result.metrics["accuracy"] > 0.8


def test_random_skip_takes_as_many_samples_of_each_epoch_as_the_run_it_is_like(
    skipping_run: Path, tmp_path: Path
) -> None:
    control = run(tmp_path / "control", "random_skip", f"method.like={skipping_run}")
    skipping = Result.read(skipping_run / "result.json").skipping
    assert [epoch["awake"] for epoch in control.skipping] == [epoch["awake"] for epoch in skipping]


def test_a_run_that_skips_nothing_is_no_pattern(tmp_path: Path) -> None:
    run(tmp_path / "plain", "softmax", "trainer.max_epochs=1")
    with pytest.raises(ValueError, match="is a run that skips no samples"):
        random_skipping([1.0], like=str(tmp_path / "plain"))
    with pytest.raises(ValueError, match=r"holds no result\.json"):
        random_skipping([1.0], like=str(tmp_path))
