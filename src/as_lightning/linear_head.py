"""Which output layer the fused loss can stand for: a plain ``nn.Linear``, whose forward it does not call."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from as_lightning.functional.class_parallel import is_dtensor, is_placement_hook


def check_linear_head(head: nn.Linear) -> None:
    """Raise ``TypeError`` unless the logits of ``head`` are ``hidden @ weight.T + bias`` and nothing else."""
    if "forward" in vars(head):
        problem = f"the forward of this {type(head).__name__} has been replaced"
    elif type_before_parametrizations(head) is not nn.Linear:
        problem = f"it is {type(head).__name__}, whose forward may compute something else"
    elif _has_hooks_of_its_own(head):
        problem = "it has hooks, which would not be called"
    else:
        return
    raise TypeError(
        f"as_softmax_head_loss reads the weight and bias of an nn.Linear and does not call it, but {problem}: use "
        "self.as_softmax_loss(head(hidden), target)"
    )


def _has_hooks_of_its_own(head: nn.Linear) -> bool:
    """Whether a head has other hooks than those of a parallel style, which place what the loss places itself."""
    kinds = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
    hooks = [hook for kind in kinds for hook in kind.values()]
    return bool(hooks) and not (is_dtensor(head.weight) and all(map(is_placement_hook, hooks)))
