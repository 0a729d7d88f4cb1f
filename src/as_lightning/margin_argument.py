"""Decides whether the argument ``delta`` is the mixin's margin or an argument of the class that it is mixed into."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from as_lightning.functional.masking import check_delta


class _DefaultMargin(float):
    """A 0.1 that differs, as an object, from a 0.1 that the caller passes."""


DEFAULT_MARGIN = _DefaultMargin(0.1)


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
    module: object, mixin: type, args: Sequence[Any], delta: float, kwargs: Mapping[str, Any]
) -> MarginArgument:
    """Find the margin among the arguments of ``mixin.__init__(module, *args, delta=delta, **kwargs)``.

    Raises:
        ValueError: if the margin lies outside [0, 1].
        TypeError: if it is given twice.
    """
    passed_on = dict(kwargs)
    margin = passed_on.pop("as_softmax_delta", DEFAULT_MARGIN)
    given = delta is not DEFAULT_MARGIN
    following = list(_classes_after(mixin, type(module)))
    owner = next((cls for cls in following if "delta" in _parameters(cls)), None)
    if owner is None:
        if given and margin is not DEFAULT_MARGIN:
            raise TypeError(f"delta={delta} and as_softmax_delta={margin} are the same margin: give one of them")
        margin = check_delta(delta if given else margin)
        return MarginArgument(margin, "delta", margin, passed_on)
    if given:
        passed_on["delta"] = delta
        if margin is DEFAULT_MARGIN:
            rank_zero_warn(
                f"{owner.__name__}.__init__ has an argument delta of its own, which delta={delta!r} goes to. The "
                f"margin of AS-Softmax is the default, {float(margin)}: give it as as_softmax_delta=..."
            )
    elif owner is following[0]:
        bound = inspect.signature(owner.__init__).bind_partial(module, *args, **passed_on)  # type: ignore[misc]
        bound.apply_defaults()
        delta = bound.arguments.get("delta")  # type: ignore[assignment]
    else:
        delta = _parameters(owner)["delta"].default
    return MarginArgument(check_delta(margin), "as_softmax_delta", delta, passed_on)


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
