"""The losses that a comparison puts in the place of a module's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from as_lightning.benchmark.compare.search import Choice, Range, setting_range
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.run.settings import nearest
from as_lightning.callbacks.evaluation_logits import ValidationCallback
from as_lightning.mixin import ASSoftmaxMixin
from as_lightning.replaced_loss import CountedLoss, replace_loss

BASELINE = "softmax"
HUGGINGFACE_CLASSIFIER = re.compile(r"For\w*Classification$")  # sequences, tokens, images, audio
Loss = Callable[[Tensor, Tensor], Tensor]


def method_config(name: str) -> DictConfig:
    """The configuration of a method, as ``conf/method`` has it, with what it takes from others."""
    own: Any = OmegaConf.load(config_dir() / "method" / f"{name}.yaml")
    bases = [base for base in own.pop("defaults", []) if base != "_self_"]
    merged = OmegaConf.merge(*[method_config(base) for base in bases], own)
    assert isinstance(merged, DictConfig)
    return merged


def plain(value: Any) -> Any:
    """A node of a configuration as a dict or a list of Python's; anything else as it is."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


class OwnLosses:
    """The methods of a comparison of one's own module, softmax first: what each tunes, and the loss that it puts in.

    ``methods`` and ``losses`` are as `compare` takes them; ``fixed`` are settings of built-in methods that are not
    tuned, as ``{"delta": 0.2}``.
    """

    def __init__(
        self, methods: Sequence[str], losses: Mapping[str, Any] | None = None, fixed: Mapping[str, Any] | None = None
    ) -> None:
        self.fixed = dict(fixed or {})
        self.losses = {name: made if isinstance(made, tuple) else (made, {}) for name, made in (losses or {}).items()}
        others = (method for method in methods if method != BASELINE)
        self.names = (BASELINE, *others, *(name for name in self.losses if name not in methods))
        known = {path.stem for path in (config_dir() / "method").glob("*.yaml")}
        if twice := sorted(known & self.losses.keys()):
            raise ValueError(f"the loss {twice[0]} is named twice: give each of methods and losses a name of its own")
        self.knobs: dict[str, dict[str, Range | Choice]] = {}
        for name in self.names:
            if name in self.losses:
                make, ranges = self.losses[name]
                if not callable(make):
                    raise TypeError(f"losses[{name!r}] must be called as loss(logits, target), got {make!r}")
                self.knobs[name] = {key: setting_range(value) for key, value in ranges.items()}
                continue
            if name not in known:
                raise ValueError(f"unknown method {name!r}: {nearest(name, known | set(self.losses))}")
            config = self.configured(name, {})
            if config.head is not None or str(config._target_).endswith("FusedSoftmaxClassifier"):
                raise ValueError(f"{name} needs a head of its own, which it cannot put into your module: leave it out")
            search = plain(config.get("search")) or {}
            self.knobs[name] = {
                key: setting_range(value, config[key]) for key, value in search.items() if key not in self.fixed
            }

    def configured(self, name: str, settings: Mapping[str, Any]) -> DictConfig:
        """The configuration of a built-in method with these settings."""
        config = OmegaConf.create({"method": method_config(name), "seed": 0}).method
        config.update({key: value for key, value in {**self.fixed, **settings}.items() if key in config})
        return config

    def callbacks(self, name: str) -> list[pl.Callback]:
        """The callbacks that belong to a method."""
        return [] if name in self.losses else [instantiate(c) for c in self.configured(name, {}).callbacks.values()]

    def put_in(self, module: pl.LightningModule, name: str, replaces: str | None, settings: Mapping[str, Any]) -> None:
        """Let a module that has been made train by a method.

        ``softmax`` leaves a module with its own loss unchanged, and sets the margin of one that calls
        ``self.as_softmax_loss`` to 1. Losses outside training are the module's own, or plain cross-entropy, with every
        method: otherwise a comparison by the loss would be won by what a loss leaves out.
        """
        delta = loss = None  # of AS-Softmax the margin, of all others but softmax the loss
        if name in self.losses:
            loss, ranges = self.losses[name]
            loss = loss(**{key: settings[key] for key in ranges if key in settings}) if ranges else loss
        elif name != BASELINE:
            config = self.configured(name, settings)
            delta = config.get("delta")
            loss = instantiate(config.criterion) if delta is None else None
        if replaces is None:
            if not isinstance(module, ASSoftmaxMixin):
                raise ValueError(
                    f"{type(module).__name__} does not use ASSoftmaxMixin: name the attribute that training_step calls "
                    'as loss(logits, target), as in replaces="criterion"'
                )
            module.as_softmax_validation = "softmax"
            module.as_softmax_delta = 1.0 if delta is None else delta
            if loss is not None:
                module.__dict__["as_softmax_loss"] = TrainingLoss(name, loss, F.cross_entropy, module)
            return
        try:
            replaced = attrgetter(replaces)(module)
        except AttributeError:
            hint = nearest(replaces, [name for name, _ in module.named_modules() if name])
            raise AttributeError(
                f"replaces={replaces!r}: {type(module).__name__} has no such attribute: {hint}"
            ) from None
        if name == BASELINE:
            return
        if isinstance(module, ASSoftmaxMixin):
            raise ValueError(f"{type(module).__name__} uses ASSoftmaxMixin already: leave replaces out")
        margin = Margin(delta=delta)
        if delta is not None:
            module.masking_counter = margin.masking_counter  # type: ignore[assignment]
        if is_huggingface_classifier(replaced):
            losses: tuple[Loss, Loss] = margin.as_softmax_loss, margin.multilabel_as_softmax_loss
            if loss is not None:
                losses = (TrainingLoss(name, loss, F.cross_entropy, module),) * 2
            replace_huggingface_loss(replaced, module, *losses)
            return
        replace_loss(module, replaces, margin)  # which refuses what is no loss
        parent_name, _, attribute = replaces.rpartition(".")
        parent = attrgetter(parent_name)(module) if parent_name else module
        loss = getattr(parent, attribute) if loss is None else loss
        delattr(parent, attribute)
        setattr(parent, attribute, TrainingLoss(name, loss, replaced, module))


