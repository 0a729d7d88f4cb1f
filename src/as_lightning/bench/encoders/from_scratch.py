"""Small encoders that are trained from scratch: of images, spectrograms and texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_choice


class SmallCNN(nn.Module):
    """3x3 convolutions with batch normalisation, then the means of a grid of ``rows`` by
    ``columns``: of spectrograms the rows keep the pitch, and one column the sound at any time.

    With ``pooled`` each is followed by max pooling, else each but the first has a stride of 2.
    """

    def __init__(
        self,
        in_channels: int,
        channels: Sequence[int],
        dropout: float,
        rows: int,
        columns: int,
        pooled: bool,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        stride = 1
        for previous, width in pairwise([in_channels, *channels]):
            convolution = nn.Conv2d(previous, width, 3, stride=stride, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            if pooled:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            else:
                stride = 2
        self.layers, self.dropout = nn.Sequential(*layers), nn.Dropout(dropout)
        self.rows, self.columns = rows, columns
        self.out_features = channels[-1] * rows * columns

    def forward(self, images: Tensor) -> Tensor:
        maps = self.layers(images)
        if not (1 <= self.rows <= maps.size(-2) and 1 <= self.columns <= maps.size(-1)):
            raise ValueError(
                f"model.rows={self.rows} by model.columns={self.columns}: the layers leave "
                f"{maps.size(-2)} by {maps.size(-1)}: set fewer, or fewer model.channels"
            )
        # not adaptive pooling: its backward pass on a GPU is not deterministic
        means = []
        for band in maps.tensor_split(self.rows, dim=-2):
            for cell in band.tensor_split(self.columns, dim=-1):
                means.append(cell.mean(dim=(-2, -1)))
        return self.dropout(torch.cat(means, dim=-1))


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
    """Token and position embeddings, pre-norm layers, `pool`; ``padding_id`` pads at the end."""

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        pooling: Literal["mean", "first", "none"],
        padding_id: int,
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
        self.padding_id, self.pooling, self.out_features = padding_id, pooling, width

    def forward(self, token_ids: Tensor) -> Tensor:
        present = token_ids != self.padding_id
        hidden = self.encoder(self.embedded(token_ids), src_key_padding_mask=~present)
        return pool(hidden, present, self.pooling)

    def embedded(self, token_ids: Tensor) -> Tensor:
        positions = self.position_embedding[: token_ids.size(1)]
        return self.dropout(self.token_embedding(token_ids) + positions)
