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
    settings are described in ``conf/model/auto_model.yaml``.

    Shape:
        - input: ``(N, L)`` ``int64``; output: ``(N, d)``, without pooling ``(N, L, d)``.

    A ValueError refuses pickled weights, which can run any code, embeddings of fewer tokens or
    positions than the data have, and a network of fewer layers than ``trainable_layers``.
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
    ) -> None:
        super().__init__(trainable_layers, feature_cache)
        # Here, as it is in an extra, without which the data's tokenizer fails first.
        from transformers import AutoModel

        try:
            loaded = AutoModel.from_pretrained(name, use_safetensors=True)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"model.name={name!r} is no Hugging Face model or local checkpoint with "
                f"safetensors: {error}"
            ) from None
        self.network = loaded.float()  # transformers 5 keeps the 16 bits that weights are stored in
        config = self.network.config
        positions = getattr(config, "max_position_embeddings", max_length)
        if vocab_size > config.vocab_size or max_length > positions:
            raise ValueError(
                f"the data have {vocab_size} tokens and texts of {max_length}, {name!r} knows "
                f"{config.vocab_size} and {positions}: set data.tokenizer={name} or data.max_length"
            )
        self.padding_id, self.pooling = padding_id, pooling
        self.out_features = int(config.hidden_size)
        pooler = getattr(self.network, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # no loss reaches it, and ddp refuses such parameters
        # This also leaves the evaluation mode, without dropout, in which it is loaded.
        self.freeze(*self._frozen_parts())

    def _frozen_parts(self) -> list[nn.Module]:
        if self.trainable_layers is None:
            return []
        if self.trainable_layers == 0:
            return [self.network]
        count = int(self.network.config.num_hidden_layers)
        frozen = count - self.trainable_layers
        for part in self.network.modules():
            if isinstance(part, nn.ModuleList) and len(part) == count and frozen >= 0:
                embeddings = self.network.get_input_embeddings()
                return [getattr(self.network, "embeddings", embeddings), *part[:frozen]]
        raise ValueError(
            f"model.trainable_layers={self.trainable_layers}: {type(self.network).__name__} has no "
            f"list of its {count} layers, or fewer layers: use 0 for fixed features, or null"
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
