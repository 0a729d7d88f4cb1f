"""The masked loss in the place of the one that a Hugging Face classifier computes itself."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.masking import check_delta
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.losses import MaskedLoss

# of sequences, tokens, images and whole clips
CLASSIFIER = re.compile(r"For(?!AudioFrame)\w*Classification$")


def is_hugging_face_model(part: Any) -> bool:
    """Return whether ``part`` is a model of ``transformers``, known by its ``problem_type``."""
    return isinstance(part, nn.Module) and hasattr(getattr(part, "config", None), "problem_type")


class LossOfLabels(MaskedLoss):
    """A forward hook that replaces the ``loss`` of a classifier that is given ``labels`` by name.

    Raises:
        TypeError: if the model is no classifier of two labels or more, returns no logits, or (at
            the first batch) computes another loss than the mean cross-entropy, as one with class
            weights: they would be lost.
    """

    def __init__(self, model: nn.Module, delta: float) -> None:
        super().__init__()
        self.delta = check_delta(delta)
        self.checked = False
        plain_model: Any = getattr(model, "_orig_mod", model)  # of torch.compile
        names = [base.__name__ for base in type(plain_model).__mro__]
        config = plain_model.config
        regression = config.problem_type == "regression" or config.num_labels == 1
        if regression or not any(map(CLASSIFIER.search, names)):
            raise TypeError(
                f"{names[0]} is no classification model of transformers "
                "(...For...Classification, with two labels or more): leave the labels out, and "
                "call self.as_softmax_loss(logits, target) in training_step"
            )
        for key, hook in [*model._forward_hooks.items()]:
            if isinstance(hook, LossOfLabels):  # of an earlier module around the same model
                del model._forward_hooks[key]
                model._forward_hooks_with_kwargs.pop(key, None)
        model.register_forward_hook(self, with_kwargs=True)

    def forward(
        self, model: Any, arguments: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        if named.get("labels") is None:
            return
        if not hasattr(output, "logits"):
            raise TypeError("the model must return an output with logits: use return_dict=True")
        logits, labels = output.logits, named["labels"].to(output.logits.device)
        self.multilabel = model.config.problem_type == "multi_label_classification"
        settings = {"ignore_index": -100, "reduction": "mean"}
        if not self.multilabel:
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if not self.checked:
            self._check(output.loss.detach(), logits.detach(), labels)
        function = multilabel_as_cross_entropy if self.multilabel else as_cross_entropy
        output["loss"] = self.counted(function, logits, labels, **settings)

    def _check(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Raise ``TypeError`` unless the model's loss is the mean cross-entropy of its logits."""
        if self.multilabel:
            plain = F.binary_cross_entropy_with_logits(logits.float(), labels.float())
        else:
            plain = F.cross_entropy(logits.float(), labels)
        tolerance = 1e-3 if loss.dtype == torch.float32 else 2e-2
        if not torch.allclose(loss.float(), plain, tolerance, tolerance, equal_nan=True):
            raise TypeError(
                f"the model's loss, {loss:.4g}, is not the mean cross-entropy of its logits and "
                f"labels, {plain:.4g}: leave the labels out, and call self.as_softmax_loss(logits, "
                "target) in training_step"
            )
        self.checked = not loss.isnan()  # NaN where all labels are ignored
