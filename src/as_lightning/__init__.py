"""Adaptive Sparse Softmax (AS-Softmax) for PyTorch Lightning.

Source: Lv et al., "Adaptive Sparse Softmax: An Effective and Efficient Softmax Variant", IEEE TASLP 33, 2025,
arXiv 2508.03175.
"""

from as_lightning.callbacks import AdaptiveGradientAccumulation, MaskedSampleSkipping, MaskingMonitor
from as_lightning.losses import ASSoftmaxLoss, MultiLabelASSoftmaxLoss
from as_lightning.masking_counter import MaskingCounter
from as_lightning.metrics import LossAccuracyCorrelation, MaskingRate
from as_lightning.mixin import ASSoftmaxMixin
from as_lightning.schedules import DeltaWarmup

__version__ = "0.1.0"

__all__ = [
    "ASSoftmaxLoss",
    "ASSoftmaxMixin",
    "AdaptiveGradientAccumulation",
    "DeltaWarmup",
    "LossAccuracyCorrelation",
    "MaskedSampleSkipping",
    "MaskingCounter",
    "MaskingMonitor",
    "MaskingRate",
    "MultiLabelASSoftmaxLoss",
]
