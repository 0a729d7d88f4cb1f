"""What is compared: everything that a run needs, made anew for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import cloudpickle
import lightning.pytorch as pl
from lightning.pytorch.utilities.parsing import lightning_hasattr, lightning_setattr
from omegaconf import DictConfig
from torch import nn

from as_lightning.bench.run.settings import accepted_arguments, nearest
from as_lightning.comparison.search import RATE, Space, learning_rates, setting_range

RATES = ("lr", "learning_rate")


class Candidate(NamedTuple):
    """What is compared: everything a run needs, made anew for it."""

    module: Callable[..., pl.LightningModule]  # called with the tuned settings
    data: Callable[[int], pl.LightningDataModule]  # called with the seed
    search: Space = MappingProxyType({})
    splits_by_seed: bool = False  # whether the data may have other splits for each seed
    config: DictConfig | None = None  # of the app's own modules: `train` makes their runs by it

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
    argument = rate_name(factory)
    search: dict[str, Any] = {}
    rate = None if argument is None else inspect.signature(factory).parameters[argument].default
    if isinstance(rate, (int, float)) and lr_factor is not None:
        search[RATE] = learning_rates(float(rate), lr_factor)
    for key, description in (ranges or {}).items():
        search[RATE if key == argument else key] = setting_range(description)
    return Candidate(
        partial(made_module, factory), partial(made_data, data), search, takes_seed(data)
    )


def made_module(factory: Callable[..., Any], **settings: Any) -> pl.LightningModule:
    """Return the module of a factory; the learning rate goes to its argument or to the module's
    attribute.
    """
    argument = rate_name(factory)
    rate = settings.pop(RATE, None)
    if rate is not None and argument is not None:
        settings[argument] = rate
    module = checked(factory(**settings), pl.LightningModule, "the factory must return a module")
    if rate is not None and argument is None:
        lightning_setattr(module, str(rate_name(module)), rate)
    return module


def made_data(data: Any, seed: int) -> pl.LightningDataModule:
    """Return the data of a run; a function that makes them gets the seed as its argument ``seed``,
    if it has one.
    """
    if callable(data):
        data = data(seed=seed) if takes_seed(data) else data()
    hint = "LightningDataModule.from_datasets(train, validation, test) makes one"
    return checked(data, pl.LightningDataModule, hint)


def takes_seed(data: Any) -> bool:
    """Return whether a function that makes data asks for the seed, and may make splits by it."""
    return callable(data) and "seed" in inspect.signature(data).parameters


def rate_name(owner: Any) -> str | None:
    """Return the name of the learning rate: an argument of a factory, or an attribute or
    hyperparameter of a module; None if there is none.
    """
    for name in RATES:
        if isinstance(owner, pl.LightningModule):
            found = lightning_hasattr(owner, name)
        else:
            found = name in inspect.signature(owner).parameters
        if found:
            return name
    return None


def checked(made: Any, kind: type, hint: str) -> Any:
    """Return what a user's function has made; a ``TypeError`` unless it is of a class of
    ``lightning``.
    """
    if isinstance(made, kind):
        return made
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        hint = "it is of the package pytorch_lightning: import it from lightning.pytorch instead"
    raise TypeError(f"expected a {kind.__name__}, got {type(made).__name__}: {hint}")


def check_arguments(
    function: Callable[..., Any], names: Mapping[str, Any], prefix: str = ""
) -> None:
    """Raise ``ValueError`` if a function lacks an argument of one of these names."""
    accepted = accepted_arguments(function)
    for name in names:
        if accepted is not None and name not in accepted:
            kind = getattr(function, "__name__", type(function).__name__)
            raise ValueError(
                f"{prefix}{name}: {kind} has no such argument; {nearest(name, accepted)}"
            )


def baseline_first(candidates: Mapping[str, Candidate], baseline: str) -> dict[str, Candidate]:
    """Return the candidates with the baseline first; a ``ValueError`` if there is no such one."""
    if baseline not in candidates:
        raise ValueError(f"no candidate is called {baseline}: {nearest(baseline, candidates)}")
    return {baseline: candidates[baseline], **candidates}
