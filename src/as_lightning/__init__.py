"""Adaptive Sparse Softmax (AS-Softmax) for PyTorch Lightning.

Source: Lv et al., "Adaptive Sparse Softmax: An Effective and Efficient Softmax Variant", IEEE TASLP 33, 2025,
arXiv 2508.03175.
"""

from typing import TYPE_CHECKING, Any

from as_lightning.callbacks import (
    AdaptiveGradientAccumulation,
    MaskedSampleSkipping,
    MaskingMonitor,
    TemperatureScaling,
)
from as_lightning.losses import ASSoftmaxLoss, LinearCrossEntropyLoss, MultiLabelASSoftmaxLoss
from as_lightning.masking_counter import MaskingCounter
from as_lightning.metrics import LossAccuracyCorrelation, MaskingRate
from as_lightning.mixin import ASSoftmaxMixin
from as_lightning.schedules import DeltaWarmup

if TYPE_CHECKING:
    from as_lightning.benchmark.compare.api import compare

__version__ = "0.1.0"

__all__ = [
    "ASSoftmaxLoss",
    "ASSoftmaxMixin",
    "AdaptiveGradientAccumulation",
    "DeltaWarmup",
    "LinearCrossEntropyLoss",
    "LossAccuracyCorrelation",
    "MaskedSampleSkipping",
    "MaskingCounter",
    "MaskingMonitor",
    "MaskingRate",
    "MultiLabelASSoftmaxLoss",
    "TemperatureScaling",
    "compare",
]


def __getattr__(name: str) -> Any:
    # the comparison needs the packages of as-lightning[benchmark], which are loaded where it is used
    if name != "compare":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from as_lightning.benchmark.compare.api import compare
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "as_lightning":
            raise
        raise ImportError(
            f'as_lightning.compare needs the package {error.name}: pip install "as-lightning[benchmark]"'
        ) from error
    return compare
