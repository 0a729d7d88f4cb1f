"""What a callback puts in the place of a module's method for a while."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from torch import nn


class StandIn:
    """Is called in the place of a method of one module.

    A copy of the module, also one that is pickled, has the method itself: callbacks and strategies copy modules while
    ``fit`` runs.

    Args:
        module: the module, whose attribute ``name`` this becomes.
        name: of the method.
        call: called as ``call(method, *args, **kwargs)``.
    """

    def __init__(self, module: nn.Module, name: str, call: Callable[..., Any]) -> None:
        self.method = getattr(module, name)
        self._module, self._name, self._call = module, name, call
        self._before = vars(module).get(name)  # most modules have their methods in the class
        functools.update_wrapper(self, self.method)  # Lightning reads the method's signature
        vars(module)[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self.method, *args, **kwargs)

    def remove(self) -> None:
        """Leave the module as it was."""
        attributes = vars(self._module)
        if attributes.get(self._name) is not self:
            return
        del attributes[self._name]
        if self._before is not None:
            attributes[self._name] = self._before

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.method, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.method.__reduce_ex__(protocol)
