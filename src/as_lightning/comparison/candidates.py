"""What is compared: everything that a run needs, made anew for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import cloudpickle
import lightning.pytorch as pl
from torch import nn

from as_lightning.bench.run.settings import accepted_arguments, nearest
from as_lightning.comparison.search import RATE, Space, learning_rates, setting_range

RATES = ("lr", "learning_rate")


class Candidate(NamedTuple):
    """What is compared: everything a run needs, made anew for it."""

    data: Callable[[int], pl.LightningDataModule]  # called with the seed, before the module is made
    module: Callable[..., pl.LightningModule]  # called with the tuned settings
    trainer: Callable[[str], Mapping[str, Any]]  # called with the run's folder: its arguments
    search: Space = MappingProxyType({})
    splits_by_seed: bool = False  # whether the data may have other splits for each seed

    def pickled(self, name: str) -> bytes:
        """Return the candidate's pickle, of which each run gets a copy."""
        try:
            return bytes(cloudpickle.dumps(self))
        except Exception as error:  # whatever an object of the user's raises
            raise TypeError(
                f"{name} cannot be pickled, and each run is made from a copy of it ({error}): let "
                "the functions that make module and data make that part too"
            ) from None


def own_candidate(
    name: str,
    factory: Any,
    data: Any,
    trainer: Mapping[str, Any],
    ranges: Mapping[str, Any] | None = None,
    lr_factor: float | None = None,
) -> Candidate:
    """Return the candidate of a function that makes modules, and of a data module or a function
    that makes it; ``ranges`` are those of the function's arguments that are tuned.

    A learning rate that is an argument with a default is tuned too, from the default times and
    divided by ``lr_factor`` on.
    """
    if not callable(factory) or isinstance(factory, nn.Module):
        raise TypeError(
            f"{name}: expected a function that makes a module, e.g. compare(lambda: "
            f"LitModel(lr=1e-3), ...); got {type(factory).__name__}"
        )
    if data is None:
        raise TypeError(
            f"{name} has no data: give compare(factories, data) or {name!r}: (factory, data)"
        )
    check_arguments(factory, ranges or {})
    arguments = inspect.signature(factory).parameters
    argument = next((rate for rate in RATES if rate in arguments), None)
    search: dict[str, Any] = {}
    rate = arguments[argument].default if argument else None
    if isinstance(rate, (int, float)) and lr_factor is not None:
        search[RATE] = learning_rates(float(rate), lr_factor)
    for key, description in (ranges or {}).items():
        search[RATE if key == argument else key] = setting_range(description)
    return Candidate(
        partial(made_data, data),
        partial(made_module, factory, argument),
        partial(given, trainer),
        search,
        takes_seed(data),
    )


def given(arguments: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """Return arguments of a trainer as the user has given them, in any folder."""
    return arguments


def made_module(
    factory: Callable[..., Any], argument: str | None, **settings: Any
) -> pl.LightningModule:
    """Return the module of a factory, whose ``argument`` is the learning rate."""
    if argument is not None and RATE in settings:
        settings[argument] = settings.pop(RATE)
    return checked(factory(**settings), pl.LightningModule, "the factory must return a module")


def made_data(data: Any, seed: int) -> pl.LightningDataModule:
    """Return the data of a run; a function that makes them gets the seed if it asks for it."""
    if callable(data):
        data = data(seed=seed) if takes_seed(data) else data()
    hint = "LightningDataModule.from_datasets(train, validation, test) makes one"
    return checked(data, pl.LightningDataModule, hint)


def takes_seed(data: Any) -> bool:
    """Return whether a function that makes data asks for the seed, and may make splits by it."""
    return callable(data) and "seed" in inspect.signature(data).parameters


def checked(made: Any, kind: type, hint: str) -> Any:
    """Return what a user's function has made, or raise a ``TypeError``."""
    if isinstance(made, kind):
        return made
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        hint = "it is of the package pytorch_lightning: import it from lightning.pytorch instead"
    raise TypeError(f"expected a {kind.__name__}, got {type(made).__name__}: {hint}")


def check_arguments(function: Callable[..., Any], names: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a function lacks an argument of one of these names."""
    accepted = accepted_arguments(function)
    for name in names:
        if accepted is not None and name not in accepted:
            kind = getattr(function, "__name__", type(function).__name__)
            raise ValueError(f"{name}: {kind} has no such argument; {nearest(name, accepted)}")


def baseline_first(candidates: Mapping[str, Candidate], baseline: str) -> dict[str, Candidate]:
    """Return the candidates with the baseline first; a ``ValueError`` if there is no such one."""
    if baseline not in candidates:
        raise ValueError(f"no candidate is called {baseline}: {nearest(baseline, candidates)}")
    return {baseline: candidates[baseline], **candidates}
