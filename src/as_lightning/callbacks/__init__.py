"""Callbacks that watch the masking and act on it."""

from as_lightning.callbacks.accumulation_policy import (
    AccumulationSchedule,
    AccumulationWindow,
    TokenBudget,
)
from as_lightning.callbacks.adaptive_gradient_accumulation import AdaptiveGradientAccumulation
from as_lightning.callbacks.delta_warmup import DeltaWarmup
from as_lightning.callbacks.margin_histogram import MarginHistogram
from as_lightning.callbacks.masking_monitor import MaskingMonitor
from as_lightning.callbacks.temperature_scaling import TemperatureScaling

__all__ = [
    "AccumulationSchedule",
    "AccumulationWindow",
    "AdaptiveGradientAccumulation",
    "DeltaWarmup",
    "MarginHistogram",
    "MaskingMonitor",
    "TemperatureScaling",
    "TokenBudget",
]
