"""Adaptive Sparse Softmax (AS-Softmax) for PyTorch Lightning.

Source: Lv et al., "Adaptive Sparse Softmax: An Effective and Efficient Softmax Variant", IEEE TASLP
33, 2025, arXiv 2508.03175.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from as_lightning.callbacks import (
        AccumulationSchedule,
        AccumulationWindow,
        AdaptiveGradientAccumulation,
        DeltaWarmup,
        MarginHistogram,
        MaskingMonitor,
        TemperatureScaling,
        TokenBudget,
    )
    from as_lightning.comparison.api import compare as compare
    from as_lightning.losses import ASSoftmaxLoss, LinearCrossEntropyLoss, MultiLabelASSoftmaxLoss
    from as_lightning.losses_for_conditions import (
        AsymmetricLoss,
        EncouragingLoss,
        FocalLoss,
        GeneralisedCrossEntropyLoss,
        LogitAdjustedLoss,
        class_weights,
    )
    from as_lightning.masking_counter import MaskingCounter
    from as_lightning.metrics import MaskingRate
    from as_lightning.mixin import ASSoftmaxMixin
    from as_lightning.statistics.judge import verdicts as verdicts

__version__ = "0.5.0"

__all__ = [
    "ASSoftmaxLoss",
    "ASSoftmaxMixin",
    "AccumulationSchedule",
    "AccumulationWindow",
    "AdaptiveGradientAccumulation",
    "AsymmetricLoss",
    "DeltaWarmup",
    "EncouragingLoss",
    "FocalLoss",
    "GeneralisedCrossEntropyLoss",
    "LinearCrossEntropyLoss",
    "LogitAdjustedLoss",
    "MarginHistogram",
    "MaskingCounter",
    "MaskingMonitor",
    "MaskingRate",
    "MultiLabelASSoftmaxLoss",
    "TemperatureScaling",
    "TokenBudget",
    "class_weights",
]

# The module of each public name, except for the callbacks. A name is imported on first access, so
# that the commands' help does not wait for torch.
_MODULES = {
    "ASSoftmaxMixin": "mixin",
    "MaskingCounter": "masking_counter",
    "MaskingRate": "metrics",
    "ASSoftmaxLoss": "losses",
    "LinearCrossEntropyLoss": "losses",
    "MultiLabelASSoftmaxLoss": "losses",
    "AsymmetricLoss": "losses_for_conditions",
    "EncouragingLoss": "losses_for_conditions",
    "FocalLoss": "losses_for_conditions",
    "GeneralisedCrossEntropyLoss": "losses_for_conditions",
    "LogitAdjustedLoss": "losses_for_conditions",
    "class_weights": "losses_for_conditions",
    # these need as-lightning[benchmark] or [report], so `import *` leaves them out
    "compare": "comparison.api",
    "verdicts": "statistics.judge",
}
_SUBMODULES = ("callbacks", "compat", "functional")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in __all__ and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'callbacks')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, *_SUBMODULES})
