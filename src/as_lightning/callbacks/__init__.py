"""Callbacks that watch the masking and act on it."""

from as_lightning.callbacks.accumulation_window import AccumulationWindow
from as_lightning.callbacks.adaptive_gradient_accumulation import AdaptiveGradientAccumulation
from as_lightning.callbacks.masking_monitor import MaskingMonitor

__all__ = ["AccumulationWindow", "AdaptiveGradientAccumulation", "MaskingMonitor"]
