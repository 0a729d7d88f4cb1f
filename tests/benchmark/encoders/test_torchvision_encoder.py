"""torchvision's classifiers as encoders: what is left of them, and weights from files."""

from __future__ import annotations

import urllib.request

import pytest
import torch
from torch import nn
from torchvision import models

from as_lightning.benchmark.encoders.torchvision_encoder import TorchvisionEncoder

FAMILIES = [
    ("resnet18", 64, 512, "fc"),
    ("mobilenet_v3_small", 64, 1024, "classifier.3"),
    ("efficientnet_b0", 64, 1280, "classifier.1"),
]


def encoder_of(name: str, weights: str | None = None, in_channels: int = 3) -> TorchvisionEncoder:
    return TorchvisionEncoder(name, weights, in_channels)


def forget_statistics(network: nn.Module) -> nn.Module:
    """Give the running statistics other values than they start with: a test that left them out would see it."""
    for name, buffer in network.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    return network.eval()


@pytest.mark.parametrize(("name", "size", "width", "head"), FAMILIES)
def test_the_encoder_is_the_classifier_without_its_last_layer(tmp_path, name, size, width, head):
    classifier = forget_statistics(models.get_model(name, weights=None, num_classes=7))
    torch.save(classifier.state_dict(), tmp_path / "weights.pth")
    encoder = encoder_of(name, weights=str(tmp_path / "weights.pth")).eval()
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        features = encoder(images)
        assert features.shape == (2, encoder.out_features) == (2, width)
        torch.testing.assert_close(classifier.get_submodule(head)(features), classifier(images))


def test_a_network_with_more_heads_gives_features_in_training_too():
    encoder = encoder_of("googlenet").train()
    features = encoder(torch.randn(2, 3, 64, 64))
    assert features.shape == (2, encoder.out_features) == (2, 1024)
    features.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


@pytest.mark.parametrize("in_channels", [1, 4])
def test_with_pretrained_weights_a_grey_image_gives_the_same_features_in_any_number_of_channels(tmp_path, in_channels):
    torch.save(forget_statistics(models.resnet18()).state_dict(), tmp_path / "weights.pth")
    path = str(tmp_path / "weights.pth")
    grey = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        expected = encoder_of("resnet18", path).eval()(grey.expand(-1, 3, -1, -1))
        features = encoder_of("resnet18", path, in_channels).eval()(grey.expand(-1, in_channels, -1, -1))
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["DEFAULT", "IMAGENET1K_V1", "ResNet18_Weights.IMAGENET1K_V1"])
def test_named_weights_are_torchvisions_own(tmp_path, monkeypatch, name):
    # a file where torch.hub keeps what it has downloaded is not downloaded again
    checkpoints = tmp_path / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    state = forget_statistics(models.resnet18()).state_dict()
    torch.save(state, checkpoints / models.ResNet18_Weights.IMAGENET1K_V1.url.rpartition("/")[2])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    encoder = encoder_of("resnet18", weights=name)
    for key, value in encoder.network.state_dict().items():
        assert torch.equal(value, state[key])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: [1, 2], "expected a state dict"),
        (lambda state: {"epoch": 3}, "expected a state dict"),
        (lambda state: {key: state[key] for key in state if key != "conv1.weight"}, "Missing key.*conv1.weight"),
        (lambda state: {**state, "more": torch.zeros(1)}, "Unexpected key.*more"),
        (lambda state: {**state, "conv1.weight": torch.zeros(1)}, "holds weights of another network: .*size mismatch"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, change, message):
    torch.save(change(models.resnet18().state_dict()), tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=rf"(?s)weights.pth.*{message}"):
        encoder_of("resnet18", weights=str(tmp_path / "weights.pth"))


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet18", "IMAGENET", r"no weights 'IMAGENET' for resnet18: expected one of IMAGENET1K_V1"),
        ("squeezenet1_1", None, "squeezenet1_1 has no linear layer"),
    ],
)
def test_unknown_weights_and_a_network_without_a_linear_layer_are_refused(name, weights, message):
    with pytest.raises(ValueError, match=message):
        encoder_of(name, weights)


def test_weights_that_cannot_be_downloaded_are_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for proxy in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(urllib.request, "_opener", None)  # it keeps the proxies of its first call, for other tests too
    with pytest.raises(RuntimeError, match=r"could not be downloaded: .*Download https://.*, and give the path"):
        encoder_of("resnet18", weights="DEFAULT")
