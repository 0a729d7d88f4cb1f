"""The losses with a margin, as PyTorch losses: thin shells over `as_lightning.functional`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_class_weight, check_reduction
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import as_linear_cross_entropy, check_linear
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.multilabel import multilabel_as_cross_entropy

if TYPE_CHECKING:
    from as_lightning.functional.counts import MaskingCounts
    from as_lightning.masking_counter import MaskingCounter

Loss = TypeVar("Loss", bound="MaskedLoss")


class MaskedLoss(nn.Module):
    """A loss with a margin ``delta``, whose masking the callbacks count while a batch is trained.

    Attributes:
        delta: the margin of the next loss, in [0, 1]. Set it at any time.
        masks: whether the margin is in force; without it the loss is that of ``delta=1``.
        called: whether a loss was computed since this was set to False.
        multilabel: whether the targets hold several labels.
        masking_counter: gets the counts. Callbacks set it from a batch's start to its backward.
    """

    delta: float
    masks = True
    called = False
    multilabel = False
    masking_counter: MaskingCounter | None = None
    # PyTorch's losses whose settings `like` takes over, and the settings
    replaces: ClassVar[tuple[type[nn.Module], Callable[..., Tensor]]]
    kept: ClassVar[tuple[str, ...]]

    def counted(self, function: Callable[..., Any], *operands: Tensor, **settings: Any) -> Tensor:
        """Return a ``function`` at this margin, and report its counts. The target comes last."""
        self.called = True
        delta = self.delta if self.masks else 1.0
        if self.masking_counter is None:
            return function(*operands, delta, **settings)
        loss, counts = function(*operands, delta, **settings, return_counts=True)
        divisor = denominator(counts, operands[-1], **settings)
        self.masking_counter.update(counts, denominator=divisor)
        return loss

    @classmethod
    def like(cls: type[Loss], loss: Any, delta: float = DEFAULT_DELTA) -> Loss:
        """Return a masked loss with the settings of PyTorch's own: a module, a function, or a
        ``functools.partial`` of one.

        Raises:
            TypeError: if ``loss`` is anything else, or has a setting that the masked loss lacks.
        """
        called, settings = loss, {}
        if isinstance(loss, partial) and not loss.args:
            called, settings = loss.func, loss.keywords
        module, function = cls.replaces
        if type(called) is module:
            names = ("weight", "pos_weight", "ignore_index", "reduction", "label_smoothing")
            own = {name: getattr(called, name) for name in names if hasattr(called, name)}
            settings = {**own, **settings}
        given = {name: value for name, value in settings.items() if value is not None}
        if given.get("label_smoothing") == 0:
            del given["label_smoothing"]
        if (type(called) is not module and called is not function) or given.keys() - cls.kept:
            kind = getattr(loss, "__name__", type(loss).__name__)
            raise TypeError(
                f"{cls.__name__} takes the place of {module.__name__}, {function.__name__} or a "
                f"functools.partial of one, with {', '.join(cls.kept)}, not of {kind} with "
                f"{', '.join(given)}: call self.as_softmax_loss(logits, target) in training_step"
            )
        masked = cls(delta, **given)
        if not isinstance(loss, nn.Module):  # the weight of a function is in no state dict
            weight: Any = masked.weight
            masked.register_buffer("weight", weight, persistent=False)
        return masked

    def extra_repr(self) -> str:
        return f"delta={self.delta}"


def masked_losses(module: nn.Module) -> list[MaskedLoss]:
    return [part for part in module.modules() if isinstance(part, MaskedLoss)]


def denominator(
    counts: MaskingCounts,
    target: Tensor,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    **_: Any,
) -> Tensor:
    """Return what a loss divides by, NaN where it is not reduced."""
    if reduction != "mean":
        divisor = 1.0 if reduction == "sum" else torch.nan
        return torch.full_like(counts.samples, divisor, dtype=torch.float32)
    if weight is None:
        return counts.samples
    return summed_weights(target, weight, ignore_index)


def summed_weights(target: Tensor, weight: Tensor, ignore_index: int = -100) -> Tensor:
    """Return what a weighted mean divides by: the targets' class weights, without ignored ones."""
    ignored = target == ignore_index
    weights = weight[target.masked_fill(ignored, 0).long()]
    return weights.masked_fill(ignored, 0.0).sum()


def check_one_class(logits: Tensor, target: Tensor) -> None:
    """Raise ``TypeError`` if the target holds a number for each class."""
    if target.shape == logits.shape:
        raise TypeError(
            "AS-Softmax takes one class index per sample, and target has the shape of the logits: "
            "of several labels use MultiLabelASSoftmaxLoss, or self.multilabel_as_softmax_loss"
        )


def cross_entropy_settings(loss: nn.CrossEntropyLoss) -> dict[str, Any]:
    """Return the settings that the function of a loss of one class per sample takes."""
    if loss.label_smoothing:
        raise ValueError(f"label_smoothing must be 0, which {type(loss).__name__} does without")
    return {"weight": loss.weight, "ignore_index": loss.ignore_index, "reduction": loss.reduction}


