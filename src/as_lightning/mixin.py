"""The masked loss for a LightningModule: a new one, or one that exists."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import as_linear_cross_entropy
from as_lightning.functional.masking import check_delta
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.losses import ASSoftmaxLoss, MultiLabelASSoftmaxLoss
from as_lightning.masking_counter import MaskingCounter
from as_lightning.schedules import DeltaWarmup

if TYPE_CHECKING:
    import lightning.pytorch as pl

    _Base = pl.LightningModule
else:
    _Base = object


class ASSoftmaxMixin(_Base):
    r"""Gives a ``LightningModule`` the AS-Softmax loss and reports the masking to the callbacks.

    Name it *before* the module's class. In a new module, call :meth:`as_softmax_loss` in ``training_step``:

    >>> import lightning.pytorch as pl, torch
    >>> class LitClassifier(ASSoftmaxMixin, pl.LightningModule):
    ...     def __init__(self, net, delta=0.1):
    ...         super().__init__(delta=delta)
    ...         self.net = net
    ...     def training_step(self, batch, batch_idx):
    ...         x, y = batch
    ...         return self.as_softmax_loss(self.net(x), y)
    >>> loss = LitClassifier(torch.nn.Linear(4, 3)).training_step((torch.ones(2, 4), torch.tensor([0, 2])), 0)
    >>> loss.shape
    torch.Size([])

    Or mix it into a module that exists, whose ``training_step`` calls an attribute as ``loss(logits, target)``. Name
    that attribute (dots reach into submodules); its ``weight``, ``ignore_index`` and ``reduction`` stay in force, and
    an ``nn.BCEWithLogitsLoss`` becomes the multi-label loss:

    >>> class Theirs(pl.LightningModule):
    ...     def __init__(self, features):
    ...         super().__init__()
    ...         self.save_hyperparameters()
    ...         self.net = torch.nn.Linear(features, 3)
    ...         self.criterion = torch.nn.CrossEntropyLoss()
    >>> class WithAS(ASSoftmaxMixin, Theirs):
    ...     as_softmax_replaces = "criterion"
    >>> WithAS(4, delta=0.2).hparams
    "delta":        0.2
    "delta_warmup": None
    "features":     4

    Args:
        *args: positional arguments of the next class in line.
        delta: the margin, in [0, 1].
        delta_warmup: a margin schedule for the start of training.
        **kwargs: keyword arguments of the next class in line.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], or the loss to replace smooths labels (AS-Softmax has one target
            class).
        AttributeError: if ``as_softmax_replaces`` names nothing that the module has after its ``__init__``.

    Note:
        Batches are counted while training only. Validation and test use the margin ``delta`` itself, also during a
        warm-up, so that their losses stay comparable from epoch to epoch.

    Source: paper, section III; Lightning's ``save_hyperparameters`` collects ``delta`` with the module's own arguments.
    """

    as_softmax_replaces: ClassVar[str | None] = None
    masking_counter: MaskingCounter

    def __init__(self, *args: Any, delta: float = 0.1, delta_warmup: DeltaWarmup | None = None, **kwargs: Any) -> None:
        delta = check_delta(delta)
        super().__init__(*args, **kwargs)
        self.masking_counter = MaskingCounter()
        self._as_softmax_delta = delta
        self._as_softmax_warmup = delta_warmup
        if self.as_softmax_replaces is not None:
            self._replace_loss(self.as_softmax_replaces)

    @property
    def as_softmax_delta(self) -> float:
        """The margin that the next loss uses: on its warm-up schedule in training, ``delta`` otherwise."""
        if not hasattr(self, "_as_softmax_delta"):
            raise RuntimeError(
                f"{type(self).__name__} was not initialised by ASSoftmaxMixin: name the mixin before the module's "
                "class, as in `class Model(ASSoftmaxMixin, LightningModule)`, and call `super().__init__(delta=...)` "
                "first in its __init__."
            )
        warmup = self._as_softmax_warmup
        if warmup is None or self._trainer is None or not self._trainer.training:
            return self._as_softmax_delta
        return warmup.delta_at(self._trainer.fit_loop.total_batch_idx, self._training_batches(), self._as_softmax_delta)

    def as_softmax_loss(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Tensor:
        """:func:`~as_lightning.functional.as_cross_entropy` at the current margin; counts the masking in training."""
        return self._counted(
            as_cross_entropy,
            logits,
            target,
            self.as_softmax_delta,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )

    def as_softmax_head_loss(
        self,
        hidden: Tensor,
        head: nn.Linear,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Tensor:
        """The same loss of ``head(hidden)`` for a wide ``nn.Linear`` head, without ever holding the logits.

        See :func:`~as_lightning.functional.as_linear_cross_entropy`; ``weight`` holds class weights.
        """
        return self._counted(
            as_linear_cross_entropy,
            hidden,
            head.weight,
            target,
            self.as_softmax_delta,
            bias=head.bias,
            class_weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )

    def multilabel_as_softmax_loss(self, logits: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
        """:func:`~as_lightning.functional.multilabel_as_cross_entropy` at the current margin, with counting."""
        return self._counted(multilabel_as_cross_entropy, logits, target, self.as_softmax_delta, reduction=reduction)

    def _counted(self, loss_function: Callable[..., tuple[Tensor, MaskingCounts]], *args: Any, **kwargs: Any) -> Tensor:
        # a trainer knows better than train(): parts in eval mode are trained too, as in fine-tuning
        if not (self.training if self._trainer is None else self._trainer.training):
            return loss_function(*args, **kwargs, return_counts=False)  # type: ignore[return-value]
        loss, counts = loss_function(*args, **kwargs, return_counts=True)
        self.masking_counter.update(counts)
        return loss

    def _training_batches(self) -> float:
        """The length of training in batches; infinite where Lightning cannot know it.

        ``max_steps`` counts optimizer steps, whose number of batches adaptive accumulation decides as it goes.
        """
        trainer = self.trainer
        if trainer.max_steps != -1 or trainer.max_epochs in (None, -1):
            return math.inf
        return trainer.num_training_batches * trainer.max_epochs

    def _replace_loss(self, name: str) -> None:
        parent_name, _, attribute = name.rpartition(".")
        try:
            parent = attrgetter(parent_name)(self) if parent_name else self
            replaced = getattr(parent, attribute)
        except AttributeError:
            raise AttributeError(
                f"as_softmax_replaces = {name!r}, but {type(self).__name__} has no such attribute after its __init__: "
                "name the attribute that training_step calls as loss(logits, target). A loss that is a local call "
                "(F.cross_entropy(...)) cannot be replaced from outside: call self.as_softmax_loss there."
            ) from None
        if isinstance(replaced, nn.Module) and attribute not in parent._modules:
            raise AttributeError(f"as_softmax_replaces = {name!r} is a class attribute that cannot be replaced")
        if not isinstance(replaced, nn.Module):
            parent.__dict__.pop(attribute, None)  # a plain function there would hide the module that takes its place
        setattr(parent, attribute, _replacement(self, replaced))


def _replacement(owner: ASSoftmaxMixin, replaced: Any) -> nn.Module:
    """The masked loss with the settings of the loss that it takes the place of."""
    if isinstance(replaced, nn.BCEWithLogitsLoss):
        if replaced.weight is not None or replaced.pos_weight is not None:
            raise ValueError("the multi-label AS-Softmax loss has no weights: drop weight and pos_weight")
        return _MultiLabelReplacement(owner.multilabel_as_softmax_loss, reduction=replaced.reduction)
    smoothing = getattr(replaced, "label_smoothing", 0.0)
    if smoothing:
        raise ValueError(
            f"the loss to replace has label_smoothing={smoothing}, which AS-Softmax has no use for (its margin is "
            "measured from one target class): set label_smoothing=0"
        )
    settings = {key: getattr(replaced, key) for key in ("ignore_index", "reduction") if hasattr(replaced, key)}
    return _SingleLabelReplacement(owner.as_softmax_loss, weight=getattr(replaced, "weight", None), **settings)


class _SingleLabelReplacement(ASSoftmaxLoss):
    """Stands where the module's own loss stood; the margin and the counting are its owner's."""

    def __init__(self, loss: Callable[..., Tensor], **settings: Any) -> None:
        super().__init__(**settings)
        self.loss = loss

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.loss(logits, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"ignore_index={self.ignore_index}, reduction={self.reduction!r}, delta: see as_softmax_delta"


class _MultiLabelReplacement(MultiLabelASSoftmaxLoss):
    def __init__(self, loss: Callable[..., Tensor], **settings: Any) -> None:
        super().__init__(**settings)
        self.loss = loss

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.loss(logits, target, reduction=self.reduction)
