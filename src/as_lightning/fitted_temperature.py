"""A temperature, and the weights that it belongs to."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn

from as_lightning.functional.calibration import weights_digest

Digests = dict[str, Any]


class FittedTemperature:
    """The temperature ``value`` of the weights that were validated; None without any.

    ``multilabel`` says whether the targets hold several labels, None before that is known.
    ``weights`` are the digests of the validated weights, None where each process has only a part
    of them: then the value is taken to fit any weights.
    """

    def __init__(self) -> None:
        self.value: float | None = None
        self.multilabel: bool | None = None
        self.weights: Digests | None = None
        # Of the weights that were compared last, and whether the value was theirs.
        self._compared: tuple[list[Any], bool] | None = None

    def set(self, value: float | None, weights: Digests | None) -> None:
        self.value = value
        self.weights = weights
        self._compared = None

    def read(self, module: pl.LightningModule) -> float | None:
        """Return the value if it belongs to the present weights, as far as this process knows.

        All weights are read where one of them is another tensor, was written by PyTorch, or has
        another first element (fused optimizers write without a word), since they were read last.
        """
        if self.value is None or self.weights is None or not is_whole(module):
            return self.value
        tensors = [*module.parameters(), *module.buffers()]
        stamp = []
        for part in tensors:
            if part.layout == torch.strided:
                first = part.detach().flatten()[:1].sum().abs()  # also of complex numbers
                stamp.append((id(part), version(part), float(first)))
        if self._compared is None or self._compared[0] != stamp:
            self._compared = stamp, weights_of(module) == self.weights
        return self.value if self._compared[1] else None

    def saved_with(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of a checkpoint of these weights, which may lack some and hold others.

        A callback such as ``EMAWeightAveraging`` saves other weights than were validated.
        """
        digests = self.weights
        if self.value is not None and digests is not None:
            saved = weights_digest(state)
            if any(digests.get(name, digest) != digest for name, digest in saved.items()):
                return {"temperature": None, "weights": None, "multilabel": self.multilabel}
        return {"temperature": self.value, "weights": digests, "multilabel": self.multilabel}

    def load(self, saved: dict[str, Any]) -> None:
        self.set(saved["temperature"], saved.get("weights"))  # which 0.4 may lack
        self.multilabel = saved["multilabel"] or None


def version(part: Tensor) -> int:
    """Return how often PyTorch has written a tensor; those of inference do not count it."""
    return 0 if part.is_inference() else part._version


def is_whole(module: pl.LightningModule) -> bool:
    """Return whether this process has all weights of the module."""
    try:
        if not isinstance(module.trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
            return False
    except RuntimeError:  # the module has no trainer
        pass
    # not of DTensors
    return all(issubclass(type(weight), nn.Parameter) for weight in module.parameters())


def weights_of(module: pl.LightningModule) -> Digests | None:
    """Return the digests of weights and persistent buffers; None where a process has a part."""
    if not is_whole(module):
        return None
    # not `module.state_dict`, which a class may override
    return weights_digest(nn.Module.state_dict(module, keep_vars=True))
