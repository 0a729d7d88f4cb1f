"""A method in a user's module: the masked loss takes the place of the module's own."""

from __future__ import annotations

from operator import attrgetter

import lightning.pytorch as pl
from torch import nn

from as_lightning.benchmark.compare.huggingface import is_huggingface_classifier, replace_huggingface_loss
from as_lightning.mixin import ASSoftmaxMixin


def with_method(module: pl.LightningModule, method: str, replaces: str | None, delta: float) -> pl.LightningModule:
    """Let a module that has been made train by a method.

    ``softmax`` leaves a module with its own loss unchanged, and sets the margin of one that calls
    ``self.as_softmax_loss`` to 1, which is softmax cross-entropy. Losses outside training are that with every method: a
    masked loss would be less by what it masks, and a comparison by the loss would be won by it.

    Raises:
        ValueError: if ``replaces`` is None and the module has no ``as_softmax_loss``, or ``replaces`` names a part with
            weights of its own: a network, or a Hugging Face model whose loss is no classification loss.
        AttributeError: if ``replaces`` names nothing.
    """
    if replaces is None:
        if not isinstance(module, ASSoftmaxMixin):
            raise ValueError(
                f"{type(module).__name__} does not use ASSoftmaxMixin: name the attribute that training_step calls as "
                'loss(logits, target), as in replaces="criterion"'
            )
        module.as_softmax_delta = 1.0 if method == "softmax" else delta
        module.as_softmax_validation = "softmax"
        return module
    if method == "softmax":
        return module
    if isinstance(module, ASSoftmaxMixin):
        raise ValueError(f"{type(module).__name__} uses ASSoftmaxMixin already: leave replaces out")
    try:
        replaced = attrgetter(replaces)(module)
    except AttributeError:
        raise AttributeError(f"replaces={replaces!r}: {type(module).__name__} has no such attribute") from None
    huggingface = is_huggingface_classifier(replaced)
    if not huggingface and isinstance(replaced, nn.Module) and any(True for _ in replaced.parameters()):
        raise ValueError(
            f"replaces={replaces!r} names a {type(replaced).__name__} with weights of its own, which is no loss: name "
            "the attribute that training_step calls as loss(logits, target)"
        )
    own = type(module)
    attributes = {
        "as_softmax_replaces": None if huggingface else replaces,
        "as_softmax_validation": "softmax",
        "__module__": own.__module__,
        "__doc__": own.__doc__,
    }
    module.__class__ = type(f"AS{own.__name__}", (ASSoftmaxMixin, own), attributes)
    assert isinstance(module, ASSoftmaxMixin)
    module._set_up_as_softmax(delta)
    if huggingface:
        replace_huggingface_loss(module, replaced)
    return module
