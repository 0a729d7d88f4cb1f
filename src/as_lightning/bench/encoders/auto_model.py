"""Any encoder of Hugging Face, pretrained or of a local checkpoint, trained whole or in its last
layers.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from as_lightning.bench.encoders.from_scratch import pool
from as_lightning.bench.encoders.frozen import (
    Cache,
    FrozenEncoder,
    FrozenOutput,
    stop,
    until_stopped,
)

# What an encoder of another structure raises where it is cut.
UNCUT = (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, StopIteration)


class AutoModelEncoder(FrozenEncoder):
    """A ``transformers.AutoModel`` by name or local path.

    Give the data the same tokeniser: ``data.tokenizer=<name>`` (``model=auto_model`` does).

    With ``trainable_layers=k`` the embeddings and all layers but the last ``k`` keep their weights
    and run without gradients and dropout; with 0 the encoder gives fixed features.

    The settings are described in ``conf/model/auto_model.yaml``. Pickled weights can run any code.

    Shape:
        - input: ``(N, L)`` ``int64`` token ids, or the `FrozenOutput` of them; output: ``(N, hidden
          size)``, without pooling ``(N, L, hidden size)``.

    Raises:
        ValueError: if there is no such model, its weights are pickled, its embeddings hold fewer
            tokens or positions than the data have, or it has fewer layers than ``trainable_layers``
            or cannot be cut between two of them.
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
            loaded = AutoModel.from_pretrained(name, use_safetensors=None if allow_pickle else True)
        except (OSError, ValueError) as error:
            hint = "" if allow_pickle else " (pickled weights need model.allow_pickle=true)"
            raise ValueError(
                f"model.name={name!r} is no Hugging Face model or local checkpoint: {error}{hint}"
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
        self.network.train()  # from_pretrained leaves it in eval mode, without dropout
        self.padding_id, self.pooling = padding_id, pooling
        self.out_features = int(config.hidden_size)
        if trainable_layers is not None:
            self._freeze(name, trainable_layers)
        pooler = getattr(self.network, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # no loss reaches it, and ddp refuses such parameters

    def run_frozen(self, inputs: Tensor) -> FrozenOutput:
        present = inputs != self.padding_id
        hidden = until_stopped(self._hidden, inputs, present)
        if self.top is None:
            hidden = pool(hidden, present, self.pooling)
        return FrozenOutput(hidden, present)

    def frozen_settings(self) -> str:
        from transformers import __version__

        return f"{super().frozen_settings()} {__version__} {self.pooling} {self.padding_id} {self.network.config}"

    def run_top(self, top: nn.Module, frozen: FrozenOutput) -> Tensor:
        hidden = top(
            inputs_embeds=frozen.values, attention_mask=frozen.present.long()
        ).last_hidden_state
        return pool(hidden, frozen.present, self.pooling)

    def _hidden(self, token_ids: Tensor, present: Tensor) -> Tensor:
        return self.network(input_ids=token_ids, attention_mask=present.long()).last_hidden_state

    def _freeze(self, name: str, trainable_layers: int) -> None:
        """Freeze `network`; `top` is what follows the frozen layers and shares its parameters."""
        count = int(self.network.config.num_hidden_layers)
        if trainable_layers > count:
            raise ValueError(
                f"model.trainable_layers is {trainable_layers}, {name!r} has {count} layers"
            )
        self.network.requires_grad_(False)
        if trainable_layers == 0:
            self.train()
            return
        probe = torch.tensor([[token for token in range(5) if token != self.padding_id]])
        self.network.eval()
        with torch.no_grad():
            expected = self._hidden(probe, probe != self.padding_id)
        lists = {
            path: part
            for path, part in self.network.named_modules()
            if isinstance(part, nn.ModuleList) and len(part) == count
        }
        path = next(iter(lists), "")
        shared = {id(tensor): tensor for tensor in self.network.parameters()}
        self.top = copy.deepcopy(self.network, shared)
        self.top.embeddings = _Given()
        try:
            first_trainable = self.network.get_submodule(f"{path}.{count - trainable_layers}")
            layers: Any = self.top.get_submodule(path)
            self.top.set_submodule(path, layers[count - trainable_layers :])
            first_trainable.register_forward_pre_hook(stop, with_kwargs=True)
            self.top.requires_grad_(True)
            frozen = self.frozen_output(probe)
            self.top.eval()
            with torch.no_grad():
                output = self.top(inputs_embeds=frozen.values, attention_mask=frozen.present.long())
            torch.testing.assert_close(output.last_hidden_state, expected)
        except UNCUT as error:
            raise ValueError(
                f"model.trainable_layers: {name!r} ({type(self.network).__name__}) cannot be cut "
                "between its layers: use 0 for fixed features, or null to train the whole encoder"
            ) from error
        self.train()


class _Given(nn.Module):
    """Replaces the embeddings of `top`, and returns the hidden states that it is called with."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        arguments = (*args, *kwargs.values())
        return next(
            value for value in arguments if isinstance(value, Tensor) and value.is_floating_point()
        )
