"""Runs of the app, composed as the command line does, and made-up results for the statistics."""

import resource
from contextlib import contextmanager

import pytest
from hydra import compose, initialize_config_dir

from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.result import Result


@pytest.fixture
def composed(tmp_path):
    """Compose a configuration from overrides; its run writes below ``tmp_path``."""

    def compose_config(*overrides, output="run"):
        quiet = ["trainer.enable_progress_bar=false", f"output_dir={tmp_path / output}"]
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            return compose("train", overrides=[*overrides, *quiet])

    return compose_config


@pytest.fixture
def full_disk():
    """Within it no file of this process grows beyond 10 kB, as on a full disk."""

    @contextmanager
    def limited():
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


@pytest.fixture(scope="session")
def result():
    """Make a result of given accuracy (or other score), for the report's arithmetic."""

    def make(candidate, seed, score, *, name="set", seconds=10.0, score_name="accuracy", **fields):
        evaluations = [
            {
                "epoch": epoch,
                "step": epoch,
                "train_seconds": seconds * (epoch + 1) / 4,
                "loss": 1.0,
                "score": value,
            }
            for epoch, value in enumerate([0.25 * score, 0.5 * score, 0.99 * score, score])
        ]
        content = {
            "score": score_name,
            "metrics": {
                score_name: score,
                "f1_macro": score,
                "calibration_error": 0.1,
                "loss": 1.0,
            },
            "epoch_seconds": [seconds / 4] * 4,
            "optimizer_steps": 4,
            "session": "today",
            "versions": {"torch": "1"},
            "machine": {"processor": "abacus", "cores": 2},
            "evaluations": evaluations,
        }
        return Result(
            name=name, candidate=candidate, seed=seed, train_seconds=seconds, **(content | fields)
        )

    return make