class Margin(ASSoftmaxMixin, pl.LightningModule):
    """Computes and counts AS-Softmax for a module without the mixin."""


class TrainingLoss(nn.Module):
    """A method's loss in training, and the module's own outside.

    The former is a scalar, but for AS-Softmax, which has the reduction of the loss that it replaces.
    """

    def __init__(self, name: str, loss: Loss, outside: Loss, module: pl.LightningModule) -> None:
        super().__init__()
        self.name, self.loss, self.outside = name, loss, outside
        self.__dict__["_owner"] = module  # as a submodule the module would contain itself

    def forward(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        module = self.__dict__["_owner"]
        if not in_training(module):
            return self.outside(logits, target, **settings)
        if isinstance(module, ASSoftmaxMixin):
            module.masking_counter.counted = True  # a loss that masks nothing is no mistake here
        loss = self.loss(logits, target, **settings)
        if not isinstance(self.loss, CountedLoss) and (not isinstance(loss, Tensor) or loss.dim() > 0):
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"the loss {self.name} must return a scalar, got {shape}: take the mean over the batch")
        return loss


class TargetFinder(ValidationCallback):
    """Finds which part of a batch is the target of the training loss, in a training with `loss`.

    ``target`` is its key or position; None if it is no part of the batch, or a validation does not show its logits.
    """

    def __init__(self) -> None:
        super().__init__(None, ignore_index=-100, dataloader_idx=0)
        self.batch: Any = None
        self.hidden = False

    @property
    def target(self) -> str | int | None:
        return None if self.hidden else self.source.target

    def loss(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        """A loss that looks for its target in the batch."""
        batch = self.batch if isinstance(self.batch, (Mapping, Sequence)) else ()
        parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        tensors = [(place, part) for place, part in parts if isinstance(part, Tensor) and part.dtype == target.dtype]
        places = [place for place, part in tensors if part is target]
        places = places or [place for place, part in tensors if torch.equal(part.flatten(), target.flatten())]
        self.source.target = places[0] if len(places) == 1 else None
        self.hidden |= len(places) != 1
        return 0.0 * logits.sum()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.batch = batch

    def _see(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any) -> None:
        try:
            self.source.of(pl_module, batch)
        except MisconfigurationException:
            self.hidden = True


def in_training(module: pl.LightningModule) -> bool:
    """Whether a module is in a training step. (A trainer knows better: parts in evaluation mode are trained too.)"""
    trainer = module._trainer
    return module.training if trainer is None else bool(trainer.training)


def is_huggingface_classifier(part: Any) -> bool:
    """Whether ``part`` is a classification model of ``transformers``; others may shift labels: refused."""
    # every configuration of transformers has a problem_type
    if not isinstance(part, nn.Module) or not hasattr(getattr(part, "config", None), "problem_type"):
        return False
    model = type(getattr(part, "_orig_mod", part))  # of torch.compile
    if not any(HUGGINGFACE_CLASSIFIER.search(base.__name__) for base in model.__mro__):
        raise ValueError(
            f"{model.__name__} is no classification model of transformers (...For...Classification): its loss is not "
            "that of logits and labels, row by row. Let the module have ASSoftmaxMixin, call "
            "self.as_softmax_loss(logits, target) in training_step, and leave replaces out"
        )
    return True


def replace_huggingface_loss(model: nn.Module, module: pl.LightningModule, loss: Loss, multilabel_loss: Loss) -> None:
    """Let ``model(**batch).loss`` be ``loss`` of the model's logits and ``labels`` while ``module`` trains.

    ``multilabel_loss`` is for ``problem_type="multi_label_classification"``; labels of -100 are ignored.
    """

    def hook(part: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any], output: Any) -> None:
        labels = named.get("labels")
        if labels is None or not in_training(module):
            return
        if part.config.problem_type == "multi_label_classification":  # type: ignore[union-attr]
            output["loss"] = multilabel_loss(output.logits, labels)
        else:
            output["loss"] = loss(output.logits.reshape(-1, output.logits.shape[-1]), labels.reshape(-1))

    model.register_forward_hook(hook, with_kwargs=True)
