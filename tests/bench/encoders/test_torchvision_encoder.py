"""torchvision's classifiers as encoders: what is left of them, and pretrained weights."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

from as_lightning.bench.encoders.torchvision_encoder import TorchvisionEncoder

FAMILIES = [
    ("resnet18", 64, 512, "fc"),
    ("mobilenet_v3_small", 64, 1024, "classifier.3"),
    ("efficientnet_b0", 64, 1280, "classifier.1"),
]


def encoder_of(name: str = "resnet18", **settings) -> TorchvisionEncoder:
    return TorchvisionEncoder(name, **({"weights": None, "in_channels": 3} | settings))


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch) -> dict[str, nn.Module]:
    """Networks by name, whose weights lie where torch.hub keeps what it has downloaded."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    networks = {}
    for name, _, _, _ in FAMILIES:
        networks[name] = models.get_model(name, weights=None).eval()
        for key, buffer in networks[name].named_buffers():
            if key.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.5, 1.5)  # a test that left the statistics out would see it
        url = models.get_model_weights(name).IMAGENET1K_V1.url
        torch.save(networks[name].state_dict(), folder / url.rpartition("/")[2])
    return networks


@pytest.mark.parametrize(("name", "size", "width", "head"), FAMILIES)
def test_the_encoder_is_the_classifier_without_its_last_layer(downloaded, name, size, width, head):
    encoder = encoder_of(name, weights="IMAGENET1K_V1").eval()
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        features = encoder(images)
        assert features.shape == (2, encoder.out_features) == (2, width)
        torch.testing.assert_close(
            downloaded[name].get_submodule(head)(features), downloaded[name](images)
        )
        grey = images[:, :1]
        assert torch.equal(encoder(grey), encoder(grey.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "IMAGENET"}, "weights must be"),
        ({"name": "squeezenet1_1"}, "name must be"),
        ({"name": "googlenet"}, "name must be"),
        ({"trainable_layers": 2}, "model.trainable_layers must be 0"),
    ],
)
def test_networks_weights_and_stages_that_there_are_not_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        encoder_of(**settings)


@pytest.mark.parametrize("in_channels", [1, 3])
def test_all_weights_learn(in_channels):
    encoder = encoder_of(in_channels=in_channels)
    encoder(torch.randn(2, in_channels, 64, 64)).square().sum().backward()
    assert all(parameter.grad.any() for parameter in encoder.parameters())


def test_a_frozen_network_keeps_its_statistics_and_gives_the_features_of_the_whole():
    torch.manual_seed(0)
    whole = encoder_of().eval()
    torch.manual_seed(0)
    frozen = encoder_of(trainable_layers=0).train()
    images = torch.randn(2, 3, 32, 32)
    before = {key: value.clone() for key, value in frozen.network.state_dict().items()}
    with torch.no_grad():
        assert torch.equal(frozen(images), whole(images))
    after = frozen.network.state_dict()
    assert all(torch.equal(value, before[key]) for key, value in after.items())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
