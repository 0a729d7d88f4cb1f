"""A multi-layer perceptron for feature vectors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with layer normalisation, GELU and dropout: ``(N, in_features)`` to ``(N, widths[-1])``."""

    def __init__(self, in_features: int, widths: Sequence[int], dropout: float) -> None:
        super().__init__()
        if not widths:
            raise ValueError("widths must name at least one layer, got none")
        layers: list[nn.Module] = []
        size = in_features
        for width in widths:
            layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(dropout)]
            size = width
        self.layers = nn.Sequential(*layers)
        self.out_features = size

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)
