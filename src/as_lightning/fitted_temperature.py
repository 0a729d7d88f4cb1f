"""A temperature, and the weights that it belongs to."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

from as_lightning.functional.calibration import weights_digest


class FittedTemperature:
    """The temperature ``value`` of the weights that were validated (None without any).

    ``multilabel`` says whether the targets of the module hold several labels, None before that is
    known. ``weights`` are the digests of the validated weights, None where each process has only a
    part of them: then the value is taken to fit any weights until training goes on.
    """

    def __init__(self) -> None:
        self.value: float | None = None
        self.multilabel: bool | None = None
        self.weights: dict[str, int] | None = None

    def set(self, value: float | None, weights: dict[str, int] | None) -> None:
        """Set the value that was fitted for the weights of these digests."""
        self.value, self.weights = value, weights

    def fits(self, module: pl.LightningModule) -> bool:
        """Whether the value belongs to the weights that ``module`` has now, as far as one process
        can know.
        """
        return self.weights is None or weights_of(module) in (None, self.weights)

    def read(self, module: pl.LightningModule) -> float | None:
        """The value, if it belongs to the weights that ``module`` has now."""
        return self.value if self.value is not None and self.fits(module) else None

    def saved_with(self, state: dict[str, Any]) -> float | None:
        """The value, if it belongs to the weights in a checkpoint's ``state``, which may lack some
        and hold others.
        """
        if self.value is None or self.weights is None:
            return self.value
        saved = weights_digest(state)
        return (
            self.value
            if all(self.weights.get(name, digest) == digest for name, digest in saved.items())
            else None
        )


def weights_of(module: pl.LightningModule) -> dict[str, int] | None:
    """The digests of the weights and of buffers (as pruning's masks); None where each process has
    only a part.

    They are computed at each call: a tensor's version misses changes by ``.data``, fused optimizers
        or BatchNorm.
    """
    strategy = None if module._trainer is None else module._trainer.strategy
    whole = strategy is None or isinstance(strategy, (SingleDeviceStrategy, DDPStrategy))
    kinds = {type(weight) for weight in nn.Module.parameters(module)}
    whole = whole and all(issubclass(kind, nn.Parameter) for kind in kinds)  # no DTensor
    return weights_digest(own_weights(module)) if whole else None


def own_weights(module: nn.Module) -> dict[str, Any]:
    """The parameters and persistent buffers by name, read without ``state_dict``, which a class may
    override.
    """
    weights: dict[str, Any] = dict(nn.Module.named_parameters(module, remove_duplicate=False))
    for path, part in nn.Module.named_modules(module, remove_duplicate=False):
        for name in {*part._buffers.keys()} - part._non_persistent_buffers_set:
            weights[f"{path}.{name}".lstrip(".")] = part._buffers[name]
    return weights
