"""Adaptive Sparse Softmax (AS-Softmax) for PyTorch Lightning.

Source: Lv et al., "Adaptive Sparse Softmax: An Effective and Efficient Softmax Variant", IEEE TASLP
33, 2025, arXiv 2508.03175.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from as_lightning.callbacks import (
        AccumulationSchedule,
        AccumulationWindow,
        AdaptiveGradientAccumulation,
        MarginHistogram,
        MaskingMonitor,
        TemperatureScaling,
        TokenBudget,
    )
    from as_lightning.compare.api import compare as compare
    from as_lightning.losses import ASSoftmaxLoss, LinearCrossEntropyLoss, MultiLabelASSoftmaxLoss
    from as_lightning.masking_counter import MaskingCounter
    from as_lightning.metrics import MaskingRate
    from as_lightning.mixin import ASSoftmaxMixin
    from as_lightning.schedules import DeltaWarmup
    from as_lightning.statistics.judge import verdicts as verdicts

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

# The module of each public name, except for the callbacks. A name is imported on first access, so
# that the commands' help does not wait for torch.
_NAMES_BY_MODULE = {
    "losses": ("ASSoftmaxLoss", "LinearCrossEntropyLoss", "MultiLabelASSoftmaxLoss"),
    "masking_counter": ("MaskingCounter",),
    "metrics": ("MaskingRate",),
    "mixin": ("ASSoftmaxMixin",),
    "schedules": ("DeltaWarmup",),
    # these need as-lightning[benchmark], or [report], so `import *` leaves them out
    "compare.api": ("compare",),
    "statistics.judge": ("verdicts",),
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
_SUBMODULES = ("callbacks", "compat", "functional")
_RENAMED = {  # since 0.4, for one release
    "MaskingPolicy": ("callbacks.accumulation_policy", "MaskingPolicy"),
    "StepSchedule": ("callbacks", "AccumulationSchedule"),
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name in _RENAMED:
        module, new_name = _RENAMED[name]
        warn(
            f"as_lightning.{name} is deprecated: it is {__name__}.{module}.{new_name}",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(import_module(f"{__name__}.{module}"), new_name)
    if name not in __all__ and name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME.get(name, 'callbacks')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULE_BY_NAME, *_SUBMODULES})
