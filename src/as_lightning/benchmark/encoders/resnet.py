"""Residual networks, with the first layers that small images need."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from as_lightning.benchmark.packages import loading

with loading("torchvision"):
    from torchvision import models


class ResNet(nn.Module):
    """torchvision's residual networks without their last layer, from scratch.

    Args:
        in_channels: colour channels of the images.
        name: as torchvision calls it, e.g. ``"resnet18"``, ``"resnext50_32x4d"``, ``"wide_resnet50_2"``.
        stem: ``"cifar"`` for images of about 32x32: a 3x3 convolution of stride 1 and no pooling, so that the last
            features are an eighth of the image's size; ``"imagenet"`` for those of about 224x224, as published: a 7x7
            convolution of stride 2 and pooling, a thirty-second.

    Attributes:
        out_features: width of the features, e.g. 512 of ``resnet18``.

    Shape:
        - input: ``(N, in_channels, H, W)``; output: ``(N, out_features)``.

    Raises:
        ValueError: if torchvision has no such residual network, or there is no such stem.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016 (arXiv 1512.03385). The stem is that of
    its section 4.2, in front of the network of its section 4.1, as is usual on CIFAR.
    """

    def __init__(self, in_channels: int, name: str, stem: Literal["cifar", "imagenet"]) -> None:
        super().__init__()
        known = [
            listed
            for listed in models.list_models(module=models)
            if models.get_model_builder(listed).__module__ == models.resnet.__name__
        ]
        if name not in known:
            raise ValueError(f"expected one of torchvision's residual networks, {', '.join(known)}, got {name!r}")
        if stem not in ("cifar", "imagenet"):
            raise ValueError(f"stem must be 'cifar' or 'imagenet', got {stem!r}")
        network = models.get_model(name, weights=None)
        width = network.conv1.out_channels
        if stem == "cifar":
            network.conv1 = nn.Conv2d(in_channels, width, 3, stride=1, padding=1, bias=False)
            network.maxpool = nn.Identity()
        elif in_channels != 3:
            network.conv1 = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
        # as torchvision initialises the others
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.out_features: int = network.fc.in_features
        network.fc = nn.Identity()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)
