"""Small encoders that are trained from scratch: of images, spectrograms and texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_choice


def _convolution(in_channels: int, out_channels: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True)]


def _means(maps: Tensor, rows: int, columns: int) -> Tensor:
    """Return the means ``(N, C * rows * columns)`` of a grid's cells over maps ``(N, C, H, W)``."""
    if not (1 <= rows <= maps.size(-2) and 1 <= columns <= maps.size(-1)):
        raise ValueError(
            f"{maps.size(-2)} rows and {maps.size(-1)} columns are left after the layers, which "
            f"cannot be cut into {rows} by {columns} cells: set fewer channels, fewer cells "
            "(bands, but at least 1) or more mel bands"
        )
    # not adaptive pooling: its backward pass on a GPU is not deterministic
    bands = [band.tensor_split(columns, dim=-1) for band in maps.tensor_split(rows, dim=-2)]
    return torch.cat([cell.mean(dim=(-2, -1)) for band in bands for cell in band], dim=-1)


class SmallCNN(nn.Module):
    """Convolutions with batch normalisation, each halving the image but the first, then means.

    A mean is over a cell of a grid of ``cells`` by ``cells``: with 1 place does not matter.

    Shape:
        - input: ``(N, in_channels, H, W)``; output: ``(N, channels[-1] * cells**2)``.
    """

    def __init__(
        self, in_channels: int, channels: Sequence[int], dropout: float, cells: int
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (previous, width) in enumerate(pairwise([in_channels, *channels])):
            layers += _convolution(previous, width, stride=1 if index == 0 else 2)
        self.layers, self.dropout = nn.Sequential(*layers), nn.Dropout(dropout)
        self.cells, self.out_features = cells, channels[-1] * cells**2

    def forward(self, images: Tensor) -> Tensor:
        return self.dropout(_means(self.layers(images), self.cells, self.cells))


class AudioCNN(nn.Module):
    """Convolutions with batch normalisation and pooling, then the mean over time in each band.

    A sound may come at any time, but its pitch matters: the features, with ``dropout``, keep the
    ``bands`` apart.

    Shape:
        - input: ``(N, in_channels, n_mels, frames)``; output: ``(N, channels[-1] * bands)``.
    """

    def __init__(
        self, in_channels: int, channels: Sequence[int], bands: int, dropout: float
    ) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for previous, width in pairwise([in_channels, *channels]):
            blocks += [*_convolution(previous, width), nn.MaxPool2d(2, ceil_mode=True)]
        self.blocks, self.dropout = nn.Sequential(*blocks), nn.Dropout(dropout)
        self.bands, self.out_features = bands, channels[-1] * bands

    def forward(self, spectrograms: Tensor) -> Tensor:
        return self.dropout(_means(self.blocks(spectrograms), self.bands, 1))


def pool(hidden: Tensor, present: Tensor, pooling: str) -> Tensor:
    """The ``"mean"`` of the tokens' features ``(N, L, d)`` where ``present`` (boolean ``(N, L)``),
    the ``"first"``, or all with ``"none"``; a ValueError for another ``pooling``.
    """
    if check_choice("pooling", pooling, ("mean", "first", "none")) == "none":
        return hidden
    if pooling == "first":
        return hidden[:, 0]
    weight = present.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class TextTransformer(nn.Module):
    """Token and position embeddings, pre-norm transformer layers, and `pool`.

    ``width`` is a multiple of ``heads``; ``causal``: a token sees itself and those before it;
    ``padding_id`` pads after a text's own tokens, None where no token does.

    Shape:
        - input: ``(N, L)`` ``int64`` token ids; output: ``(N, width)``, or ``(N, L, width)``
          without pooling.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        pooling: Literal["mean", "first", "none"],
        causal: bool,
        padding_id: int | None = None,
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width, padding_idx=padding_id)
        self.position_embedding = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.position_embedding, std=0.02)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.padding_id, self.pooling, self.causal = padding_id, pooling, causal
        self.out_features = width

    def forward(self, token_ids: Tensor) -> Tensor:
        embedded = self.token_embedding(token_ids) + self.position_embedding[: token_ids.size(1)]
        present, padding, later = torch.ones_like(token_ids, dtype=torch.bool), None, None
        if self.causal:  # which tokens (columns) come after a token (rows)
            later = present[:1].expand(token_ids.size(1), -1).triu(1)
        if self.padding_id is not None:
            present = token_ids != self.padding_id
            padding = ~present
        hidden = self.encoder(
            self.dropout(embedded), mask=later, src_key_padding_mask=padding, is_causal=self.causal
        )
        return pool(hidden, present, self.pooling)
