"""Encoders whose lower layers keep their weights, or all, whose outputs can then be kept."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_choice, check_count

Cache = Literal["file", "memory", "off"]


class FrozenEncoder(nn.Module):
    """An encoder whose last ``trainable_layers`` are trained and whose other layers are frozen
    (None freezes nothing).

    The frozen parts keep their weights and stay in evaluation mode. With 0 the output is a function
    of the input alone, and is kept in a memory-mapped ``"file"`` beside the data, in ``"memory"``,
    or not (``"off"``), by ``feature_cache``. Where it is, ``inputs_are_features`` is true.
    """

    network: Any
    inputs_are_features = False

    def __init__(self, trainable_layers: int | None, feature_cache: Cache) -> None:
        super().__init__()
        if trainable_layers is not None:
            check_count("trainable_layers", trainable_layers, least=0)
        check_choice("feature_cache", feature_cache, get_args(Cache))
        self.trainable_layers, self.feature_cache = trainable_layers, feature_cache
        self.frozen: tuple[nn.Module, ...] = ()  # a tuple, as they are no further parts

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Return the features of inputs."""

    @property
    def can_be_kept(self) -> bool:
        """Return whether the output is fixed, with one vector for a sample."""
        return self.trainable_layers == 0

    def settings(self) -> str:
        """Return the settings that decide the output, beside the weights, as text."""
        return type(self).__name__

    def freeze_whole(self) -> None:
        """Freeze the network with 0 trainable layers; a ValueError refuses any number above."""
        if self.trainable_layers:
            raise ValueError(
                f"model.trainable_layers must be 0 or null for images, got {self.trainable_layers}"
            )
        if self.trainable_layers == 0:
            self.freeze(self.network)

    def freeze(self, *parts: nn.Module) -> None:
        """Freeze parts of the network, and set the modes of all."""
        self.frozen = parts
        for part in parts:
            part.requires_grad_(False)
        self.train()

    def forward(self, inputs: Tensor) -> Tensor:
        if self.inputs_are_features:
            return inputs
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.trainable_layers != 0):
            return self.features(inputs)

    def train(self, mode: bool = True) -> FrozenEncoder:
        super().train(mode)
        for part in self.frozen:
            part.eval()
        return self
