"""A temperature, and the weights that it belongs to."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

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

    def set(self, value: float | None, weights: Digests | None) -> None:
        """Set the value that was fitted for the weights of these digests."""
        self.value = value
        self.weights = weights

    def fits(self, module: pl.LightningModule) -> bool:
        """Return whether the value belongs to the present weights, as far as this process knows."""
        return self.weights is None or weights_of(module) in (None, self.weights)

    def read(self, module: pl.LightningModule) -> float | None:
        """Return the value if it belongs to the present weights of ``module``."""
        if self.value is None or not self.fits(module):
            return None
        return self.value

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
        """Restore what `saved_with` returned."""
        self.set(saved["temperature"], saved["weights"])
        self.multilabel = saved["multilabel"]


def weights_of(module: pl.LightningModule) -> Digests | None:
    """Return the digests of weights and persistent buffers; None where a process has only a part.

    They are computed at each call: a tensor's version misses changes by ``.data``, fused
    optimizers or BatchNorm.
    """
    try:
        strategy: Any = module.trainer.strategy
    except RuntimeError:  # the module has no trainer
        strategy = None
    if not isinstance(strategy, (SingleDeviceStrategy, DDPStrategy, type(None))):
        return None
    # not `module.state_dict`, which a class may override
    weights = nn.Module.state_dict(module, keep_vars=True)
    if any(
        type(weights[name]) is not nn.Parameter for name, _ in nn.Module.named_parameters(module)
    ):
        return None
    return weights_digest(weights)
