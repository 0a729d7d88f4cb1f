"""A class that mixes a mixin into a LightningModule: the checks at its definition, and its saved
hyperparameters.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl

from as_lightning.functional.masking import DEFAULT_DELTA


def check_class(cls: type, mixin: type, hooks: Sequence[str], *, margin: float | None) -> None:
    """Raise ``TypeError`` if a class would train without the mixin, or has two arguments ``delta``.

    The cases: a class before the mixin in line hides its methods or ``hooks``; the mixin hides a
    name of a class after it; a class after it takes a ``delta``, and ``margin`` is None.
    """
    position, name = cls.__mro__.index(mixin), mixin.__name__
    bases_before, bases_after = cls.__mro__[:position], cls.__mro__[position + 1 :]
    if pl.LightningModule in bases_before:
        mixin_first = sorted(cls.__bases__, key=lambda base: not issubclass(base, mixin))
        bases = ", ".join(base.__name__ for base in mixin_first)
        raise TypeError(
            f"class {cls.__name__} names {name} after its LightningModule, whose methods hide "
            "those of the mixin: "
            "training would be that of plain softmax. Name the mixin first: class "
            f"{cls.__name__}({bases})"
        )
    for base, hook in itertools.product(bases_before, hooks):
        function: Any = vars(base).get(hook)
        code = getattr(
            inspect.unwrap(getattr(function, "func", function)), "__code__", None
        )  # a partialmethod's func
        if code is not None and hook not in code.co_names:
            raise TypeError(
                f"{base.__name__}.{hook} hides that of {name}, which must run: call "
                f"super().{hook}(...)"
            )
    redefined_names = {"as_softmax_delta"} if margin is not None else set()
    redefined_names = redefined_names.union(dir(pl.LightningModule), *map(vars, bases_before))
    for base, hidden in itertools.product(bases_after, vars(mixin).keys() - redefined_names):
        if hidden in vars(base):
            raise TypeError(
                f"{name} hides {base.__name__}.{hidden}: say in class {cls.__name__} which one is "
                "meant, as in "
                f"`{hidden} = {base.__name__}.{hidden}`, or rename that of {base.__name__}"
            )
    init_classes = [base for base in bases_after if "__init__" in vars(base)]
    with_delta = (
        base
        for base in init_classes
        if "delta" in inspect.signature(base.__init__).parameters  # type: ignore[misc]
    )
    delta_class = next(with_delta, None)
    if delta_class is not None and margin is None:
        raise TypeError(
            f"{delta_class.__name__}.__init__ has an argument delta of its own. Set the margin of "
            "AS-Softmax in the "
            f"class, as in `as_softmax_delta = {DEFAULT_DELTA}`: then delta= goes to "
            f"{delta_class.__name__}"
        )


def complete_hyperparameters(
    module: pl.LightningModule, checkpoint: dict[str, Any], given: dict[str, Any]
) -> None:
    """Add the mixin's arguments, ``given``, to a checkpoint's hyperparameters; those that the
    module saved win.
    """
    key, name_key = module.CHECKPOINT_HYPER_PARAMS_KEY, module.CHECKPOINT_HYPER_PARAMS_NAME
    saved = checkpoint[key]
    if checkpoint.get(name_key) not in (None, "kwargs"):  # save_hyperparameters(config)
        saved = {
            checkpoint[name_key]: saved
        }  # the mixin's signature, which Lightning reads, has no such argument
        checkpoint[name_key] = "kwargs"
        checkpoint.pop(module.CHECKPOINT_HYPER_PARAMS_TYPE, None)
    checkpoint[key] = given | dict(saved)
