"""Any encoder of Hugging Face, pretrained or of a local checkpoint."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from as_lightning.benchmark.encoders.transformer_encoder import pool


class AutoModelEncoder(nn.Module):
    """A ``transformers.AutoModel`` by name or local path.

    Give the data the same tokeniser: ``data.tokenizer=<name>`` (``model=auto_model`` does).

    Args:
        name: a model of the Hugging Face hub, or a folder with a checkpoint.
        vocab_size: tokens of the data's vocabulary.
        max_length: the longest sequence.
        padding_id: the token that pads.
        pooling: ``"mean"`` over the tokens, ``"first"`` token, or ``"none"`` for token data.

    Shape:
        - input: ``(N, L)`` ``int64`` token ids; output: ``(N, hidden size)``, without pooling ``(N, L, hidden size)``.

    Raises:
        ImportError: if transformers is not installed.
        ValueError: if there is no such model, or its embeddings hold fewer tokens or positions than the data have.
    """

    def __init__(
        self,
        name: str,
        vocab_size: int,
        max_length: int,
        padding_id: int,
        pooling: Literal["mean", "first", "none"],
    ) -> None:
        super().__init__()
        try:
            from transformers import AutoModel
        except ImportError as error:
            raise ImportError('model=auto_model needs transformers: pip install "as-lightning[pretrained]"') from error
        try:
            self.model = AutoModel.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise ValueError(f"model.name={name!r} is no Hugging Face model or local checkpoint: {error}") from None
        config = self.model.config
        if vocab_size > config.vocab_size:
            raise ValueError(
                f"the data have {vocab_size} tokens, {name!r} knows {config.vocab_size}: set "
                f"data.tokenizer={name} so that both use the same"
            )
        positions = getattr(config, "max_position_embeddings", None)
        embedding = getattr(getattr(self.model, "embeddings", None), "position_embeddings", None)
        unused = getattr(embedding, "padding_idx", None)
        if (
            positions is not None and unused is not None
        ):  # RoBERTa and its kind count positions from behind the padding's
            positions -= unused + 1
        if positions is not None and max_length > positions:
            raise ValueError(f"data.max_length is {max_length}, {name!r} has {positions} positions")
        self.model.train()  # from_pretrained leaves it in eval mode, without dropout
        self.padding_id, self.pooling = padding_id, pooling
        self.out_features = int(config.hidden_size)

    def forward(self, token_ids: Tensor) -> Tensor:
        present = token_ids != self.padding_id
        hidden = self.model(input_ids=token_ids, attention_mask=present.long()).last_hidden_state
        return pool(hidden, present, self.pooling)
