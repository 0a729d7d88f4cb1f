"""The logits of an evaluation, taken from the module's own forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from as_lightning.functional.calibration import is_multilabel
from as_lightning.functional.calling_convention import in_float64
from as_lightning.hugging_face import LossOfLabels

LogitsAndTarget = tuple[Tensor, Tensor]


class EvaluationLogits:
    """Finds each batch's logits and target as `TemperatureScaling` says, for a ``callback``."""

    def __init__(
        self,
        callback: str,
        logits: Callable[[LightningModule, Any], LogitsAndTarget] | None,
        dataloader_idx: int,
    ) -> None:
        self.callback, self.logits, self.dataloader_idx = callback, logits, dataloader_idx
        self.target: str | int | None = None  # its place in a batch, where `compare` knows it
        self._outputs: list[Tensor] = []  # the different logits of the present step
        self._labels: Any = None  # the labels that a Hugging Face model was called with
        self._hooks: list[RemovableHandle] = []
        self._depth = 0  # of the nested calls of the module
        self._min_depth = 1  # that of the module's own forward
        self._several_loaders = False
        self._checked = False  # whether a batch of this evaluation held logits, not probabilities

    def start(self, pl_module: LightningModule) -> None:
        """Watch the forward passes of an evaluation; refuse one that lacks the chosen loader."""
        self.stop()
        loop = pl_module.trainer._evaluation_loop
        loaders = 1
        if loop._is_sequential:  # other modes join the batches of all loaders
            loaders = loop.num_dataloaders
        self._several_loaders = loaders > 1
        if self._several_loaders and not 0 <= self.dataloader_idx < loaders:
            raise MisconfigurationException(
                f"{self.callback}(dataloader_idx={self.dataloader_idx}), but the evaluation has "
                f"{loaders} loaders: choose one of 0 to {loaders - 1}"
            )
        if self.logits is None and not hasattr(pl_module, "validation_logits"):
            # DDP runs the whole step in an outer call of the module, whose output is not the logits
            strategy = pl_module.trainer.strategy
            self._min_depth = 1 if strategy.model is strategy.lightning_module else 2
            before, after = pl_module.register_forward_pre_hook, pl_module.register_forward_hook
            self._hooks = [before(self._enter), after(self._leave, always_call=True)]
            keep = partial(self._keep_of_model, pl_module)
            # steps call a Hugging Face model whose loss is replaced
            for part in pl_module.modules():
                if any(isinstance(hook, LossOfLabels) for hook in part._forward_hooks.values()):
                    self._hooks.append(part.register_forward_hook(keep, with_kwargs=True))

    @property
    def suffix(self) -> str:
        """What Lightning adds to a metric's name where there are several loaders."""
        if self._several_loaders:
            return f"/dataloader_idx_{self.dataloader_idx}"
        return ""

    def takes(self, dataloader_idx: int) -> bool:
        """Return whether batches of this loader are used; forget the outputs of one that is not."""
        if self._several_loaders and dataloader_idx != self.dataloader_idx:
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Forget the outputs of a step."""
        self._outputs.clear()
        self._labels = None

    def stop(self) -> None:
        """Remove the hooks, and forget what they have kept."""
        while self._hooks:
            self._hooks.pop().remove()
        self._depth, self._checked = 0, False
        self.drop()

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        self._depth += 1

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if self._depth >= self._min_depth:
            self._keep(module, output)
        self._depth -= 1

    def _keep_of_model(
        self,
        pl_module: LightningModule,
        model: torch.nn.Module,
        inputs: Any,
        named: dict[str, Any],
        output: Any,
    ) -> None:
        if self._keep(pl_module, output):
            self._labels = named.get("labels")

    def _keep(self, pl_module: Any, output: Any) -> bool:
        """Keep the logits of an output in a step, not in another hook of module or callbacks."""
        logits = getattr(output, "logits", output)
        if pl_module._current_fx_name not in ("validation_step", "test_step"):
            return False
        if not isinstance(logits, Tensor) or logits.dim() < 2:
            return False
        if all(logits is not kept for kept in self._outputs):
            self._outputs.append(logits)
        return True

    def of(self, pl_module: LightningModule, batch: Any) -> tuple[Tensor, Tensor, bool]:
        """Return logits, target, and whether there are several labels, of a batch just evaluated.

        Raise ``MisconfigurationException`` if they are not found or do not fit each other.
        """
        logits: Any = None
        if self.logits is not None:
            logits, target = self.logits(pl_module, batch)
        elif hasattr(pl_module, "validation_logits"):
            logits, target = pl_module.validation_logits(batch)  # type: ignore[operator]
        else:
            if len(self._outputs) == 1:
                logits = self._outputs[0]
            target = self._labels
            if target is None:
                target = _target_of(batch) if self.target is None else batch[self.target]
        outputs = len(self._outputs)
        self.drop()
        way_out = f"{self.callback}(logits=lambda module, batch: (module.net(batch[0]), batch[1]))"
        if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
            missing = "target" if isinstance(logits, Tensor) else "logits"
            raise MisconfigurationException(
                f"{self.callback} found no {missing} of a batch: {type(pl_module).__name__} must "
                "call its forward, as self(x), once in validation_step and test_step "
                f"({outputs} outputs were seen), with a batch of (x, target) or a "
                "mapping with 'labels'; or give it a method validation_logits(batch) that returns "
                f"(logits, target), or use {way_out}."
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
    """Processes each batch of the validations of ``fit`` and ``validate``, not the sanity check."""

    def __init__(
        self,
        logits: Callable[[LightningModule, Any], LogitsAndTarget] | None,
        ignore_index: int,
        dataloader_idx: int,
    ) -> None:
        self.ignore_index = ignore_index
        self.source = EvaluationLogits(type(self).__name__, logits, dataloader_idx)

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

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not trainer.sanity_checking and self.source.takes(dataloader_idx):
            self._add_batch(pl_module, batch)
        self.source.drop()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.source.stop()
        if not trainer.sanity_checking:
            self._finish_validation(trainer, pl_module)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.source.stop()
