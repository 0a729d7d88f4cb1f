"""A small convolutional encoder for small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Convolutions with batch normalisation, each halving the image but the first, then the mean over the positions.

    Shape:
        - input: ``(N, in_channels, H, W)``; output: ``(N, channels[-1])``.
    """

    def __init__(self, in_channels: int, channels: Sequence[int], dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = in_channels
        for index, next_width in enumerate(channels):
            layers += [
                nn.Conv2d(width, next_width, 3, stride=1 if index == 0 else 2, padding=1, bias=False),
                nn.BatchNorm2d(next_width),
                nn.ReLU(inplace=True),
            ]
            width = next_width
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout))
        self.out_features = width

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)
