"""One of two processes that train together on batches of different items: see :mod:`harness.two_ranks`."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
from harness.scripted_masking import loader_of
from harness.stateful_loader import StatefulLoader
from harness.token_batches import MaskedTagger, SumTagger, Tagger, token_batches, tokens_in
from harness.two_ranks import RANK, main, train
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

from as_lightning import AdaptiveGradientAccumulation, MaskingMonitor, StepSchedule

COUNTS = ((3, 17, 0, 24, 8, 24, 2, 0, 24, 1), (9, 1, 0, 2, 0, 5, 11, 0, 7, 13))  # for each rank
CLIP = 0.2


def data_of(rank: int) -> list[Any]:
    return token_batches(COUNTS[rank], seed=10 + rank)


def speed(**arguments: Any) -> AdaptiveGradientAccumulation:
    settings: dict[str, Any] = {"normalize": "items", "items": tokens_in, **arguments}
    return AdaptiveGradientAccumulation(StepSchedule({0: 4}), **settings)


def fit(module: Any, *callbacks: pl.Callback, loader: Any = None, **arguments: Any) -> dict[str, Any]:
    loader = loader_of(data_of(RANK)) if loader is None else loader
    return train(module, list(callbacks), loader=loader, gradient_clip_val=CLIP, **arguments)


def no_sync(folder: Path) -> dict[str, Any]:
    return fit(Tagger(), speed())


class SyncsEveryBatch(DDPStrategy):
    @contextmanager
    def block_backward_sync(self) -> Any:
        yield


def without_no_sync(folder: Path) -> dict[str, Any]:
    return fit(Tagger(), speed(), strategy=SyncsEveryBatch())


def stream(folder: Path) -> dict[str, Any]:
    return fit(Tagger(), speed(), loader=loader_of(data_of(RANK), length_known=False))


def sums(folder: Path) -> dict[str, Any]:
    return fit(SumTagger(), speed(loss_is="sum"))


def mixin(folder: Path) -> dict[str, Any]:
    return fit(MaskedTagger(), speed(items=None), MaskingMonitor())


class SavesEveryBatch(pl.Callback):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(self.folder / f"{batch_idx}.ckpt")


def whole(folder: Path) -> dict[str, Any]:
    return fit(Tagger(), speed(), SavesEveryBatch(folder), loader=StatefulLoader(data_of(RANK)))


def resumed(folder: Path) -> dict[str, Any]:
    """Resumed after each batch of the first epoch."""
    runs = [
        fit(Tagger(), speed(), loader=StatefulLoader(data_of(RANK)), ckpt_path=folder / f"{batch}.ckpt")
        for batch in range(len(COUNTS[0]))
    ]
    return {"runs": runs}


class ShardedTagger(Tagger):
    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


def fully_sharded(folder: Path) -> dict[str, Any]:
    return fit(ShardedTagger(), speed(), strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1))


class SharesBatches(Tagger):
    def configure_model(self) -> None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(self.net, self.device_mesh["tensor_parallel"], plan)


def tensor_parallel(folder: Path) -> dict[str, Any]:
    strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=2)
    return fit(SharesBatches(), speed(), strategy=strategy, loader=loader_of(data_of(0)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:], globals())