class ASSoftmaxLoss(MaskedLoss, nn.CrossEntropyLoss):
    r"""AS-Softmax as an `torch.nn.CrossEntropyLoss`: settings and state dict are PyTorch's own.

    Args:
        delta: the margin, in [0, 1]; 1 is plain cross-entropy. The paper's is 0.1.
        **settings: ``weight``, ``ignore_index`` and ``reduction`` of `torch.nn.CrossEntropyLoss`.

    Source: paper, section III; shapes and errors are those of `as_cross_entropy`.

    Examples:
        >>> import torch
        >>> loss = ASSoftmaxLoss(delta=0.5)
        >>> loss(torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]]), torch.tensor([0, 0]))
        tensor(0.3351)
        >>> ASSoftmaxLoss.like(torch.nn.CrossEntropyLoss(ignore_index=0), delta=0.7)
        ASSoftmaxLoss(delta=0.7)
    """

    replaces = (nn.CrossEntropyLoss, F.cross_entropy)
    kept = ("weight", "ignore_index", "reduction")

    def __init__(self, delta: float = DEFAULT_DELTA, **settings: Any) -> None:
        super().__init__(**settings)
        self.delta = check_delta(delta)
        check_reduction(self.reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        check_one_class(input, target)
        return self.counted(as_cross_entropy, input, target, **cross_entropy_settings(self))


class MultiLabelASSoftmaxLoss(MaskedLoss, nn.BCEWithLogitsLoss):
    r"""AS-Softmax of several labels per sample, as an `torch.nn.BCEWithLogitsLoss`.

    Args:
        delta: the margin, in [0, 1]; 1 masks nothing. The paper's is 0.1.
        ignore_index: target value of unknown labels, which are left out.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Raises:
        ValueError: if logits and target are not ``(N, C)`` with two labels or more.

    Source: paper, section III; other errors are those of `multilabel_as_cross_entropy`.

    Examples:
        >>> import torch
        >>> loss = MultiLabelASSoftmaxLoss(delta=0.5)
        >>> logits = torch.tensor([[4.0, 0.0, -3.0], [1.0, 0.9, -2.0]])
        >>> loss(logits, torch.tensor([[1, 0, 0], [0, 1, 0]]))
        tensor(0.8451)
    """

    replaces = (nn.BCEWithLogitsLoss, F.binary_cross_entropy_with_logits)
    kept = ("reduction",)
    multilabel = True

    def __init__(
        self, delta: float = DEFAULT_DELTA, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=check_reduction(reduction))
        self.delta = check_delta(delta)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if input.dim() != 2 or input.size(1) == 1:
            raise ValueError(
                "MultiLabelASSoftmaxLoss expects logits of shape (N, C) with C labels per sample, "
                f"two or more, got {tuple(input.shape)}: of one label no margin can be met; of "
                "more dimensions use self.multilabel_as_softmax_loss, with labels in dimension 1"
            )
        settings = {"ignore_index": self.ignore_index, "reduction": self.reduction}
        return self.counted(multilabel_as_cross_entropy, input, target, **settings)


def masked_loss_like(loss: Any, delta: float = DEFAULT_DELTA) -> MaskedLoss:
    """Return the masked loss for the place of one of PyTorch's, of one class or several labels."""
    called = loss.func if isinstance(loss, partial) else loss
    module, function = MultiLabelASSoftmaxLoss.replaces
    if type(called) is module or called is function:
        return MultiLabelASSoftmaxLoss.like(loss, delta)
    return ASSoftmaxLoss.like(loss, delta)


class LinearCrossEntropyLoss(MaskedLoss, nn.CrossEntropyLoss):
    r"""A wide linear layer and its cross-entropy in one module, without ever holding the logits.

    ``loss.linear(hidden)`` gives the logits for validation and prediction. State dicts load from
    and into PyTorch's ``torch.nn.LinearCrossEntropyLoss`` (2.13 and later).

    Args:
        in_features: the width ``d`` of the hidden states.
        num_classes: the number of classes ``C``.
        bias: whether the layer has a bias. Off by default, as in PyTorch's module.
        delta: the margin of AS-Softmax, in [0, 1]; 1, the default, is plain cross-entropy.
        device: that of the layer.
        dtype: that of the layer.
        **settings: ``weight``, ``ignore_index`` and ``reduction`` of `torch.nn.CrossEntropyLoss`.

    Raises:
        TypeError: if ``linear`` is no plain ``nn.Linear`` any more, as after pruning: it is read,
            and neither it nor its hooks are called.

    Source: the signature follows PyTorch 2.13; shapes and errors are `linear_cross_entropy`'s.

    Examples:
        >>> import torch
        >>> loss = LinearCrossEntropyLoss(16, 50_000)
        >>> loss(torch.randn(4, 16), torch.tensor([0, 7, 7, 49_999])).backward()
        >>> loss.linear.weight.grad.shape
        torch.Size([50000, 16])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        delta: float = 1.0,
        device: Any = None,
        dtype: Any = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        check_class_weight(self.weight, num_classes)
        check_reduction(cross_entropy_settings(self)["reduction"])
        self.delta = check_delta(delta)
        self.linear = nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        check_linear(self.linear, f"use ASSoftmaxLoss({self.delta})(linear(hidden), target)")
        settings = {"bias": self.linear.bias, **cross_entropy_settings(self)}
        operands = input, self.linear.weight, target
        return self.counted(as_linear_cross_entropy, *operands, **settings)
