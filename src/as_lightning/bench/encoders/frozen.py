"""Encoders whose lower layers keep their weights: those run without gradients, and their outputs
can be kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_choice, check_count

Cache = Literal["file", "memory", "off"]


class FrozenOutput(NamedTuple):
    """The frozen layers' output for a batch: hidden states ``(N, L, d)`` or features of any shape
    ``(N, ...)``, and which positions are no padding, boolean ``(N, L)`` (meaningless for features
    of a whole sample).
    """

    values: Tensor
    present: Tensor


class _Stopped(Exception):
    """Carries the input of the first trainable layer out of the network."""


def stop(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A forward pre-hook (with keyword arguments) that ends the network's run before a layer: see
    `until_stopped`.
    """
    raise _Stopped(args[0] if args else kwargs["hidden_states"])


def until_stopped(network: Callable[..., Any], *inputs: Tensor) -> Any:
    """The input of the layer that has the hook `stop`; the network's output where none has it."""
    try:
        return network(*inputs)
    except _Stopped as stopped:
        return stopped.args[0]


def check_uncut(trainable_layers: int | None) -> int | None:
    """Return 0 or None, or raise a ValueError: an image network is frozen whole or not at all."""
    if trainable_layers not in (0, None):
        raise ValueError(
            f"model.trainable_layers must be 0 (a head on fixed features) or null for images, got "
            f"{trainable_layers}"
        )
    return trainable_layers


class FrozenEncoder(nn.Module):
    """An encoder whose last ``trainable_layers`` are trained and whose other layers are frozen
    (None freezes nothing).

    The frozen layers run without gradients and in evaluation mode: their output is a function of
    the input alone, and is kept in a memory-mapped ``"file"`` beside the data, in ``"memory"``, or
    not (``"off"``), by ``feature_cache``.
    """

    network: Any  # the module with the frozen layers; stays in evaluation mode where there are some

    def __init__(self, trainable_layers: int | None, feature_cache: Cache) -> None:
        super().__init__()
        if trainable_layers is not None:
            check_count("trainable_layers", trainable_layers, least=0)
        check_choice("feature_cache", feature_cache, get_args(Cache))
        self.trainable_layers, self.feature_cache = trainable_layers, feature_cache
        self.top: nn.Module | None = (
            None  # the layers behind the frozen ones, where some of them are trained
        )

    @abstractmethod
    def run_frozen(self, inputs: Tensor) -> FrozenOutput:
        """The output of the frozen layers; of the whole encoder where there is no `top`."""

    def run_top(self, top: nn.Module, frozen: FrozenOutput) -> Tensor:
        """The features, from the output of the frozen layers."""
        return top(frozen.values)

    def frozen_settings(self) -> str:
        """The settings that decide the output, beside the weights, as text."""
        return f"{type(self).__name__} {self.trainable_layers}"

    def frozen_output(self, inputs: Tensor) -> FrozenOutput:
        """The output of the frozen layers, without gradients, whatever mode the encoder is in."""
        with torch.no_grad():
            return self.run_frozen(inputs)

    def forward(self, inputs: Tensor | FrozenOutput) -> Tensor:
        if isinstance(inputs, Tensor):
            inputs = (
                self.run_frozen(inputs)
                if self.trainable_layers is None
                else self.frozen_output(inputs)
            )
        return inputs.values if self.top is None else self.run_top(self.top, inputs)

    def train(self, mode: bool = True) -> FrozenEncoder:
        super().train(mode)
        if self.trainable_layers is not None:
            self.network.eval()
        return self
