"""torchvision's image classifiers as encoders, from scratch or pretrained."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from as_lightning.bench.encoders.frozen import Cache, FrozenEncoder
from as_lightning.bench.packages import loading
from as_lightning.functional.argument_checks import check_choice

with loading("torchvision"):
    from torchvision import models

# their output in training is a tuple; no linear layer
OTHERS = ("googlenet", "inception_v3", "squeezenet*")


class TorchvisionEncoder(FrozenEncoder):
    """A classifier of torchvision's without its last linear layer; what lies before that, e.g.
    dropout, is kept.

    The settings, with the ``mean`` and ``std`` of ImageNet's weights, are described in
    ``conf/model/torchvision.yaml``. A grey image is seen as one of three equal channels.

    Shape:
        - input: ``(N, in_channels, H, W)`` with 1 or 3 channels; some networks take one size only.
        - output: ``(N, out_features)``.

    A ValueError refuses a classifier or weights that torchvision does not have, one of several
    heads or without a linear layer (SqueezeNet).
    """

    def __init__(
        self,
        name: str,
        weights: str | None,
        in_channels: int,
        trainable_layers: int | None = None,
        feature_cache: Cache = "file",
    ) -> None:
        super().__init__(trainable_layers, feature_cache)
        classifiers = models.list_models(module=models, exclude=OTHERS)
        check_choice("name", name, classifiers)
        if weights is not None:
            check_choice("weights", weights, list(models.get_model_weights(name).__members__))
        network: Any = models.get_model(name, weights=weights)
        linear = {
            path: part for path, part in network.named_modules() if isinstance(part, nn.Linear)
        }
        path, last = linear.popitem()
        self.out_features = last.in_features
        network.set_submodule(path, nn.Identity())
        self.network = network
        self.freeze_whole()

    def features(self, inputs: Tensor) -> Tensor:
        return self.network(inputs.expand(-1, 3, -1, -1))
