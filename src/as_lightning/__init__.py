"""Adaptive Sparse Softmax (AS-Softmax) for PyTorch Lightning.

Source: Lv et al., "Adaptive Sparse Softmax: An Effective and Efficient Softmax Variant", IEEE TASLP 33, 2025,
arXiv 2508.03175.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from as_lightning.benchmark.compare.api import compare as compare
    from as_lightning.benchmark.report.table import verdicts as verdicts
    from as_lightning.callbacks import (
        AccumulationSchedule,
        AccumulationWindow,
        AdaptiveGradientAccumulation,
        MarginHistogram,
        MaskingMonitor,
        TemperatureScaling,
        TokenBudget,
    )
    from as_lightning.losses import ASSoftmaxLoss, LinearCrossEntropyLoss, MultiLabelASSoftmaxLoss
    from as_lightning.masking_counter import MaskingCounter
    from as_lightning.metrics import MaskingRate
    from as_lightning.mixin import ASSoftmaxMixin
    from as_lightning.schedules import DeltaWarmup

__version__ = "0.4.0"

__all__ = [
    "ASSoftmaxLoss",
    "ASSoftmaxMixin",
    "AccumulationSchedule",
    "AccumulationWindow",
    "AdaptiveGradientAccumulation",
    "DeltaWarmup",
    "LinearCrossEntropyLoss",
    "MarginHistogram",
    "MaskingCounter",
    "MaskingMonitor",
    "MaskingRate",
    "MultiLabelASSoftmaxLoss",
    "TemperatureScaling",
    "TokenBudget",
]

# where each name is, but for the callbacks; it is imported when it is asked for, so that the commands' help need not
# wait for torch
_MODULES = {
    "losses": ("ASSoftmaxLoss", "LinearCrossEntropyLoss", "MultiLabelASSoftmaxLoss"),
    "masking_counter": ("MaskingCounter",),
    "metrics": ("MaskingRate",),
    "mixin": ("ASSoftmaxMixin",),
    "schedules": ("DeltaWarmup",),
    # these need as-lightning[benchmark], so `import *` leaves them out
    "benchmark.compare.api": ("compare",),
    "benchmark.report.table": ("verdicts",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("callbacks", "compat", "functional")
_RENAMED = {  # since 0.4, for one release
    "MaskingPolicy": ("callbacks.accumulation_policy", "MaskingPolicy"),
    "StepSchedule": ("callbacks", "AccumulationSchedule"),
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name in _RENAMED:
        place, now = _RENAMED[name]
        warn(f"as_lightning.{name} is deprecated: it is {__name__}.{place}.{now}", FutureWarning, stacklevel=2)
        return getattr(import_module(f"{__name__}.{place}"), now)
    if name not in __all__ and name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PLACES.get(name, 'callbacks')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PLACES, *_SUBMODULES})
