"""torchvision's image classifiers as encoders, from scratch or pretrained."""

from __future__ import annotations

import difflib
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.split_module import split_module

from as_lightning.benchmark.encoders.frozen import Cache, FrozenEncoder, FrozenOutput
from as_lightning.benchmark.packages import loading
from as_lightning.functional.argument_checks import check_choice

with loading("torchvision"):
    from torchvision import models
    from torchvision.models.feature_extraction import LeafModuleAwareTracer

SEVERAL_HEADS = ("googlenet", "inception_v3")  # their output in training is a tuple


class TorchvisionEncoder(FrozenEncoder):
    """A classifier of torchvision's without its last linear layer; what lies before that, e.g. dropout, is kept.

    Pretrained weights expect images normalised as they were in pretraining: give the data module its ``mean`` and
    ``std`` (for weights of ImageNet ``[0.485, 0.456, 0.406]`` and ``[0.229, 0.224, 0.225]``).

    The settings are described in ``conf/model/torchvision.yaml``. If ``in_channels`` is not 3, the first convolution is
    replaced: with pretrained weights each of the ``C`` channels gets 3 / C times the mean of theirs, so that a grey
    image is seen as before. The stem ``"cifar"`` gives a residual network from scratch the first layers for images of
    about 32x32, a 3x3 convolution of stride 1 and no pooling (He et al., CVPR 2016, section 4.2).

    Shape:
        - input: ``(N, in_channels, H, W)``, or the `FrozenOutput` of them; some networks take one size only.
        - output: ``(N, out_features)``.

    Raises:
        ValueError: if torchvision has no such classifier of one head or weights, the network has no linear layer
            (SqueezeNet), or it cannot be cut before its last ``trainable_layers``.
        RuntimeError: if the weights cannot be downloaded.
    """

    def __init__(
        self,
        name: str,
        weights: str | None,
        in_channels: int,
        trainable_layers: int | None = None,
        feature_cache: Cache = "file",
        stem: Literal["imagenet", "cifar"] = "imagenet",
    ) -> None:
        super().__init__(trainable_layers, feature_cache)
        known = models.list_models(module=models, exclude=SEVERAL_HEADS)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=5) or known
            raise ValueError(f"torchvision has no classifier {name!r} of one head; close to it: {', '.join(close)}")
        network = _build(name, weights)
        linear = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise ValueError(f"{name} has no linear layer to take features from")
        self.out_features = network.get_submodule(linear[-1]).in_features
        network.set_submodule(linear[-1], nn.Identity())
        if in_channels != 3:
            _replace_first_convolution(network, in_channels, keep_weights=weights is not None)
        if check_choice("stem", stem, ("imagenet", "cifar")) == "cifar":
            if weights is not None or not isinstance(network, models.ResNet):
                raise ValueError(f"stem='cifar' is for a residual network with weights=None, got {name}, {weights=}")
            network.conv1 = nn.Conv2d(in_channels, network.conv1.out_channels, 3, padding=1, bias=False)
            # as torchvision's others
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
            network.maxpool = nn.Identity()
        if trainable_layers is not None:
            network, self.top = _cut(network, name, trainable_layers)
            network.requires_grad_(False)
        self.network = network
        self.train()

    def run_frozen(self, inputs: Tensor) -> FrozenOutput:
        return FrozenOutput(self.network(inputs), torch.ones(len(inputs), 1, dtype=torch.bool, device=inputs.device))

    def frozen_module(self) -> nn.Module:
        return self.network


def _build(name: str, weights: str | None) -> Any:
    choices = models.get_model_weights(name)
    try:
        chosen = choices.verify(weights)
    except KeyError:
        expected = ", ".join(choices.__members__)
        raise ValueError(f"torchvision has no weights {weights!r} for {name}: expected one of {expected}") from None
    try:
        return models.get_model(name, weights=chosen)
    except OSError as error:
        raise RuntimeError(
            f"the weights {chosen} could not be downloaded: {error}. Download {chosen.url} elsewhere, and put it into "
            f"{torch.hub.get_dir()}/checkpoints"
        ) from error


def _replace_first_convolution(network: nn.Module, in_channels: int, *, keep_weights: bool) -> None:
    path, old = next((path, module) for path, module in network.named_modules() if isinstance(module, nn.Conv2d))
    shape: Any = {name: getattr(old, name) for name in ("kernel_size", "stride", "padding")}
    new = nn.Conv2d(in_channels, old.out_channels, bias=old.bias is not None, **shape)
    if keep_weights:
        grey = old.weight.detach().mean(1, keepdim=True) * (old.in_channels / in_channels)
        new.weight = nn.Parameter(grey.repeat(1, in_channels, 1, 1))
        new.bias = old.bias
    network.set_submodule(path, new)


def _stages(network: nn.Module) -> list[str]:
    """The parts of a network that have weights; a plain sequence at its top is taken apart."""
    paths: list[str] = []
    for path, part in network.named_children():
        inner = part.named_children() if type(part) is nn.Sequential else ()
        paths += [f"{path}.{number}" for number, _ in inner] or [path]
    return [path for path in paths if any(True for _ in network.get_submodule(path).parameters())]


def _cut(network: nn.Module, name: str, trainable_layers: int) -> tuple[nn.Module, nn.Module | None]:
    """The frozen part of a network, and its last stages; None where none of them is trained."""
    stages = _stages(network)
    if trainable_layers > len(stages):
        raise ValueError(f"model.trainable_layers is {trainable_layers}, {name} has {len(stages)} stages")
    if trainable_layers == 0:
        return network, None
    tracer = LeafModuleAwareTracer(leaf_modules={type(network.get_submodule(stage)) for stage in stages})
    traced = fx.GraphModule(network, tracer.trace(network))
    nodes = list(traced.graph.nodes)
    first = next((place for place, node in enumerate(nodes) if node.target == stages[-trainable_layers]), 0)
    upper = set(nodes[first:])
    parts = split_module(traced, network, lambda node: int(node in upper))
    if not first or len(parts.submod_1.graph.find_nodes(op="placeholder")) != 1:
        raise ValueError(
            f"model.trainable_layers: {name} cannot be cut before its stage {stages[-trainable_layers]!r}: try another "
            "number, or null to train the whole network"
        )
    return parts.submod_0, parts.submod_1
