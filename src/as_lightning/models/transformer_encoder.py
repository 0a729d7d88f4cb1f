"""A small transformer encoder for text, trained from scratch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TextTransformer(nn.Module):
    """Token and position embeddings, pre-norm transformer layers, the mean over the tokens.

    Args:
        vocab_size: tokens of the vocabulary; token 0 is padding.
        max_length: the longest sequence.
        width: size of the embeddings, a multiple of ``heads``.
        layers: transformer layers.
        heads: attention heads.
        dropout: dropout in the layers and on the embeddings, in [0, 1).

    Shape:
        - input: ``(N, L)`` ``int64`` token ids, ``L <= max_length``; output: ``(N, width)``.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int = 64,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width, padding_idx=0)
        self.position_embedding = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.position_embedding, std=0.02)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width,
            heads,
            dim_feedforward=4 * width,
            dropout=dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.out_features = width

    def forward(self, token_ids: Tensor) -> Tensor:
        padding = token_ids == 0
        embedded = self.token_embedding(token_ids) + self.position_embedding[: token_ids.size(1)]
        hidden = self.encoder(self.dropout(embedded), src_key_padding_mask=padding)
        present = (~padding).unsqueeze(-1).to(hidden.dtype)
        return (hidden * present).sum(1) / present.sum(1).clamp(min=1.0)
