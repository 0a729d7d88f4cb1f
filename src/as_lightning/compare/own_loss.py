"""The losses that a comparison puts in the place of a module's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.fingerprint import Fingerprint
from as_lightning.bench.run.settings import accepted_arguments, nearest
from as_lightning.callbacks.evaluation_logits import ValidationCallback
from as_lightning.compare.plan import default_settings
from as_lightning.compare.search import Choice, Range, setting_range
from as_lightning.functional.accumulation import accumulation_steps
from as_lightning.functional.calling_convention import class_dimension
from as_lightning.functional.variants.class_counts import with_class_counts
from as_lightning.mixin import ASSoftmaxMixin
from as_lightning.replaced_loss import (
    CountedLoss,
    InPlaceOf,
    of_several_labels,
    refuse_what_would_be_lost,
    replace_loss,
    settings_of,
    shown_by,
)

BASELINE, FIRST_LOOK = "softmax", "first look"
Loss = Callable[[Tensor, Tensor], Tensor]


def method_config(name: str) -> DictConfig:
    """The configuration of a method in ``conf/method``, merged over those that its ``defaults``
    name.
    """
    config: Any = OmegaConf.load(config_dir() / "method" / f"{name}.yaml")
    bases = [base for base in config.pop("defaults", []) if base != "_self_"]
    merged = OmegaConf.merge(*[method_config(base) for base in bases], config)
    assert isinstance(merged, DictConfig)
    return merged


def plain(value: Any) -> Any:
    """A node of a configuration as a dict or a list of Python's; anything else as it is."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def knobs(method: DictConfig, fixed: Collection[str]) -> dict[str, Range | Choice]:
    """The knobs of a method that are tuned: those of its ``search`` that are not ``fixed``."""
    search = plain(method.get("search")) or {}
    ranges = {
        key: setting_range(value, plain(method[key]))
        for key, value in search.items()
        if key not in fixed
    }
    limits: Any = {name: method[name] for name in ("scale", "max_steps") if name in method}
    if (
        "delta" in ranges and accumulation_steps(1, 0, **limits) > 1
    ):  # AS-Speed gathers batches at a margin of 1 too
        ranges["delta"] = replace(ranges["delta"], neutral=None)
    return ranges


def check_arguments(function: Callable[..., Any], names: Iterable[str], prefix: str = "") -> None:
    """Raise ``ValueError`` if a function lacks an argument of one of these names."""
    accepted = accepted_arguments(function)
    for name in (name for name in names if accepted is not None and name not in accepted):
        kind = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"{prefix}{name}: {kind} has no such argument; {nearest(name, accepted or ())}"
        )


