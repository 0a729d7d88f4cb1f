"""The masked loss in a Hugging Face model that computes its loss itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from as_lightning.mixin import ASSoftmaxMixin

CLASSIFIER = re.compile(r"For\w*Classification$")  # sequences, tokens, images, audio


def is_huggingface_classifier(part: Any) -> bool:
    """Whether ``part`` is a classification model of ``transformers``, which computes its loss from ``labels``.

    Raises:
        ValueError: if it is another model of ``transformers``. Such a model may shift its labels, as causal language
            models do, or take its targets from elsewhere.
    """
    # every configuration of transformers has a problem_type
    if not isinstance(part, nn.Module) or not hasattr(getattr(part, "config", None), "problem_type"):
        return False
    model = type(getattr(part, "_orig_mod", part))  # of torch.compile
    if not any(CLASSIFIER.search(base.__name__) for base in model.__mro__):
        raise ValueError(
            f"{model.__name__} is no classification model of transformers (one whose class is named ...For..."
            "Classification): its loss is not that of logits and labels, row by row. Let the module have "
            "ASSoftmaxMixin, call self.as_softmax_loss(logits, target) in training_step, and leave replaces out"
        )
    return True


def replace_huggingface_loss(owner: ASSoftmaxMixin, model: nn.Module) -> None:
    """Let ``model(**batch).loss`` be the masked loss of the model's logits and ``labels``.

    The model's forward stays unchanged; a hook puts the masked loss into its output. Several labels per sample
    (``problem_type="multi_label_classification"``) take the multi-label loss; labels of -100 are ignored, as in
    ``transformers``.

    Args:
        owner: the LightningModule, whose margin is used and which counts the masking.
        model: one that :func:`is_huggingface_classifier` takes.

    Raises:
        ValueError: at the first batch if the model regresses, or returns a tuple (``return_dict=False``).
    """

    def masked(module: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any], output: Any) -> Any:
        labels = named.get("labels")
        if labels is None:
            return output
        problem = module.config.problem_type  # type: ignore[union-attr]
        if problem == "regression":
            raise ValueError(
                "AS-Softmax needs classes, and this model regresses: set num_labels to at least 2 in its config"
            )
        if not hasattr(output, "logits"):
            raise ValueError("the model returns a tuple: leave return_dict as it is, so that it names its logits")
        if problem == "multi_label_classification":
            output["loss"] = owner.multilabel_as_softmax_loss(output.logits, labels)
        else:
            classes = output.logits.shape[-1]
            output["loss"] = owner.as_softmax_loss(output.logits.reshape(-1, classes), labels.reshape(-1))
        return output

    model.register_forward_hook(masked, with_kwargs=True)
