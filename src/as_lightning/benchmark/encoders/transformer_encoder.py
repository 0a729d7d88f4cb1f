"""A small transformer encoder for text, trained from scratch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


def pool(hidden: Tensor, present: Tensor, pooling: str) -> Tensor:
    """Features of a text from those of its tokens, ``(N, L, d)``.

    They are the ``"mean"``, the ``"first"``, or all with ``"none"``. ``present``, boolean ``(N, L)``, says which tokens
    are no padding. Raises a ValueError for another ``pooling``.
    """
    if pooling == "none":
        return hidden
    if pooling == "first":
        return hidden[:, 0]
    if pooling != "mean":
        raise ValueError(f"pooling must be 'mean', 'first' or 'none', got {pooling!r}")
    weight = present.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class TextTransformer(nn.Module):
    """Token and position embeddings, pre-norm transformer layers, the mean over the tokens.

    Args:
        vocab_size: tokens of the vocabulary; ``max_length``: the longest sequence.
        width: size of the embeddings, a multiple of ``heads``.
        layers: transformer layers; ``dropout``: in them and on the embeddings.
        pooling: ``"mean"`` over the tokens, ``"first"`` token, or ``"none"`` for token data.
        causal: a token sees itself and the tokens before it, and none after it.
        padding_id: the token that pads, after a text's own tokens; None where no token pads.

    Shape:
        - input: ``(N, L)`` ``int64`` token ids; output: ``(N, width)``, or ``(N, L, width)`` without pooling.
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
            width,
            heads,
            dim_feedforward=4 * width,
            dropout=dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.padding_id, self.pooling, self.causal = padding_id, pooling, causal
        self.out_features = width

    def forward(self, token_ids: Tensor) -> Tensor:
        embedded = self.token_embedding(token_ids) + self.position_embedding[: token_ids.size(1)]
        present = (
            torch.ones_like(token_ids, dtype=torch.bool) if self.padding_id is None else token_ids != self.padding_id
        )
        hidden = self.encoder(
            self.dropout(embedded),
            mask=_later_tokens(token_ids) if self.causal else None,
            src_key_padding_mask=None if self.padding_id is None else ~present,
            is_causal=self.causal,
        )
        return pool(hidden, present, self.pooling)


def _later_tokens(token_ids: Tensor) -> Tensor:
    """Which tokens (columns) come after a token (rows): what a causal network must not see."""
    length = token_ids.size(1)
    return torch.ones(length, length, dtype=torch.bool, device=token_ids.device).triu(1)
