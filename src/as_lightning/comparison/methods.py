"""The losses that a comparison puts in the place of a module's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import lightning.pytorch as pl
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from as_lightning.bench.packages import config_dir
from as_lightning.comparison.candidates import Candidate
from as_lightning.comparison.plan import default_settings
from as_lightning.comparison.search import Choice, Range, setting_range
from as_lightning.losses import masked_loss_like
from as_lightning.mixin import ASSoftmaxMixin, RefusesSilence

BASELINE = "softmax"  # the module as it is


def method_config(name: str) -> DictConfig:
    config: Any = OmegaConf.load(config_dir() / "method" / f"{name}.yaml")
    bases = [base for base in config.pop("defaults", []) if base not in ("base", "_self_")]
    merged = OmegaConf.merge(*[method_config(base) for base in bases], config)
    assert isinstance(merged, DictConfig)
    return merged


def plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def knobs(method: DictConfig, fixed: Collection[str]) -> dict[str, Range | Choice]:
    """Return the knobs of a method that are tuned: its ``search`` without the ``fixed`` ones."""
    ranges = {}
    for key, description in (plain(method.get("search")) or {}).items():
        if key not in fixed:
            ranges[key] = setting_range(description, plain(method[key]))
    return ranges


def with_losses(
    candidate: Candidate,
    replaces: str | None,
    methods: Sequence[str] | str | None,
    losses: Mapping[str, Any],
) -> dict[str, Candidate]:
    """Return one candidate for each loss of a module: softmax is the module as it is, ``methods``
    mask its loss, ``losses`` are the user's own, as pairs where their arguments are tuned.
    """
    known = [BASELINE, *default_settings()["default_methods"][BASELINE]]
    if methods is None:
        methods = known
    asked = [methods] if isinstance(methods, str) else methods
    candidates = {}
    for name in dict.fromkeys([BASELINE, *asked]):
        if name not in known:
            raise ValueError(
                f"methods of your own module are {', '.join(known)}, got {name!r}: give another "
                'one as losses={"focal": as_lightning.FocalLoss}'
            )
        config = method_config(name)
        settings: Any = OmegaConf.to_container(config)
        put = partial(module_by_method, candidate.module, name, replaces, settings)
        search = {**candidate.search, **knobs(config, ())}
        candidates[name] = candidate._replace(module=put, search=search)
    for name, loss in losses.items():
        if name in candidates:
            raise ValueError(f"{name} is a method of this comparison: name the loss otherwise")
        make, ranges = loss if isinstance(loss, tuple) else (loss, {})
        put = partial(module_by_loss, candidate.module, replaces, make, tuple(ranges))
        search = dict(candidate.search)
        for key, description in ranges.items():
            search[key] = setting_range(description)
        candidates[name] = candidate._replace(module=put, search=search)
    return candidates


def module_by_method(
    make: Callable[..., Any],
    name: str,
    replaces: str | None,
    config: Mapping[str, Any],
    **settings: Any,
) -> pl.LightningModule:
    """Return a module that trains by one of the app's methods, with its callbacks."""
    chosen = {key: settings.pop(key) for key in config.keys() & settings.keys()}
    method = OmegaConf.create({"method": {**config, **chosen}}).method  # it resolves its references
    module = make(**settings)
    own = replaced_loss(module, replaces)
    if name != BASELINE:
        put_loss(module, replaces, TrainingLoss(masked_loss_like(own, method.delta), own))
    elif replaces is None:  # a module with the mixin is no softmax by itself
        put_loss(module, replaces, TrainingLoss(own, own))
    callbacks = [instantiate(callback) for callback in method.callbacks.values()]
    configure_callbacks(module, lambda each: True, *callbacks)
    return module


def module_by_loss(
    make: Callable[..., Any],
    replaces: str | None,
    make_loss: Any,
    arguments: tuple[str, ...],
    **settings: Any,
) -> pl.LightningModule:
    chosen = {key: settings.pop(key) for key in arguments if key in settings}
    module = make(**settings)
    is_class = isinstance(getattr(make_loss, "func", make_loss), type)
    loss = make_loss(**chosen) if arguments or is_class else make_loss
    put_loss(module, replaces, TrainingLoss(loss, replaced_loss(module, replaces)))
    return module


def replaced_loss(module: Any, replaces: str | None) -> Any:
    """Return the loss that a module has: an attribute, or the mixin's."""
    if replaces is None:
        if isinstance(module, ASSoftmaxMixin):
            return nn.CrossEntropyLoss()
        raise ValueError(
            f"{type(module).__name__} does not use ASSoftmaxMixin: name the attribute that "
            'training_step calls as loss(logits, target), as in replaces="criterion"'
        )
    return attrgetter(replaces)(module)


def put_loss(module: Any, replaces: str | None, loss: nn.Module) -> None:
    vars(module)["loss_of_comparison"] = loss  # for the look, and no part of the module
    if replaces is None:  # the mixin's is a method, which an attribute of the instance hides
        vars(module)["as_softmax_loss"] = loss
        module.add_module("replaced_loss", loss)
        # without the mixin's callback that asks for its own loss
        configure_callbacks(module, lambda each: not isinstance(each, RefusesSilence))
    else:
        owner, _, name = replaces.rpartition(".")
        setattr(module.get_submodule(owner), name, loss)


def configure_callbacks(module: Any, kept: Callable[[Any], bool], *more: pl.Callback) -> None:
    """Let a module configure those of its callbacks that are ``kept``, and ``more``."""
    configured = module.configure_callbacks

    def changed() -> list[pl.Callback]:
        own = configured()
        return [*filter(kept, own if isinstance(own, Sequence) else [own]), *more]

    module.configure_callbacks = changed


class TrainingLoss(nn.Module):
    """A candidate's loss in training, and the module's own outside of it."""

    def __init__(self, loss: Callable[..., Tensor], own: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss, self.own = loss, own
        self.called = False

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        if not self.training:
            return self.own(logits, target)
        self.called = True
        return self.loss(logits, target)
