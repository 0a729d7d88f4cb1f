"""Any encoder of Hugging Face, trained whole or in its last layers."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from as_lightning.bench.encoders.from_scratch import pool
from as_lightning.bench.encoders.frozen import Cache, FrozenEncoder


class AutoModelEncoder(FrozenEncoder):
    """A ``transformers.AutoModel`` by name or local path.

    Give the data the same tokeniser: ``data.tokenizer=<name>`` (``model=auto_model`` does).

    With ``trainable_layers=k`` the embeddings and all layers but the last ``k`` are frozen. The
    settings are described in ``conf/model/auto_model.yaml``. Pickled weights can run any code.

    Shape:
        - input: ``(N, L)`` ``int64``; output: ``(N, d)``, without pooling ``(N, L, d)``.

    A ValueError refuses pickled weights, embeddings of fewer tokens or positions than the data
    have, and a network of fewer layers than ``trainable_layers`` or without a list of them.
    """

    def __init__(
        self,
        name: str,
        vocab_size: int,
        max_length: int,
        padding_id: int,
        pooling: Literal["mean", "first", "none"],
        trainable_layers: int | None = None,
        feature_cache: Cache = "file",
        allow_pickle: bool = False,
    ) -> None:
        super().__init__(trainable_layers, feature_cache)
        # Here, as it is in an extra, without which the data's tokenizer fails first.
        from transformers import AutoModel

        try:
            # None takes pickled weights where there are no others.
            loaded = AutoModel.from_pretrained(name, use_safetensors=not allow_pickle or None)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"model.name={name!r} is no Hugging Face model or local checkpoint: {error} "
                "(pickled weights need model.allow_pickle=true)"
            ) from None
        self.network = loaded.float()  # transformers 5 keeps the 16 bits that weights are stored in
        config = self.network.config
        if vocab_size > config.vocab_size:
            raise ValueError(
                f"the data have {vocab_size} tokens, {name!r} knows {config.vocab_size}: set "
                f"data.tokenizer={name}"
            )
        positions = getattr(config, "max_position_embeddings", max_length)
        embedding = getattr(getattr(self.network, "embeddings", None), "position_embeddings", None)
        padding_idx = getattr(embedding, "padding_idx", None)
        if padding_idx is not None:  # RoBERTa's positions begin after the padding's
            positions -= padding_idx + 1
        if max_length > positions:
            raise ValueError(f"data.max_length is {max_length}, {name!r} has {positions} positions")
        self.padding_id, self.pooling = padding_id, pooling
        self.out_features = int(config.hidden_size)
        pooler = getattr(self.network, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # no loss reaches it, and ddp refuses such parameters
        # This also leaves the evaluation mode, without dropout, in which it is loaded.
        self.freeze(*self._frozen_parts(name))

    def _frozen_parts(self, name: str) -> list[nn.Module]:
        if self.trainable_layers is None:
            return []
        if self.trainable_layers == 0:
            return [self.network]
        count = int(self.network.config.num_hidden_layers)
        if self.trainable_layers > count:
            raise ValueError(
                f"model.trainable_layers is {self.trainable_layers}, {name!r} has {count} layers"
            )
        for part in self.network.modules():
            if isinstance(part, nn.ModuleList) and len(part) == count:
                embeddings = self.network.get_input_embeddings()
                embeddings = getattr(self.network, "embeddings", embeddings)
                return [embeddings, *part[: count - self.trainable_layers]]
        raise ValueError(
            f"model.trainable_layers: {name!r} ({type(self.network).__name__}) has no list of its "
            "layers: use 0 for fixed features, or null to train the whole encoder"
        )

    @property
    def can_be_kept(self) -> bool:
        return super().can_be_kept and self.pooling != "none"

    def settings(self) -> str:
        from transformers import __version__

        own = f"{__version__} {self.pooling} {self.padding_id} {self.network.config}"
        return f"{super().settings()} {own}"

    def features(self, inputs: Tensor) -> Tensor:
        present = inputs != self.padding_id
        output = self.network(input_ids=inputs, attention_mask=present.long())
        return pool(output.last_hidden_state, present, self.pooling)
