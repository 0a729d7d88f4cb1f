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
from as_lightning.hugging_face import LossOfLabels

LogitsAndTarget = tuple[Tensor, Tensor]


class EvaluationLogits:
    """Finds each batch's logits and target as `TemperatureScaling` says; messages name the
    ``callback`` that asks.
    """

    def __init__(
        self,
        callback: str,
        logits: Callable[[LightningModule, Any], LogitsAndTarget] | None,
        dataloader_idx: int,
    ) -> None:
        self.callback, self.logits, self.dataloader_idx = callback, logits, dataloader_idx
        self.target: str | int | None = None  # the target's key or position in a batch, if known
        self._output: Any = None
        self._labels: Any = None  # the labels that a Hugging Face model was called with
        self._hooks: list[RemovableHandle] = []
        self._depth = 0  # of the nested calls of the module
        self._min_depth = 1  # that of the module's own forward
        self._several_loaders = False

    def start(self, pl_module: LightningModule) -> None:
        """Watch the forward passes of an evaluation that begins; refuse one whose loaders lack
        ``dataloader_idx``.
        """
        self.stop()
        loop = pl_module.trainer._evaluation_loop
        loaders = (
            loop.num_dataloaders if loop._is_sequential else 1
        )  # other modes join the batches of all loaders
        self._several_loaders = loaders > 1
        if self._several_loaders and not 0 <= self.dataloader_idx < loaders:
            raise MisconfigurationException(
                f"{self.callback}(dataloader_idx={self.dataloader_idx}), but the evaluation has "
                f"{loaders} loaders: "
                f"choose one of 0 to {loaders - 1}"
            )
        if self.logits is None and not hasattr(pl_module, "validation_logits"):
            # DDP runs the whole step in an outer call of the module, whose output is not the logits
            strategy = pl_module.trainer.strategy
            self._depth, self._min_depth = (
                0,
                1 if strategy.model is strategy.lightning_module else 2,
            )
            before, after = pl_module.register_forward_pre_hook, pl_module.register_forward_hook
            self._hooks = [before(self._enter), after(self._keep_output, always_call=True)]
            keep = partial(self._keep_output_of_model, pl_module)
            for (
                part
            ) in pl_module.modules():  # steps call a Hugging Face model whose loss is replaced
                if any(isinstance(hook, LossOfLabels) for hook in part._forward_hooks.values()):
                    self._hooks.append(part.register_forward_hook(keep, with_kwargs=True))

    @property
    def suffix(self) -> str:
        """What Lightning adds to a metric's name where there are several loaders."""
        return f"/dataloader_idx_{self.dataloader_idx}" if self._several_loaders else ""

    def takes(self, dataloader_idx: int) -> bool:
        """Whether batches of this loader are used: of several loaders, those of the chosen one
        alone.
        """
        return not self._several_loaders or dataloader_idx == self.dataloader_idx

    def stop(self) -> None:
        """Remove the hooks, and drop what they have kept."""
        while self._hooks:
            self._hooks.pop().remove()
        self._output = self._labels = None

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        self._depth += 1

    def _keep_output(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self._depth -= 1
        logits = getattr(output, "logits", output)
        if (
            self._depth + 1 >= self._min_depth
            and isinstance(logits, Tensor)
            and logits.dim() >= 2
            and _in_step(module)
        ):
            self._output = output

    def _keep_output_of_model(
        self,
        pl_module: LightningModule,
        model: torch.nn.Module,
        inputs: Any,
        named: dict[str, Any],
        output: Any,
    ) -> None:
        if _in_step(pl_module):
            self._output, self._labels = output, named.get("labels")

    def of(self, pl_module: LightningModule, batch: Any) -> tuple[Tensor, Tensor, bool]:
        """Logits and target of the batch just evaluated, without gradients, and whether a target
        holds several labels.

        Raises ``MisconfigurationException`` if they are not found or do not fit each other.
        """
        if self.logits is not None:
            logits, target = self.logits(pl_module, batch)
        elif hasattr(pl_module, "validation_logits"):
            logits, target = pl_module.validation_logits(batch)  # type: ignore[operator]
        else:
            logits, self._output = getattr(self._output, "logits", self._output), None
            target, self._labels = self._labels, None
            if target is None:
                target = _target_of(batch) if self.target is None else batch[self.target]
        if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
            missing = "logits" if not isinstance(logits, Tensor) else "target"
            raise MisconfigurationException(
                f"{self.callback} found no {missing} of a batch: {type(pl_module).__name__} must "
                "call its forward, "
                "as self(x), in validation_step and test_step, with a batch of (x, target) or a "
                "mapping with 'labels'; "
                "or give it a method validation_logits(batch) that returns (logits, target), or "
                "use "
                f"{self.callback}(logits=lambda module, batch: (module.net(batch[0]), batch[1]))."
            )
        try:
            multilabel = is_multilabel(logits, target)
        except ValueError as error:
            raise MisconfigurationException(
                f"{self.callback}: {error}, in {self.callback}(logits=...)"
            ) from None
        return logits.detach(), target.detach(), multilabel


def _in_step(pl_module: Any) -> bool:
    """Whether an evaluation's step runs now, not another hook of the module or a callback."""
    return pl_module._current_fx_name in ("validation_step", "test_step")


def _target_of(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return batch.get("labels")
    return batch[-1] if isinstance(batch, Sequence) and len(batch) > 1 else None


class ValidationCallback(Callback):
    """Processes each batch of the validations in ``fit``, not of the sanity check or of
    ``trainer.validate``.
    """

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

    def _start(self, pl_module: LightningModule) -> None:
        self.source.start(pl_module)

    def _see(self, trainer: Trainer, pl_module: LightningModule, batch: Any) -> None:
        """Process a batch that was validated."""

    def _end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Process the end of a validation."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if _fitting(trainer):
            self._start(pl_module)
        elif trainer.sanity_checking:  # a step that is compiled there keeps the hooks of that time
            self.source.start(pl_module)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if _fitting(trainer) and self.source.takes(dataloader_idx):
            self._see(trainer, pl_module, batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.source.stop()
        if _fitting(trainer):
            self._end(trainer, pl_module)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.source.stop()


def _fitting(trainer: Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking
