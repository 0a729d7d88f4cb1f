"""A class of a mixin and a LightningModule of somebody's: what is refused where it is made, and how it loads again."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl

from as_lightning.functional.masking import DEFAULT_DELTA


def check_class(cls: type, mixin: type, hooks: Sequence[str], *, margin: float | None) -> None:
    """Raise ``TypeError`` where a class would train without the mixin, or has two arguments ``delta``.

    Its bases hide the mixin's methods or ``hooks``; the mixin hides a name of a next class; or that takes a ``delta``
    and the class has no ``margin``.
    """
    place, name = cls.__mro__.index(mixin), mixin.__name__
    before, after = cls.__mro__[:place], cls.__mro__[place + 1 :]
    if pl.LightningModule in before:
        mixin_first = sorted(cls.__bases__, key=lambda base: not issubclass(base, mixin))
        bases = ", ".join(base.__name__ for base in mixin_first)
        raise TypeError(
            f"class {cls.__name__} names {name} after its LightningModule, whose methods hide those of the mixin: "
            f"training would be that of plain softmax. Name the mixin first: class {cls.__name__}({bases})"
        )
    for base, hook in itertools.product(before, hooks):
        function: Any = vars(base).get(hook)
        code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)  # a partialmethod's func
        if code is not None and hook not in code.co_names:
            raise TypeError(f"{base.__name__}.{hook} hides that of {name}, which must run: call super().{hook}(...)")
    said = {"as_softmax_delta"} if margin is not None else set()
    said = said.union(dir(pl.LightningModule), *map(vars, before))
    for base, hidden in itertools.product(after, vars(mixin).keys() - said):
        if hidden in vars(base):
            raise TypeError(
                f"{name} hides {base.__name__}.{hidden}: say in class {cls.__name__} which one is meant, as in "
                f"`{hidden} = {base.__name__}.{hidden}`, or rename that of {base.__name__}"
            )
    made = [base for base in after if "__init__" in vars(base)]
    own = next((base for base in made if "delta" in inspect.signature(base.__init__).parameters), None)  # type: ignore[misc]
    if own is not None and margin is None:
        raise TypeError(
            f"{own.__name__}.__init__ has an argument delta of its own. Set the margin of AS-Softmax in the class, as "
            f"in `as_softmax_delta = {DEFAULT_DELTA}`: then delta= goes to {own.__name__}"
        )


def complete_hyperparameters(module: pl.LightningModule, checkpoint: dict[str, Any], given: dict[str, Any]) -> None:
    """Add the arguments ``given`` to the mixin where those that the module has saved are without them."""
    key, name_key = module.CHECKPOINT_HYPER_PARAMS_KEY, module.CHECKPOINT_HYPER_PARAMS_NAME
    saved = checkpoint[key]
    if checkpoint.get(name_key) not in (None, "kwargs"):  # save_hyperparameters(config): by the mixin's signature
        saved = {checkpoint[name_key]: saved}  # Lightning cannot know that there is an argument of that name
        checkpoint[name_key] = "kwargs"
        checkpoint.pop(module.CHECKPOINT_HYPER_PARAMS_TYPE, None)
    checkpoint[key] = given | dict(saved)
