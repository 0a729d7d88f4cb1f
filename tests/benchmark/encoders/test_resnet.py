"""Residual networks: the stems, and the widths that they say they have."""

from __future__ import annotations

import pytest
import torch
from harness.configured_encoder import configured_encoder

from as_lightning.benchmark.encoders.torchvision_encoder import TorchvisionEncoder


def encoder_of(**settings) -> TorchvisionEncoder:
    return configured_encoder("resnet18", **({"in_channels": 3} | settings))


def test_resnet18_for_cifar_has_the_known_number_of_parameters():
    # 11,173,962 with a linear layer of 10 classes, as github.com/kuangliu/pytorch-cifar counts its ResNet18
    assert sum(parameter.numel() for parameter in encoder_of().parameters()) == 11_173_962 - (512 * 10 + 10)


@pytest.mark.parametrize(("stem", "size"), [("cifar", 32), ("imagenet", 64)])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_features_have_the_width_that_is_told_and_all_parameters_learn(stem, size, in_channels):
    encoder = encoder_of(in_channels=in_channels, stem=stem)
    features = encoder(torch.randn(2, in_channels, size, size))
    assert features.shape == (2, encoder.out_features) == (2, 512)
    features.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())


@pytest.mark.parametrize(("stem", "positions"), [("cifar", 4), ("imagenet", 1)])
def test_the_last_features_are_an_eighth_or_a_thirty_second_of_the_image(stem, positions):
    encoder = encoder_of(stem=stem).eval()
    shapes = []
    encoder.network.layer4.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    encoder(torch.randn(1, 3, 32, 32))
    assert shapes == [(1, 512, positions, positions)]


def test_the_new_first_convolution_starts_like_the_others():
    # Kaiming's normal distribution of the outputs: variance 2 / (64 channels * 9 weights)
    assert encoder_of().network.conv1.weight.var().item() == pytest.approx(2 / (64 * 9), rel=0.15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stem": "mnist"}, "stem must be 'cifar' or 'imagenet', got 'mnist'"),
        ({"name": "mobilenet_v3_small"}, "is for a residual network with weights=None, got mobilenet_v3_small"),
        ({"name": "resnet19"}, "no classifier 'resnet19'; close to it: resnet18"),
    ],
)
def test_a_stem_or_a_network_that_there_is_not_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        encoder_of(**settings)
