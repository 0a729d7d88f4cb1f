"""Decides whether the argument ``delta`` is the mixin's margin or an argument of the class that it is mixed into."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from as_lightning.functional.masking import check_delta

DEFAULT_MARGIN = 0.1


@dataclass(frozen=True)
class MarginArgument:
    """What the arguments of the mixin's ``__init__`` mean.

    Attributes:
        margin: the margin of AS-Softmax.
        name: the argument, and so the hyperparameter, that holds it: ``"delta"`` or ``"as_softmax_delta"``.
        delta: the value of ``delta``, for the mixin or for the next class.
        passed_on: the keyword arguments of the next class.
    """

    margin: float
    name: str
    delta: Any
    passed_on: dict[str, Any]

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The keyword arguments as Lightning's ``save_hyperparameters`` should see them."""
        return self.passed_on if self.name == "delta" else self.passed_on | {self.name: self.margin}


def read_margin(
    module: object,
    mixin: type,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    delta: float | None,
    as_softmax_delta: float | None,
) -> MarginArgument:
    """Find the margin among the arguments of ``mixin.__init__``; None stands for one that is not given.

    Args:
        module: the module that is made.
        mixin: the class whose ``__init__`` has got the arguments.
        args: the positional arguments of the next class.
        kwargs: its keyword arguments, without the two below.
        delta: the margin, or the next class's own ``delta``.
        as_softmax_delta: the margin.

    Raises:
        ValueError: if the margin lies outside [0, 1].
        TypeError: if it is given twice.
    """
    passed_on = dict(kwargs)
    following = list(_classes_after(mixin, type(module)))
    owner = next((cls for cls in following if "delta" in _parameters(cls)), None)
    if owner is None:
        if delta is not None and as_softmax_delta is not None:
            raise TypeError(
                f"delta={delta} and as_softmax_delta={as_softmax_delta} are the same margin: give one of them"
            )
        margin = _margin(as_softmax_delta if delta is None else delta)
        return MarginArgument(margin, "delta", margin, passed_on)
    if delta is not None:
        passed_on["delta"] = delta
        if as_softmax_delta is None:
            rank_zero_warn(
                f"{owner.__name__}.__init__ has an argument delta of its own, which delta={delta!r} goes to. The "
                f"margin of AS-Softmax is the default, {DEFAULT_MARGIN}: give it as as_softmax_delta=..."
            )
    elif owner is following[0]:
        bound = inspect.signature(owner.__init__).bind_partial(module, *args, **passed_on)  # type: ignore[misc]
        bound.apply_defaults()
        delta = bound.arguments.get("delta")
    else:
        delta = _parameters(owner)["delta"].default
    return MarginArgument(_margin(as_softmax_delta), "as_softmax_delta", delta, passed_on)


def _margin(given: float | None) -> float:
    return check_delta(DEFAULT_MARGIN if given is None else given)


def _classes_after(mixin: type, cls: type) -> list[type]:
    """The classes that define ``__init__`` and that the mixin's keyword arguments reach, in order."""
    reached = []
    for following in cls.__mro__[cls.__mro__.index(mixin) + 1 :]:
        if "__init__" not in vars(following):
            continue
        reached.append(following)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in _parameters(following).values()):
            break
    return reached


def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(cls.__init__).parameters  # type: ignore[misc]
