"""Networks and the benchmark's LightningModule.

What needs a package of its own (torchvision, torchaudio, transformers) is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from as_lightning.lazy import attribute_of

if TYPE_CHECKING:
    from as_lightning.models.audio_cnn import AudioCNN
    from as_lightning.models.auto_model import AutoModelEncoder
    from as_lightning.models.classifier import ASSoftmaxClassifier, Classifier
    from as_lightning.models.cosine_head import CosineHead
    from as_lightning.models.mlp import MLP
    from as_lightning.models.resnet import ResNet
    from as_lightning.models.small_cnn import SmallCNN
    from as_lightning.models.torchvision_encoder import TorchvisionEncoder
    from as_lightning.models.transformer_encoder import TextTransformer
    from as_lightning.models.wav2vec2 import Wav2Vec2Encoder

_MODULES = {
    "audio_cnn": ("AudioCNN",),
    "auto_model": ("AutoModelEncoder",),
    "classifier": ("ASSoftmaxClassifier", "Classifier"),
    "cosine_head": ("CosineHead",),
    "mlp": ("MLP",),
    "resnet": ("ResNet",),
    "small_cnn": ("SmallCNN",),
    "torchvision_encoder": ("TorchvisionEncoder",),
    "transformer_encoder": ("TextTransformer",),
    "wav2vec2": ("Wav2Vec2Encoder",),
}
__all__ = [name for names in _MODULES.values() for name in names]


def __getattr__(name: str) -> Any:
    return attribute_of(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
