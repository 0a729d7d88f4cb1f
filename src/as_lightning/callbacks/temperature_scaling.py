"""Calibrates a classifier's probabilities by one temperature, fitted on the validation split."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from as_lightning.callbacks.evaluation_logits import Logits, LogitsAndTarget, ValidationCallback
from as_lightning.callbacks.window import sum_over_ranks
from as_lightning.fitted_temperature import FittedTemperature, weights_of
from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calibration import (
    Reliability,
    fit_temperature,
    known_entries,
    reliability,
    scaled_probabilities,
)
from as_lightning.functional.calling_convention import in_float64
from as_lightning.mixin import ASSoftmaxMixin

BINS = 15  # of the reliability diagram
MAX_LOGITS = 1 << 26  # a validation keeps about so many numbers, on their device


class TemperatureScaling(ValidationCallback):
    r"""Fit a temperature on the validation logits, so that ``softmax(logits / temperature)`` is
    calibrated.

    Works for any classifier, with or without AS-Softmax, and changes no prediction. Each validation
    of ``fit``, and ``trainer.validate``, fits the temperature for its weights, from some 67 million
    numbers at most on each process, and the next training batch drops it. If training ends with
    weights that were not validated (``StochasticWeightAveraging`` sets new ones, ``max_steps`` ends
    it in mid-epoch), run ``trainer.validate`` with the validation data.

    The logits come from the first of these that is there:

    1. ``logits(pl_module, batch)``, the argument: returns logits and target;
    2. ``pl_module.validation_logits(batch)``;
    3. what the one call of ``forward`` in ``validation_step`` returned (a tensor, or an output with
       ``.logits``), that of the module or of a Hugging Face model inside it; and the target,
       ``batch["labels"]`` of a mapping, the last element of a sequence. Two outputs in one step are
       refused.

    Of several loaders the first one is taken.

    Logits are ``(N, C)`` with targets ``(N)``; ``(N, L, C)`` with ``(N, L)`` for tokens; or several
    labels, targets {0, 1} of the logits' shape, for which the probability of a label is
    ``sigmoid(logits / temperature)``.

    In ``test`` it logs ``test/nll_unscaled``, ``test/nll_scaled``, and the expected calibration
    error (15 bins) as ``test/calibration_error_unscaled`` and ``test/calibration_error_scaled``.

    Args:
        logits: called as ``logits(pl_module, batch)`` in evaluation mode, without gradients.
        ignore_index: target value of rows, or of single labels, that take no part.
        prior_samples: see `fit_temperature`.

    Attributes:
        temperature: of the weights that were validated last, until training goes on; None where
            none is fitted. A module with `ASSoftmaxMixin` holds it.
        multilabel: whether the targets hold several labels; None before the first validation.
        validation_nll: the mean negative log-likelihood of the last validation, at the temperature
            fitted for it.
        diagrams: of the last test, the `Reliability` ``unscaled`` and ``scaled``.

    Raises:
        ValueError, TypeError: if ``prior_samples`` is no number from 0 on.
        ImportError: at the start of ``fit`` if SciPy is not installed.
        MisconfigurationException: in a validation or test that gave no logits, those of two
            outputs, probabilities, or logits that do not fit the targets.

    Source: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017.

    Examples:
        >>> quiet = {"logger": False, "enable_checkpointing": False}
        >>> trainer = Trainer(callbacks=[TemperatureScaling()], **quiet)
    """

    def __init__(
        self, logits: Logits = None, ignore_index: int = -100, prior_samples: float = 1.0
    ) -> None:
        super().__init__(logits, ignore_index)
        self.prior_samples = check_number(
            "prior_samples", prior_samples, lambda n: n >= 0, "a number of at least 0"
        )
        self._reset()

    def _reset(self) -> None:
        self._own_fitted = FittedTemperature()
        self._fitted = self._own_fitted  # a module with the mixin replaces this one by its own
        self.validation_nll = math.nan
        self._weights: dict[str, Any] | None = None  # digests of those that were validated last
        self.diagrams: dict[str, Reliability] = {}
        self._gathered: list[LogitsAndTarget] = []
        self._test_sums: dict[str, Tensor] = {}  # losses, their number, and the bins

    @property
    def temperature(self) -> float | None:
        return self._fitted.value

    @property
    def multilabel(self) -> bool | None:
        return self._fitted.multilabel

    def predict_proba(self, logits: Tensor) -> Tensor:
        """Return the calibrated probabilities of logits, classes last."""
        return scaled_probabilities(logits, self.temperature, bool(self.multilabel))

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and trainer.global_step == 0:  # not the continuation of an earlier fit
            self._reset()
        self._fitted = self._own_fitted
        if isinstance(pl_module, ASSoftmaxMixin):
            self._fitted = pl_module._as_softmax_fitted
        if stage != "test" and importlib.util.find_spec("scipy") is None:
            raise ImportError(
                "TemperatureScaling needs SciPy to fit the temperature: pip install scipy"
            )

    def _known_entries(self, pl_module: LightningModule, batch: Any) -> LogitsAndTarget:
        """Return rows, so that token lengths may differ between batches, or single labels."""
        logits, target, self._fitted.multilabel = self.source.of(pl_module, batch)
        return known_entries(logits, target, self.ignore_index)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._fitted.value = None  # it was fitted for the weights before this batch

    def _begin_validation(self, pl_module: LightningModule) -> None:
        self._gathered.clear()

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        super().on_validation_batch_start()
        # other callbacks have set their weights by now, and metrics have not counted yet
        if batch_idx == dataloader_idx == 0:
            self._weights = weights_of(pl_module)

    def _add_batch(self, pl_module: LightningModule, batch: Any) -> None:
        if sum(logits.numel() for logits, _ in self._gathered) < MAX_LOGITS:
            self._gathered.append(self._known_entries(pl_module, batch))

    def _finish_validation(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # a rank without batches must not keep the others waiting, and learns from them whether
        # there are several labels
        has_batches = bool(self._gathered)
        flags = torch.tensor([has_batches, has_batches and bool(self.multilabel)]).long()
        ranks_with_batches, multilabel_ranks = sum_over_ranks(trainer, flags).tolist()
        if not ranks_with_batches:
            return
        if not has_batches:
            self._fitted.multilabel, self._weights = bool(multilabel_ranks), weights_of(pl_module)
            shape = (0,) if multilabel_ranks else (0, 1)
            self._gathered.append((torch.zeros(shape), torch.zeros(0, dtype=torch.int64)))
        # DDP gives the first rank's buffers to the others at their next forward pass, after the
        # digest was taken
        self._weights = trainer.strategy.broadcast(self._weights)
        logits, target = (torch.cat(parts) for parts in zip(*self._gathered, strict=True))
        self._gathered.clear()
        fitted = fit_temperature(
            logits,
            target,
            prior_samples=self.prior_samples,
            reduce=lambda sums: sum_over_ranks(trainer, sums),
        )
        sums = torch.stack(self._nll_sums(in_float64(logits) / fitted, target))
        loss, count = sum_over_ranks(trainer, sums).tolist()
        self.validation_nll = loss / count
        self._fitted.set(None if math.isnan(fitted) else fitted, self._weights)

    def _nll_sums(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the negative log-likelihoods, and their number."""
        if self.multilabel:
            loss = F.binary_cross_entropy_with_logits(
                logits, target.to(logits.dtype), reduction="sum"
            )
        else:
            loss = F.cross_entropy(logits, target, reduction="sum")
        return loss, torch.full_like(loss, target.numel())

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # After callbacks such as EMAWeightAveraging have put their weights in place.
        if self._fitted.read(pl_module) is None:
            self._fitted.value = None
            rank_zero_warn(
                "TemperatureScaling has fitted no temperature for the trained weights, so "
                "probabilities are those of softmax: there was no validation after the last change "
                "of the weights, or logits are NaN. Run trainer.validate with the validation data"
            )

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._test_sums.clear()
        self.source.start(pl_module)
        self._test_temperature = self._fitted.read(pl_module)
        if self._test_temperature is None:
            rank_zero_warn(
                f"no temperature is fitted for the weights of {type(pl_module).__name__}: "
                "TemperatureScaling measures them at temperature 1"
            )

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if dataloader_idx > 0:
            return
        logits, target = self._known_entries(pl_module, batch)
        logits = in_float64(logits)
        target = target.to(logits.device)
        for name, temperature in (("unscaled", 1.0), ("scaled", self._test_temperature or 1.0)):
            scaled = logits / temperature
            losses = torch.stack(self._nll_sums(scaled, target))
            sums = torch.cat([losses, *reliability(scaled, target, bins=BINS)])
            self._test_sums[name] = sums + self._test_sums.get(name, 0.0)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.source.stop()
        of_no_batch = torch.zeros(2 + 3 * BINS, dtype=torch.float64)
        for name in ("unscaled", "scaled"):
            sums = sum_over_ranks(trainer, self._test_sums.get(name, of_no_batch)).cpu()
            losses, *bins = sums.split([2, BINS, BINS, BINS])
            if losses[1] == 0:
                continue
            self.diagrams[name] = Reliability(*bins)
            metrics = {
                f"test/nll_{name}": (losses[0] / losses[1]).float(),
                f"test/calibration_error_{name}": self.diagrams[name].calibration_error.float(),
            }
            # they are sums over the ranks already
            pl_module.log_dict(metrics, sync_dist=False, batch_size=1)
        self._test_sums.clear()

    def state_dict(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "multilabel": self.multilabel,
            "weights": self._fitted.weights,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._own_fitted.multilabel = state_dict["multilabel"]
        self._own_fitted.set(state_dict["temperature"], state_dict["weights"])
