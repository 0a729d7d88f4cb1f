"""Pure tensor mathematics: no state, no Lightning."""

from as_lightning.functional.accumulation import accumulation_steps
from as_lightning.functional.calibration import Reliability, fit_temperature, reliability
from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.linear_cross_entropy import (
    as_linear_cross_entropy,
    linear_cross_entropy,
)
from as_lightning.functional.masking import as_softmax_mask
from as_lightning.functional.multilabel import multilabel_as_cross_entropy
from as_lightning.functional.variants.am_softmax import am_softmax, am_softmax_loss
from as_lightning.functional.variants.asymmetric import asymmetric_loss
from as_lightning.functional.variants.class_counts import class_counts_of
from as_lightning.functional.variants.encouraging import encouraging_loss
from as_lightning.functional.variants.entmax import entmax, entmax_loss, sparsemax, sparsemax_loss
from as_lightning.functional.variants.focal import focal_loss
from as_lightning.functional.variants.generalised_cross_entropy import (
    generalised_cross_entropy_loss,
)
from as_lightning.functional.variants.logit_adjusted import logit_adjusted_loss
from as_lightning.functional.variants.logit_adjustment import adjust_logits, fit_tau
from as_lightning.functional.variants.multilabel import (
    bce_loss,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
)
from as_lightning.functional.variants.perturb_max import perturb_max, perturb_max_loss
from as_lightning.functional.variants.sparse_softmax import sparse_softmax, sparse_softmax_loss
from as_lightning.functional.variants.t_softmax import t_softmax, t_softmax_loss
from as_lightning.functional.variants.taylor_softmax import taylor_softmax, taylor_softmax_loss

__all__ = [
    "MaskingCounts",
    "Reliability",
    "accumulation_steps",
    "adjust_logits",
    "am_softmax",
    "am_softmax_loss",
    "as_cross_entropy",
    "as_linear_cross_entropy",
    "as_softmax_mask",
    "asymmetric_loss",
    "bce_loss",
    "class_counts_of",
    "encouraging_loss",
    "entmax",
    "entmax_loss",
    "fit_tau",
    "fit_temperature",
    "focal_loss",
    "generalised_cross_entropy_loss",
    "linear_cross_entropy",
    "logit_adjusted_loss",
    "multilabel_as_cross_entropy",
    "multilabel_softmax_loss",
    "multilabel_sparse_loss",
    "perturb_max",
    "perturb_max_loss",
    "reliability",
    "sparse_softmax",
    "sparse_softmax_loss",
    "sparsemax",
    "sparsemax_loss",
    "t_softmax",
    "t_softmax_loss",
    "taylor_softmax",
    "taylor_softmax_loss",
]
