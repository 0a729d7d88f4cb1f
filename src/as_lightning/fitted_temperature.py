"""A temperature, and the weights that it belongs to."""

from __future__ import annotations

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

from as_lightning.functional.calibration import weights_digest


class FittedTemperature:
    """The ``value`` for the weights that were validated (None without any).

    ``multilabel`` says whether the targets of the module hold several labels, None before that is known. ``weights``
    are the digests of the validated weights, None where one process has not all of them: then the value is taken for
    that of any weights until training goes on.
    """

    def __init__(self) -> None:
        self.value: float | None = None
        self.multilabel: bool | None = None
        self.weights: dict[str, int] | None = None

    def set(self, value: float | None, weights: dict[str, int] | None) -> None:
        """A value for the weights of these digests."""
        self.value, self.weights = value, weights

    def fits(self, weights: dict[str, int] | None) -> bool:
        """Whether weights of these digests are those of the value, as far as one process can know.

        All that there are now are among those of the value: a checkpoint may leave some out.
        """
        return self.weights is None or weights is None or weights.items() <= self.weights.items()

    def read(self, module: pl.LightningModule) -> float | None:
        """The value, if it is that of the weights that ``module`` has now."""
        return self.value if self.value is not None and self.fits(weights_of(module)) else None


def weights_of(module: pl.LightningModule) -> dict[str, int] | None:
    """The digests of the weights and of buffers (pruning has its masks there); None where each process has a part.

    They are read each time: versions of tensors do not tell of changes by ``.data``, fused optimizers or BatchNorm.
    """
    strategy = None if module._trainer is None else module._trainer.strategy
    whole = strategy is None or isinstance(strategy, (SingleDeviceStrategy, DDPStrategy))
    whole = whole and all(type(weight) is nn.Parameter for weight in module.parameters())
    if not whole:
        return None
    parameters = {name for name, _ in nn.Module.named_parameters(module, remove_duplicate=False)}
    saved = module.state_dict()  # both of which a class may override, without arguments
    return weights_digest({name: nn.Parameter(x, False) if name in parameters else x for name, x in saved.items()})
