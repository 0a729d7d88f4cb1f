"""A small convolutional encoder for spectrograms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AudioCNN(nn.Module):
    """Convolutions with batch normalisation and pooling, then the mean over time in each of a few bands of frequency.

    A sound may come at any time, but its pitch matters: the features keep the ``bands`` apart. ``dropout`` is on them.

    Shape:
        - input: ``(N, in_channels, n_mels, frames)``; output: ``(N, channels[-1] * bands)``.

    Raises:
        ValueError: if there are fewer rows than bands after the pooling, or the input is no spectrogram.
    """

    def __init__(self, in_channels: int, channels: Sequence[int], bands: int, dropout: float) -> None:
        super().__init__()
        if bands < 1:
            raise ValueError(f"bands must be at least 1, got {bands}")
        blocks: list[nn.Module] = []
        width = in_channels
        for next_width in channels:
            blocks += [
                nn.Conv2d(width, next_width, 3, padding=1, bias=False),
                nn.BatchNorm2d(next_width),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2, ceil_mode=True),
            ]
            width = next_width
        self.blocks, self.dropout = nn.Sequential(*blocks), nn.Dropout(dropout)
        self.bands, self.out_features = bands, width * bands

    def forward(self, spectrograms: Tensor) -> Tensor:
        if spectrograms.dim() != 4:
            raise ValueError(
                f"expected spectrograms of shape (N, in_channels, n_mels, frames), got {tuple(spectrograms.shape)}"
            )
        rows = self.blocks(spectrograms).mean(dim=-1)
        if rows.size(-1) < self.bands:
            raise ValueError(
                f"{rows.size(-1)} rows of frequency are left after the pooling, fewer than bands={self.bands}: more "
                "mel bands or fewer blocks are needed"
            )
        # not adaptive pooling: its backward pass on a GPU is not deterministic
        bands = [band.mean(dim=-1) for band in rows.tensor_split(self.bands, dim=-1)]
        return self.dropout(torch.cat(bands, dim=-1))
