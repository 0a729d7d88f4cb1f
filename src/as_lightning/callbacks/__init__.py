"""Callbacks that watch the masking and act on it."""

from as_lightning.callbacks.accumulation_window import AccumulationWindow
from as_lightning.callbacks.adaptive_gradient_accumulation import AdaptiveGradientAccumulation
from as_lightning.callbacks.info_batch import InfoBatch
from as_lightning.callbacks.margin_histogram import MarginHistogram
from as_lightning.callbacks.masked_sample_skipping import MaskedSampleSkipping
from as_lightning.callbacks.masking_monitor import MaskingMonitor
from as_lightning.callbacks.random_skipping import RandomSkipping
from as_lightning.callbacks.skipping_epoch import SkippingEpoch
from as_lightning.callbacks.temperature_scaling import TemperatureScaling

__all__ = [
    "AccumulationWindow",
    "AdaptiveGradientAccumulation",
    "InfoBatch",
    "MarginHistogram",
    "MaskedSampleSkipping",
    "MaskingMonitor",
    "RandomSkipping",
    "SkippingEpoch",
    "TemperatureScaling",
]