class OwnLosses:
    """The methods of a comparison of the user's own module, softmax first: the knobs and the loss
    of each.

    ``methods``, ``losses`` and ``baseline`` are as `compare` takes them; ``fixed`` are settings of
    built-in methods that are not tuned, as ``{"delta": 0.2}``.
    """

    def __init__(
        self,
        methods: Sequence[str] | None,
        losses: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        baseline: str | None = None,
    ) -> None:
        methods = default_settings()["default_methods"][BASELINE] if methods is None else methods
        methods = [methods] if isinstance(methods, str) else methods
        self.fixed = dict(fixed or {})
        self.counted: Callable[[int], Tensor] = (
            _unknown_counts  # the class counts of the training data of a seed
        )
        self.losses = {
            name: loss if isinstance(loss, tuple) else (loss, {})
            for name, loss in (losses or {}).items()
        }
        added = (
            [baseline] if baseline is not None and baseline not in (*methods, *self.losses) else []
        )
        others = (method for method in (*methods, *added) if method != BASELINE)
        self.names = (BASELINE, *others, *(name for name in self.losses if name not in methods))
        method_names = {
            path.stem for path in (config_dir() / "method").glob("*.yaml") if path.stem != "base"
        }
        for name in self.losses.keys() & method_names & {BASELINE, *methods}:
            raise ValueError(
                f"{name} is a method of this comparison: give the loss another name, or other "
                "methods="
            )
        self.knobs: dict[str, dict[str, Range | Choice]] = {}
        settings: set[str] = set()
        for name in self.names:
            if name in self.losses:
                make, ranges = self.losses[name]
                if not callable(make):
                    raise TypeError(
                        f"losses[{name!r}] must be called as loss(logits, target), got {make!r}"
                    )
                check_arguments(make, ranges)
                self.knobs[name] = {key: setting_range(value) for key, value in ranges.items()}
                continue
            if name not in method_names:
                raise ValueError(
                    f"unknown method {name!r}: {nearest(name, method_names | set(self.losses))}"
                )
            config = self.configured(name, {})
            if not config.own_module:
                raise ValueError(
                    f"{name} needs a head of its own, which it cannot put into your module: leave "
                    "it out"
                )
            self.knobs[name] = knobs(config, self.fixed)
            settings |= set(map(str, config))
        if unknown := sorted(self.fixed.keys() - settings):
            raise ValueError(
                f"no method here has a setting {unknown[0]}: {nearest(unknown[0], settings)}"
            )

    def configured(self, name: str, settings: Mapping[str, Any]) -> DictConfig:
        """The configuration of a built-in method with these settings."""
        config = OmegaConf.create({"method": method_config(name)}).method
        config.update(
            {key: value for key, value in {**self.fixed, **settings}.items() if key in config}
        )
        return config

    def facts(self, name: str) -> dict[str, Any]:
        """What decides a method's runs besides their settings: a digest of the user's loss, or the
        fixed settings.
        """
        if name in self.losses:
            return {"loss": Fingerprint(self.losses[name][0], name).digest}
        return {key: value for key, value in self.fixed.items() if key in self.configured(name, {})}

    def callbacks(self, name: str) -> list[pl.Callback]:
        """The callbacks that belong to a method."""
        return (
            []
            if name in self.losses
            else [instantiate(c) for c in self.configured(name, {}).callbacks.values()]
        )

    def put_in(
        self,
        module: Any,
        name: str,
        replaces: str | None,
        settings: Mapping[str, Any],
        seed: int = 0,
    ) -> None:
        """Make a fresh module train by a method, in a run of the seed.

        ``softmax`` leaves a module with its own loss unchanged, and sets the margin of one that
        calls ``self.as_softmax_loss`` to 1. Losses outside training are the module's own, or plain
        cross-entropy, with every method: otherwise a comparison by the loss would be won by what a
        loss leaves out.
        """
        delta = loss = None  # AS-Softmax sets the margin; all others but softmax set the loss
        if name in self.losses:
            loss, ranges = self.losses[name]
            loss = (
                loss(**{key: settings[key] for key in ranges if key in settings})
                if ranges
                else loss
            )
        elif name != BASELINE:
            config = self.configured(name, settings)
            delta = config.get("delta")
            loss = instantiate(config.criterion) if delta is None else None
        if loss is not None:
            loss = with_class_counts(loss, lambda: self.counted(seed))
        of_app, kind, has_mixin = (
            name not in self.losses,
            type(module).__name__,
            isinstance(module, ASSoftmaxMixin),
        )
        if has_mixin and replaces is not None:
            raise ValueError(f"{kind} uses ASSoftmaxMixin already: leave replaces out")
        if not has_mixin and replaces is None:
            raise ValueError(
                f"{kind} does not use ASSoftmaxMixin: name the attribute that training_step calls "
                "as "
                'loss(logits, target), as in replaces="criterion"'
            )
        if replaces is None:
            module.as_softmax_validation = "softmax"
            module.as_softmax_delta = 1.0 if delta is None else delta
            if loss is not None:
                module.masking_counter.may_be_silent = True
                module.__dict__["as_softmax_loss"] = TrainingLoss(
                    name, loss, F.cross_entropy, module, of_app
                )
            return
        margin = Margin(delta=delta)
        if delta is not None:
            module.masking_counter = margin.masking_counter

        def make(replaced: Any) -> Any:
            if name == BASELINE:
                return replaced
            if of_app:  # refuse what no method carries on
                refuse_what_would_be_lost(replaced, hooks=True)
                settings_of(replaced)
            default = (
                nn.BCEWithLogitsLoss() if of_several_labels(replaced) else nn.CrossEntropyLoss()
            )
            new_loss: Any = (
                CountedLoss(margin, default) if loss is None else loss
            )  # it gets the settings at each call
            new_loss = partial(new_loss, own=replaced) if name == FIRST_LOOK else new_loss
            return TrainingLoss(name, new_loss, replaced, module, of_app)

        replace_loss(module, replaces, make)


