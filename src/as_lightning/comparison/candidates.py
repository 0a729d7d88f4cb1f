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

from as_lightning.bench.run.settings import nearest
from as_lightning.comparison.search import RATE, Space, learning_rates, setting_range


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
    trainer: Mapping[str, Any],
    datamodule: Any,
    lr_factor: float | None,
    factory: Any,
    data: Any = None,
    ranges: Mapping[str, Any] | None = None,
) -> Candidate:
    """Return the candidate of a function that makes modules; its ``lr``, if any, is tuned too."""
    if not callable(factory) or isinstance(factory, nn.Module):
        raise TypeError(
            f"{name}: expected a function that makes a module, e.g. compare(lambda: "
            f"LitModel(lr=1e-3), ...); got {type(factory).__name__}"
        )
    if data is None:
        data = datamodule
    search: dict[str, Any] = {}
    argument = inspect.signature(factory).parameters.get(RATE)
    if argument and isinstance(argument.default, (int, float)) and lr_factor is not None:
        search[RATE] = learning_rates(float(argument.default), lr_factor)
    for key, description in (ranges or {}).items():
        search[key] = setting_range(description)
    return Candidate(
        partial(made_data, data),
        partial(made_module, factory),
        lambda folder: trainer,
        search,
        takes_seed(data),
    )


def made_module(factory: Callable[..., Any], **settings: Any) -> pl.LightningModule:
    return checked(factory(**settings), pl.LightningModule, "the factory must return a module")


def made_data(data: Any, seed: int) -> pl.LightningDataModule:
    if callable(data):
        data = data(seed=seed) if takes_seed(data) else data()
    hint = "LightningDataModule.from_datasets(train, validation, test) makes one"
    return checked(data, pl.LightningDataModule, hint)


def takes_seed(data: Any) -> bool:
    return callable(data) and "seed" in inspect.signature(data).parameters


def checked(made: Any, kind: type, hint: str) -> Any:
    if isinstance(made, kind):
        return made
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        hint = "it is of the package pytorch_lightning: import it from lightning.pytorch instead"
    raise TypeError(f"expected a {kind.__name__}, got {type(made).__name__}: {hint}")


def baseline_first(candidates: Mapping[str, Any], baseline: str) -> dict[str, Any]:
    if baseline not in candidates:
        raise ValueError(f"no candidate is called {baseline}: {nearest(baseline, candidates)}")
    return {baseline: candidates[baseline], **candidates}
