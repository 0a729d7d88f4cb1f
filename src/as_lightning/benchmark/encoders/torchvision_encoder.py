"""Any of torchvision's image classifiers as an encoder, from scratch or pretrained."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.split_module import split_module

from as_lightning.benchmark.encoders.frozen import Cache, FrozenEncoder, FrozenOutput
from as_lightning.benchmark.packages import loading

with loading("torchvision"):
    from torchvision import models

WEIGHT_FILES = (".pth", ".pt")


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
        ValueError: if torchvision has no such classifier or weights, the network has no linear layer (SqueezeNet), the
            file holds another network's weights, or the network cannot be cut before its last ``trainable_layers``.
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
        known = models.list_models(module=models)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=5) or known
            raise ValueError(f"torchvision has no classifier {name!r}; close to it: {', '.join(close)}")
        from_file = weights is not None and weights.endswith(WEIGHT_FILES)
        network = _build(name, None if from_file else weights)
        linear = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise ValueError(f"{name} has no linear layer to take features from")
        head = linear[-1]
        self.out_features = network.get_submodule(head).in_features
        if from_file:
            _load(network, head, Path(str(weights)).expanduser())
        _replace(network, head, nn.Identity())
        if getattr(network, "aux_logits", False):
            # GoogLeNet and Inception have more heads, which in training make the output a tuple
            network.aux_logits = False
            for auxiliary in {"aux1", "aux2", "AuxLogits"} & dict(network.named_children()).keys():
                setattr(network, auxiliary, None)
        if in_channels != 3:
            _replace_first_convolution(network, in_channels, keep_weights=weights is not None)
        if stem != "imagenet":
            _replace_stem(network, name, weights, in_channels, stem)
        if trainable_layers is not None:
            network, self.top = _cut(network, name, trainable_layers)
            network.requires_grad_(False)
        self.network = network
        self.train()

    def run_frozen(self, inputs: Tensor) -> FrozenOutput:
        return FrozenOutput(self.network(inputs), torch.ones(len(inputs), 1, dtype=torch.bool, device=inputs.device))

    def run_top(self, top: nn.Module, frozen: FrozenOutput) -> Tensor:
        return top(frozen.values)

    def frozen_module(self) -> nn.Module:
        return self.network


def _build(name: str, weights: str | None) -> Any:
    if weights is None:
        # only these two have the argument, and warn if it is not given
        slow_start: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        return models.get_model(name, weights=None, **slow_start)
    choices = models.get_model_weights(name)
    short = weights.removeprefix(f"{choices.__name__}.")
    if short not in choices.__members__:
        raise ValueError(
            f"torchvision has no weights {weights!r} for {name}: expected one of {', '.join(choices.__members__)}, or "
            f"the path of a file that ends in {' or '.join(WEIGHT_FILES)}"
        )
    try:
        return models.get_model(name, weights=choices[short])
    except OSError as error:
        raise RuntimeError(
            f"the weights {choices[short]} could not be downloaded: {error}. Download {choices[short].url} elsewhere, "
            "and give the path of the file"
        ) from error


def _load(network: nn.Module, head: str, path: Path) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: expected a state dict, which gives a tensor for each name")
    # the head's classes are those of another data set
    own_head = {key: value for key, value in network.state_dict().items() if key.startswith(f"{head}.")}
    body = {key: value for key, value in state.items() if not key.startswith(f"{head}.")}
    try:
        network.load_state_dict(body | own_head)
    except RuntimeError as error:  # its message names the tensors
        raise ValueError(f"{path} holds weights of another network: {error}") from error


def _replace(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, module)


def _replace_first_convolution(network: nn.Module, in_channels: int, *, keep_weights: bool) -> None:
    path, old = next((path, module) for path, module in network.named_modules() if isinstance(module, nn.Conv2d))
    shape: Any = {name: getattr(old, name) for name in ("kernel_size", "stride", "padding")}
    new = nn.Conv2d(in_channels, old.out_channels, bias=old.bias is not None, **shape)
    if keep_weights:
        with torch.no_grad():
            new.weight.copy_(old.weight.mean(1, keepdim=True).expand_as(new.weight) * (old.in_channels / in_channels))
            if old.bias is not None and new.bias is not None:
                new.bias.copy_(old.bias)
    _replace(network, path, new)
    if hasattr(network, "transform_input"):
        network.transform_input = False  # type: ignore[assignment]  # it renormalises three channels


class _StageTracer(fx.Tracer):
    """Sees a stage as one operation."""

    def __init__(self, stages: list[str]) -> None:
        super().__init__()
        self.stages = stages

    def is_leaf_module(self, module: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.stages or super().is_leaf_module(module, module_qualified_name)


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
    traced = fx.GraphModule(network, _StageTracer(stages).trace(network))
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


def _replace_stem(network: Any, name: str, weights: str | None, in_channels: int, stem: str) -> None:
    if stem != "cifar":
        raise ValueError(f"stem must be 'cifar' or 'imagenet', got {stem!r}")
    if weights is not None or not isinstance(network, models.ResNet):
        raise ValueError(f"stem='cifar' is for a residual network with weights=None, got {name} with weights={weights}")
    network.conv1 = nn.Conv2d(in_channels, network.conv1.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision's others
    network.maxpool = nn.Identity()