def _unknown_counts(seed: int) -> Tensor:
    raise ValueError(
        "a loss asks for class_counts, which are not known: give partial(loss, class_counts=...)"
    )


class Margin(ASSoftmaxMixin, pl.LightningModule):
    """Computes and counts AS-Softmax for a module without the mixin."""


class TrainingLoss(InPlaceOf):
    """A method's loss in training, and the module's own outside.

    A loss ``of_app`` has the weight, ``ignore_index`` and reduction of the one that it replaces;
    others return scalars.
    """

    def __init__(
        self, name: str, loss: Loss, outside: Loss, module: pl.LightningModule, of_app: bool
    ) -> None:
        super().__init__(outside)
        vars(self).update(
            _name=name, _owner=module, _of_app=of_app
        )  # as a submodule the module would contain itself
        parts: dict[str, Any] = {"outside": outside, "_loss": loss}
        for attribute, value in parts.items():
            nn.Module.__setattr__(self, attribute, value)

    def forward(self, input: Tensor, target: Tensor, **settings: Any) -> Tensor:
        module = self._owner
        # the trainer decides where there is one: modules in evaluation mode are trained too
        if not (module.training if module._trainer is None else module._trainer.training):
            return self.outside(input, target, **settings)
        if self._of_app:
            settings = (
                settings_of(self.outside) | settings
            )  # read at each call: its weight moves with its module
        loss = self._loss(input, target, **settings)
        if not self._of_app and (not isinstance(loss, Tensor) or loss.dim() > 0):
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(
                f"the loss {self._name} must return a scalar, got {shape}: take the mean over the "
                "batch"
            )
        return loss


class TargetFinder(ValidationCallback):
    """Finds which part of a batch is the target of the training loss, in a training with `loss`.

    ``source.target`` is its key or position, None if it is no part of the batch; ``hidden``:
    whether a validation did not show its logits. ``ignore_index`` is that of the replaced loss;
    ``softmax``: whether that is cross-entropy.
    """

    def __init__(self) -> None:
        super().__init__(None, ignore_index=-100, dataloader_idx=0)
        self.softmax, self.several = (
            True,
            False,
        )  # several: whether its targets are no class indices
        self.batch: Any = None
        self.places: set[str | int | None] = set()  # where it was found, None where it was not
        self.hidden = False
        self.classes = 0  # of the logits

    def loss(
        self, logits: Tensor, target: Tensor, own: Loss | None = None, **settings: Any
    ) -> Tensor:
        """A loss that looks for its target in the batch; ``own`` is the one that it replaces, None
        with the mixin.
        """
        self.classes = logits.size(class_dimension(logits))
        self.several |= target.dim() >= logits.dim()
        ignored = (shown_by(own) | settings).get("ignore_index")
        self.ignore_index = self.ignore_index if ignored is None else ignored
        try:
            settings_of(F.cross_entropy if own is None else own)
        except (TypeError, ValueError):
            self.softmax = False
        batch = self.batch if isinstance(self.batch, (Mapping, Sequence)) else ()
        parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        tensors = [
            (place, part)
            for place, part in parts
            if isinstance(part, Tensor) and part.dtype == target.dtype
        ]
        places = [place for place, part in tensors if part is target]
        places = places or [
            place for place, part in tensors if torch.equal(part.flatten(), target.flatten())
        ]
        self.places.add(places[0] if len(places) == 1 else None)
        self.source.target = next(iter(self.places)) if len(self.places) == 1 else None
        return 0.0 * logits.sum()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.batch = batch

    def _see(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any) -> None:
        try:
            self.source.of(pl_module, batch)
        except MisconfigurationException:
            self.hidden = True
