"""A temperature, and the weights that it belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from as_lightning.functional.calibration import same_weights, weights_digest

Versions = dict[str, tuple[Callable[[], Tensor | None], int]]
OTHER_WEIGHTS = (-1,)


class FittedTemperature:
    """The ``value`` for the weights that were validated (None without any).

    ``multilabel`` says whether the targets of the module hold several labels, None before that is known. ``weights``
    are the digests of the validated weights, None where one process has not all of them. A checkpoint takes the value
    that fits the weights it holds, which may be others than the module's. The module has it until its weights change.
    """

    def __init__(self) -> None:
        self.value: float | None = None
        self.multilabel: bool | None = None
        self.weights: dict[str, int] | None = None
        # those of the module that has the value: () to be taken at the next load or read, None not to be looked at
        self._versions: Versions | tuple[int, ...] | None = ()

    def __getstate__(self) -> dict[str, Any]:
        copied = () if isinstance(self._versions, dict) else self._versions  # until its weights are there
        return vars(self) | {"_versions": copied}

    def set(self, value: float | None, weights: dict[str, int] | None = None) -> None:
        """A value of the weights that are loaded next, or of those that are there at the next `read`."""
        self.value, self.weights, self._versions = value, weights, ()

    def fits(self, weights: dict[str, int] | None) -> bool:
        """Whether weights of these digests are those of the value, as far as one process can know."""
        return self.weights is None or weights is None or same_weights(self.weights, weights)

    def compare(self, module: nn.Module, weights: dict[str, int] | None) -> bool:
        """`fits`, for the weights that ``module`` has; from now on it has the value, or has not."""
        fits = self.fits(weights)
        self._versions = None if weights is None else versions(module) if fits else OTHER_WEIGHTS
        return fits

    def of(self, module: nn.Module, weights: dict[str, int] | None) -> float | None:
        """The value, if it is that of ``weights``: their digests, which a checkpoint or ``module`` holds."""
        if self.weights is None:
            return self.read(module)
        return self.value if self.fits(weights) else None

    def read(self, module: nn.Module) -> float | None:
        """The value, unless the weights of ``module`` have changed since."""
        self.loaded(module)
        if isinstance(self._versions, dict):
            now = versions(module)
            self._versions = now if _unchanged(self._versions, now) else OTHER_WEIGHTS
        return None if self._versions == OTHER_WEIGHTS else self.value

    def loaded(self, module: nn.Module) -> None:
        """The weights of a value that was `set` before are there."""
        if self._versions == ():
            self._versions = versions(module)

    def reloaded(self, module: nn.Module) -> None:
        """Weights have been loaded: those of a value that was `set` before, or perhaps the same ones again."""
        whole = all(type(weight) is nn.Parameter for weight in module.parameters())  # not a part of each
        if self._versions == ():
            self.loaded(module)
            self.weights = self.weights or (weights_digest(module.state_dict(), least=2) if whole else None)
        elif self.weights is not None and whole:
            self.compare(module, weights_digest(module.state_dict(), least=2))


def versions(module: nn.Module) -> Versions:
    """Each weight and buffer, with a number that an optimizer or ``load_state_dict`` raises by a change in place.

    Single numbers, such as counters and best scores, which a validation may change, are no weights.
    """
    weights = [*module.named_parameters(), *module.named_buffers()]
    return {name: (weakref.ref(weight), weight._version) for name, weight in weights if weight.numel() > 1}


def _unchanged(before: Versions, now: Versions) -> bool:
    """Whether each weight is the same and has its number. A buffer may be another one: ``to`` makes new ones."""
    pairs = [(weight(), version, *before.get(name, (lambda: None, 0))) for name, (weight, version) in now.items()]
    return all(
        version == number if of() is weight else not isinstance(weight, nn.Parameter)
        for weight, version, of, number in pairs
    )
