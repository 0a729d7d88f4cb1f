"""The methods with class-index targets, each with the arguments it is tested with and its
reference.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from oracles import variants as reference

from as_lightning import functional
from as_lightning.functional.calling_convention import class_dimension


@dataclass(frozen=True)
class Method:
    loss: Callable[..., Any]
    reference_loss: Callable[..., float]
    transform: Callable[..., Any] | None
    reference_transform: Callable[..., Any] | None
    arguments: dict[str, Any] = field(default_factory=dict)
    loss_arguments: dict[str, Any] = field(default_factory=dict)
    shift_invariant: bool = True
    gradient_is_p_minus_onehot: bool = False

    @property
    def all_loss_arguments(self):
        return {**self.arguments, **self.loss_arguments}


def with_class_counts(loss):
    """The loss, given the class counts of its oracle."""

    @functools.wraps(loss)
    def counted(logits, target, **arguments):
        classes = logits.size(class_dimension(logits)) if getattr(logits, "ndim", 0) else 1
        return loss(
            logits,
            target,
            class_counts=torch.from_numpy(reference.class_counts(classes)),
            **arguments,
        )

    return counted


def method(name, **options):
    loss = getattr(functional, f"{name}_loss")
    return Method(
        loss=with_class_counts(loss) if name == "logit_adjusted" else loss,
        reference_loss=getattr(reference, f"{name}_loss"),
        transform=getattr(functional, name, None),
        reference_transform=getattr(reference, name, None),
        **options,
    )


METHODS = {
    "t_softmax_low": method("t_softmax", arguments={"tau": 0.5}),
    "t_softmax_one": method("t_softmax", arguments={"tau": 1.0}, gradient_is_p_minus_onehot=True),
    "t_softmax_high": method("t_softmax", arguments={"tau": 3.0}),
    "logit_adjusted": method("logit_adjusted", arguments={"tau": 1.0}),
    "logit_adjusted_strongly": method("logit_adjusted", arguments={"tau": 2.5}),
    "focal_weak": method("focal", arguments={"gamma": 0.5}),
    "focal": method("focal", arguments={"gamma": 2.0}),
    "generalised_cross_entropy": method("generalised_cross_entropy", arguments={"q": 0.7}),
    "generalised_cross_entropy_one": method("generalised_cross_entropy", arguments={"q": 1.0}),
    "encouraging": method("encouraging", arguments={"log_end": 0.75}),
    "encouraging_linear": method("encouraging", arguments={"log_end": 0.0}),
    "sparse_softmax": method("sparse_softmax", arguments={"k": 3}),
    "sparsemax": method("sparsemax", gradient_is_p_minus_onehot=True),
    "entmax_1.001": method("entmax", arguments={"alpha": 1.001}, gradient_is_p_minus_onehot=True),
    "entmax_1.2": method("entmax", arguments={"alpha": 1.2}, gradient_is_p_minus_onehot=True),
    "entmax_1.5": method("entmax", arguments={"alpha": 1.5}, gradient_is_p_minus_onehot=True),
    "entmax_2": method("entmax", arguments={"alpha": 2.0}, gradient_is_p_minus_onehot=True),
    "taylor_softmax_2": method("taylor_softmax", arguments={"order": 2}, shift_invariant=False),
    "taylor_softmax_4": method("taylor_softmax", arguments={"order": 4}, shift_invariant=False),
    "taylor_softmax_6": method("taylor_softmax", arguments={"order": 6}, shift_invariant=False),
    "am_softmax": method("am_softmax", arguments={"tau": 0.2}, loss_arguments={"margin": 0.35}),
    "am_softmax_no_margin": method(
        "am_softmax", arguments={"tau": 1.0}, loss_arguments={"margin": 0.0}
    ),
    "perturb_max_gumbel": method(
        "perturb_max", arguments={"noise": "gumbel"}, gradient_is_p_minus_onehot=True
    ),
    "perturb_max_normal": method("perturb_max", arguments={"noise": "normal"}),
    "perturb_max_logistic": method("perturb_max", arguments={"noise": "logistic"}),
}


def random_logits(*shape, scale=2.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


WITH_TRANSFORM = {name: entry for name, entry in METHODS.items() if entry.transform is not None}
