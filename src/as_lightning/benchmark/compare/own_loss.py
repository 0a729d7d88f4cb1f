"""The losses that a comparison puts in the place of a module's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import lightning.pytorch as pl
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from as_lightning.benchmark.compare.search import Choice, Range, setting_range
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.run.settings import nearest
from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy
from as_lightning.masking_counter import MaskingCounter
from as_lightning.mixin import ASSoftmaxMixin
from as_lightning.replaced_loss import replace_loss

BASELINE = "softmax"
HUGGINGFACE_CLASSIFIER = re.compile(r"For\w*Classification$")  # sequences, tokens, images, audio
Loss = Callable[[Tensor, Tensor], Tensor]


def method_config(name: str) -> DictConfig:
    """The configuration of a method, as ``conf/method`` has it, with what it takes from others."""
    own = OmegaConf.load(config_dir() / "method" / f"{name}.yaml")
    assert isinstance(own, DictConfig)
    bases = [base for base in own.pop("defaults", []) if base != "_self_"]
    merged = OmegaConf.merge(*[method_config(base) for base in bases], own)
    assert isinstance(merged, DictConfig)
    return merged


class OwnLosses:
    """The methods of a comparison of one's own module: what each tunes, and the loss that it puts in.

    Args:
        methods: names of methods in ``conf/method``, and of ``losses``.
        losses: of the user's own, by name: a loss, called as ``loss(logits, target)``, or a pair of what makes one and
            the ranges of its arguments, as ``(FocalLoss, {"gamma": {"low": 0.5, "high": 5, "default": 2}})``.
        fixed: settings of built-in methods that are not tuned, as ``{"delta": 0.2}``.

    Raises:
        ValueError: if a name is unknown or given twice, or a method needs a head of its own.
        TypeError: if a loss of the user's cannot be called.
    """

    def __init__(
        self, methods: Sequence[str], losses: Mapping[str, Any] | None = None, fixed: Mapping[str, Any] | None = None
    ) -> None:
        self.losses, self.fixed = dict(losses or {}), dict(fixed or {})
        known = {p.stem for p in (config_dir() / "method").glob("*.yaml") if not p.stem.endswith("base")}
        names = [*methods, *(name for name in self.losses if name not in methods)]
        for name in names:
            if names.count(name) > 1 or (name in known and name in self.losses):
                raise ValueError(f"the loss {name} is named twice: give each of methods and losses a name of its own")
            if name not in known | set(self.losses):
                raise ValueError(f"unknown method {name!r}: {nearest(name, known | set(self.losses))}")
        self.names = tuple(names)
        self.configs: dict[str, DictConfig] = {}
        self._dimensions: dict[str, dict[str, Range | Choice]] = {}
        for name in names:
            if name in self.losses:
                made = self.losses[name]
                make, ranges = made if isinstance(made, tuple) else (made, {})
                if not callable(make):
                    raise TypeError(f"losses[{name!r}] must be called as loss(logits, target), got {made!r}")
                self._dimensions[name] = {key: setting_range(value, _start(value)) for key, value in ranges.items()}
                continue
            config = self.configs[name] = OmegaConf.create({"method": method_config(name), "seed": 0}).method
            if config.head is not None or str(config._target_).endswith("FusedSoftmaxClassifier"):
                raise ValueError(f"{name} needs a head of its own, which it cannot put into your module: leave it out")
            search = config.get("search") or {}
            self._dimensions[name] = {
                key: setting_range(OmegaConf.to_container(value), config[key])
                for key, value in search.items()
                if name != BASELINE and key not in self.fixed
            }

    def space(self, name: str, shared: Mapping[str, Range]) -> dict[str, Range | Choice]:
        """What is tuned of a method, beside ``shared``."""
        return {**shared, **self._dimensions[name]}

    def callbacks(self, name: str) -> list[pl.Callback]:
        """The callbacks that belong to a method."""
        config = self.configs.get(name)
        return [] if config is None else [instantiate(node) for node in config.callbacks.values()]

    def masks(self, name: str) -> bool:
        """Whether a method is AS-Softmax in one of its forms."""
        return name in self.configs and "delta" in self.configs[name]

    def criterion(self, name: str, settings: Mapping[str, Any]) -> Loss:
        """The loss of a method that is not AS-Softmax."""
        chosen = {key: value for key, value in settings.items() if key in self._dimensions[name]}
        if name in self.losses:
            made = self.losses[name]
            return made[0](**chosen) if isinstance(made, tuple) else made
        config = OmegaConf.create({"method": self.configs[name], "seed": 0})
        for key, value in {**self.fixed, **chosen}.items():
            if key in config.method:
                config.method[key] = value
        return instantiate(config.method.criterion)

    def put_in(self, module: pl.LightningModule, name: str, replaces: str | None, settings: Mapping[str, Any]) -> None:
        """Let a module that has been made train by a method.

        ``softmax`` leaves a module with its own loss unchanged, and sets the margin of one that calls
        ``self.as_softmax_loss`` to 1. Losses outside training are the module's own, or plain cross-entropy, with every
        method: otherwise a comparison by the loss would be won by what a loss leaves out.

        Raises:
            ValueError: if ``replaces`` is None and the module has no ``as_softmax_loss``, or a Hugging Face model
                computes no classification loss.
            TypeError: if ``replaces`` names no loss.
            AttributeError: if ``replaces`` names nothing.
        """
        delta = (
            float(settings.get("delta", self.fixed.get("delta", self.configs[name].delta))) if self.masks(name) else 1.0
        )
        if replaces is None:
            if not isinstance(module, ASSoftmaxMixin):
                raise ValueError(
                    f"{type(module).__name__} does not use ASSoftmaxMixin: name the attribute that training_step calls "
                    'as loss(logits, target), as in replaces="criterion"'
                )
            module.as_softmax_validation = "softmax"
            module.as_softmax_delta = delta
            if not self.masks(name) and name != BASELINE:
                module.__dict__["as_softmax_loss"] = OwnLoss(
                    name, self.criterion(name, settings), F.cross_entropy, module
                )
            return
        if name == BASELINE:
            _attribute(module, replaces)
            return
        if isinstance(module, ASSoftmaxMixin):
            raise ValueError(f"{type(module).__name__} uses ASSoftmaxMixin already: leave replaces out")
        replaced = _attribute(module, replaces)
        owner = Margin(module, delta)
        if self.masks(name):
            module.masking_counter = owner.counter  # type: ignore[assignment]
        if is_huggingface_classifier(replaced):
            criterion = (
                None if self.masks(name) else OwnLoss(name, self.criterion(name, settings), F.cross_entropy, module)
            )
            single = criterion or owner.as_softmax_loss
            replace_huggingface_loss(replaced, module, single, criterion or owner.multilabel_as_softmax_loss)
            return
        replace_loss(module, replaces, owner)  # which refuses what is no loss
        parent_name, _, attribute = replaces.rpartition(".")
        parent = attrgetter(parent_name)(module) if parent_name else module
        masked = getattr(parent, attribute)
        loss = masked if self.masks(name) else self.criterion(name, settings)
        delattr(parent, attribute)
        setattr(parent, attribute, OwnLoss(name, loss, replaced, module, scalar=not self.masks(name)))


class Margin:
    """Computes AS-Softmax for a module without the mixin, and counts its masking.

    Args:
        module: that it trains.
        delta: the margin in training; outside it is 1.
    """

    def __init__(self, module: pl.LightningModule, delta: float) -> None:
        self._module, self.delta = module, delta
        self.counter = MaskingCounter()

    @property
    def as_softmax_delta(self) -> float:
        """The margin of the next loss."""
        return self.delta if in_training(self._module) else 1.0

    @as_softmax_delta.setter
    def as_softmax_delta(self, value: float) -> None:
        self.delta = value

    def as_softmax_loss(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        """`as_cross_entropy`, counted in training."""
        return self._counted(as_cross_entropy(logits, target, self.as_softmax_delta, return_counts=True, **settings))

    def multilabel_as_softmax_loss(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        """`multilabel_as_cross_entropy`, counted in training."""
        delta = self.as_softmax_delta
        return self._counted(multilabel_as_cross_entropy(logits, target, delta, return_counts=True, **settings))

    def _counted(self, computed: Any) -> Tensor:
        loss, counts = computed
        if in_training(self._module):
            self.counter.update(counts)
        return loss


class OwnLoss(nn.Module):
    """A loss in training, and the module's own outside.

    Raises:
        ValueError: if the loss in training is no scalar, and has to be one.
    """

    def __init__(
        self, name: str, loss: Loss, outside: Loss, module: pl.LightningModule, *, scalar: bool = True
    ) -> None:
        super().__init__()
        self.name, self.loss, self.outside, self.scalar = name, loss, outside, scalar
        self.__dict__["_owner"] = module  # as a submodule the module would contain itself

    def forward(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        if not in_training(self.__dict__["_owner"]):
            return self.outside(logits, target, **settings)
        if settings:
            raise ValueError(
                f"{self.name} takes logits and target alone, and training_step gives {', '.join(settings)}"
            )
        if isinstance(self.__dict__["_owner"], ASSoftmaxMixin):
            self.__dict__["_owner"].masking_counter.counted = True  # a loss that masks nothing is no mistake here
        loss = self.loss(logits, target)
        if self.scalar and (not isinstance(loss, Tensor) or loss.dim() > 0):
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"the loss {self.name} must return a scalar, got {shape}: take the mean over the batch")
        return loss


def in_training(module: pl.LightningModule) -> bool:
    """Whether a module is in a training step. (A trainer knows better: parts in evaluation mode are trained too.)"""
    trainer = module._trainer
    return module.training if trainer is None else bool(trainer.training)


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
    if not any(HUGGINGFACE_CLASSIFIER.search(base.__name__) for base in model.__mro__):
        raise ValueError(
            f"{model.__name__} is no classification model of transformers (one whose class is named ...For..."
            "Classification): its loss is not that of logits and labels, row by row. Let the module have "
            "ASSoftmaxMixin, call self.as_softmax_loss(logits, target) in training_step, and leave replaces out"
        )
    return True


def replace_huggingface_loss(model: nn.Module, module: pl.LightningModule, loss: Loss, multilabel_loss: Loss) -> None:
    """Let ``model(**batch).loss`` be ``loss`` of the model's logits and ``labels`` while ``module`` trains.

    The model's forward stays unchanged; a hook puts the loss into its output.

    Several labels per sample (``problem_type="multi_label_classification"``) take ``multilabel_loss``; labels of -100
    are ignored, as in ``transformers``.

    Raises:
        ValueError: at the first batch if the model regresses, or returns a tuple (``return_dict=False``).
    """

    def hook(part: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any], output: Any) -> Any:
        labels = named.get("labels")
        if labels is None or not in_training(module):
            return output
        problem = part.config.problem_type  # type: ignore[union-attr]
        if problem == "regression":
            raise ValueError(
                "AS-Softmax needs classes, and this model regresses: set num_labels to at least 2 in its config"
            )
        if not hasattr(output, "logits"):
            raise ValueError("the model returns a tuple: leave return_dict as it is, so that it names its logits")
        if problem == "multi_label_classification":
            output["loss"] = multilabel_loss(output.logits, labels)
        else:
            output["loss"] = loss(output.logits.reshape(-1, output.logits.shape[-1]), labels.reshape(-1))
        return output

    model.register_forward_hook(hook, with_kwargs=True)


def _attribute(module: pl.LightningModule, name: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise AttributeError(f"replaces={name!r}: {type(module).__name__} has no such attribute") from None


def _start(description: Any) -> Any:
    """The first value to try of a loss of the user's."""
    if isinstance(description, Mapping):
        values = description.get("values")
        return values[0] if values else description.get("default", description.get("low"))
    return description[0] if isinstance(description, Sequence) and description else None
