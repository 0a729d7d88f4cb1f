"""One of two processes that train the classifier together: ``python two_ranks.py FOLDER SCENARIO...``, with LOCAL_RANK,
MASTER_ADDR and MASTER_PORT set. A scenario is a function below; what this rank has seen goes to a file.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compatibility import features  # noqa: F401  (fills the table)
from compatibility.matrix import FEATURES, Feature
from compatibility.runs import CLASSES, Run, WithAS, batches
from harness.scripted_masking import loader_of
from harness.two_ranks import full, main
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy

from as_lightning import MarginHistogram, MaskingRate, TemperatureScaling
from as_lightning.callbacks.adaptive_gradient_accumulation import GRADIENTS
from as_lightning.callbacks.window import COUNTS
from as_lightning.functional import MaskingCounts, fit_temperature

RANK = int(os.environ.get("LOCAL_RANK", "0"))
DDP: dict[str, Any] = {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False}


def train(folder: Path, module: WithAS, strategy: Any, rank: int) -> dict[str, Any]:
    """A training and its validations; ``rank`` is that of the batches, which ranks of one model share."""
    data = loader_of(batches()[rank:] + batches()[:rank])  # other batches on each rank, unless they share a rank's
    histogram = MarginHistogram()
    settings = DDP | {"strategy": strategy}
    run = Run(folder, module=module, data=data, validation=True, callbacks=[histogram], **settings)
    weights = {name: full(weight) for name, weight in run.trainer.strategy.lightning_module_state_dict().items()}
    return {
        "weights": weights,
        "windows": [tuple(window) for window in run.speed.history],
        "longest_window": max(window.length for window in run.speed.history),
        "samples": [epoch.samples for epoch in run.monitor.history],
        "validation samples": int(histogram.counts.sum()),
    }


def ddp(folder: Path) -> dict[str, Any]:
    return train(folder, WithAS(delta=0.1), "ddp", RANK)


class Sharded(WithAS):
    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


def fully_sharded(folder: Path) -> dict[str, Any]:
    return train(folder, Sharded(delta=0.1), ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1), RANK)


class TensorParallel(WithAS):
    def configure_model(self) -> None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(self.net, self.device_mesh["tensor_parallel"], plan)


def tensor_parallel(folder: Path) -> dict[str, Any]:
    strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=2)
    return train(folder, TensorParallel(delta=0.1), strategy, rank=0)


def temperature(folder: Path) -> dict[str, Any]:
    """Three batches of validation on the first rank, one on the second, whose targets are wrong."""
    whole = batches(4)
    inputs, target = whole[3]
    whole[3] = inputs, (target + 1) % CLASSES
    own = whole[:3] if RANK == 0 else whole[3:]
    callback, module = TemperatureScaling(), WithAS(delta=0.1)
    run = Run(folder, module=module, callbacks=[callback], fit=False, **DDP)
    run.validation = loader_of(own)
    run.fit()

    def fitted(part: list[Any]) -> float:
        inputs, target = (torch.cat(tensors) for tensors in zip(*part, strict=True))
        return fit_temperature(module(inputs).detach(), target)

    rate = MaskingRate()
    rate.update(MaskingCounts(*torch.tensor([(3, 10, 0, 0), (0, 30, 0, 0)][RANK])))
    fits = {"temperature": callback.temperature, "of the whole": fitted(whole), "of its own": fitted(own)}
    return fits | {"masking rate": rate.compute().item()}


def exception(folder: Path) -> dict[str, Any]:
    """Both ranks fail in a validation inside a window, and each saves: a rank that fails alone must not wait."""

    class Fails(pl.Callback):
        def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: Any, *args: Any) -> None:
            if not trainer.sanity_checking and (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches:
                raise ArithmeticError

    saves = OnExceptionCheckpoint(folder)
    settings = DDP | {"val_check_interval": 1, "enable_checkpointing": True}
    run = Run(folder, validation=True, callbacks=[saves, Fails()], fit=False, **settings)
    try:
        run.fit()
    except ArithmeticError:
        saved = torch.load(saves.ckpt_path, weights_only=True)
        window = saved["callbacks"]["AdaptiveGradientAccumulation"]["window"]
        return {"window is open": window["is_open"], "accumulate": run.trainer.accumulate_grad_batches} | {
            key: key in saved for key in (COUNTS, GRADIENTS)
        }
    raise AssertionError("no validation lay inside a window")


def both_pass(feature: Feature) -> Callable[[Path], dict[str, Any]]:
    """A row of the table that is for one process, on two."""

    def check(folder: Path) -> dict[str, Any]:
        torch.manual_seed(0)
        Run.processes = 2
        try:
            feature.check(folder / feature.file_name)
        finally:
            Run.processes = 1
        return {"passed": feature.name}

    return check


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rows = {feature.file_name: both_pass(feature) for feature in FEATURES.values()}
    main(Path(sys.argv[1]), sys.argv[2:], globals() | rows)
