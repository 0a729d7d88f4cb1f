"""The logits of an evaluation, taken from the module's own forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from as_lightning.functional.calibration import is_multilabel
from as_lightning.functional.calling_convention import in_float64
from as_lightning.hugging_face import is_hugging_face_model

LogitsAndTarget = tuple[Tensor, Tensor]
Logits = Callable[[LightningModule, Any], LogitsAndTarget] | None


class EvaluationLogits:
    """Finds each batch's logits and target as `TemperatureScaling` says, for a ``callback``."""

    def __init__(self, callback: str, logits: Logits) -> None:
        self.callback, self.logits = callback, logits
        # The different logits of the present step: of the module's forward, of models inside it.
        self._own: list[Tensor] = []
        self._inner: list[Tensor] = []
        self._hooks: list[RemovableHandle] = []
        self._checked = False  # whether a batch of this evaluation held logits, not probabilities

    def start(self, pl_module: LightningModule) -> None:
        self.stop()
        if self.logits is not None or hasattr(pl_module, "validation_logits"):
            return
        for part in pl_module.modules():
            if part is pl_module or is_hugging_face_model(part):
                self._hooks.append(part.register_forward_hook(self._keep))

    def drop(self) -> None:
        self._own.clear()
        self._inner.clear()

    def stop(self) -> None:
        """Remove the hooks, and forget what they have kept."""
        while self._hooks:
            self._hooks.pop().remove()
        self._checked = False
        self.drop()

    def _keep(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        own = isinstance(module, LightningModule)
        logits = getattr(output, "logits", output if own else None)
        if not isinstance(logits, Tensor) or logits.dim() < 2:
            return
        kept = self._own if own else self._inner
        if all(logits is not other for other in kept):
            kept.append(logits)

    def of(self, pl_module: LightningModule, batch: Any) -> tuple[Tensor, Tensor, bool]:
        """Return logits, target, and whether there are several labels, of a batch just evaluated.

        Raise ``MisconfigurationException`` if they are not found or do not fit each other.
        """
        logits: Any = None
        target: Any = None
        found = [*(self._own or self._inner)]
        outputs = len(found)
        if self.logits is not None:
            logits, target = self.logits(pl_module, batch)
        elif hasattr(pl_module, "validation_logits"):
            logits, target = pl_module.validation_logits(batch)  # type: ignore[operator]
        elif outputs == 1:
            logits, target = found[0], _target_of(batch)
        self.drop()
        way_out = f"{self.callback}(logits=lambda module, batch: (module.net(batch[0]), batch[1]))"
        if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
            raise MisconfigurationException(
                f"{self.callback} found no logits with a target of a batch: "
                f"{type(pl_module).__name__} must call its forward, as self(x), once in "
                f"validation_step and test_step ({outputs} outputs were seen), with a batch of (x, "
                "target) or a mapping with 'labels'; or give it a method validation_logits(batch) "
                f"that returns (logits, target), or use {way_out}."
            )
        try:
            multilabel = is_multilabel(logits, target)
        except ValueError as error:
            raise MisconfigurationException(f"{self.callback}: {error}, in {way_out}") from None
        if not self._checked and _are_probabilities(logits):
            raise MisconfigurationException(
                f"{self.callback} needs logits, and the rows of these sum to 1, as probabilities "
                f"do: give the values before softmax, in {way_out}"
            )
        self._checked = True
        return logits.detach(), target.detach(), multilabel


def _are_probabilities(logits: Tensor) -> bool:
    off = (in_float64(logits.detach()).sum(-1) - 1).abs()
    rows = (off < 8 * torch.finfo(logits.dtype).eps) & (logits >= 0).all(-1)
    return rows.numel() > 0 and bool(rows.all())


def _target_of(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return batch.get("labels")
    if isinstance(batch, Sequence) and len(batch) > 1:
        return batch[-1]
    return None


class ValidationCallback(Callback):
    """Processes each batch of the first loader in the validations of ``fit`` and ``validate``, not
    of the sanity check. Stands at the front of ``trainer.callbacks``: others may call the module
    after a batch.
    """

    def __init__(self, logits: Logits, ignore_index: int) -> None:
        self.ignore_index = ignore_index
        self.source = EvaluationLogits(type(self).__name__, logits)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # resumed inside a validation, Lightning would run only as many batches as were left, from
        # the first one on
        trainer.fit_loop.epoch_loop.val_loop.batch_progress.reset_on_run()

    def _begin_validation(self, pl_module: LightningModule) -> None:
        """Process the start of a validation."""

    def _add_batch(self, pl_module: LightningModule, batch: Any) -> None:
        """Process a batch that was validated."""

    def _finish_validation(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Process the end of a validation."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # in the sanity check too: a step that is compiled there keeps the hooks of that time
        self.source.start(pl_module)
        if not trainer.sanity_checking:
            self._begin_validation(pl_module)

    def on_validation_batch_start(self, *_: Any) -> None:
        self.source.drop()

    def on_test_batch_start(self, *_: Any) -> None:
        self.source.drop()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not trainer.sanity_checking and dataloader_idx == 0:
            self._add_batch(pl_module, batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.source.stop()
        if not trainer.sanity_checking:
            self._finish_validation(trainer, pl_module)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.source.stop()
