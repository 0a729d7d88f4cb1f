"""Small networks and the benchmark's LightningModule."""

from as_lightning.models.classifier import ASSoftmaxClassifier, Classifier
from as_lightning.models.cosine_head import CosineHead
from as_lightning.models.small_cnn import SmallCNN
from as_lightning.models.transformer_encoder import TextTransformer

__all__ = ["ASSoftmaxClassifier", "Classifier", "CosineHead", "SmallCNN", "TextTransformer"]
