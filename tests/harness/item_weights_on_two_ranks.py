"""One of two processes that train together on batches of different items: see :mod:`harness.two_ranks`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
from harness.scripted_masking import SavesEveryBatch, loader_of
from harness.stateful_loader import StatefulLoader
from harness.token_batches import MaskedTagger, SumTagger, Tagger, token_batches, tokens_in
from harness.two_ranks import RANK, Sharded, SharesBatches, main, on_a_mesh, train
from lightning.pytorch.strategies import DDPStrategy

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


class SyncsEveryBatch(DDPStrategy):
    @contextmanager
    def block_backward_sync(self) -> Any:
        yield


class ShardedTagger(Tagger):
    def configure_model(self) -> None:
        Sharded.configure_model(self)  # type: ignore[arg-type]


class SharesBatchesTagger(Tagger):
    def configure_model(self) -> None:
        SharesBatches.configure_model(self)  # type: ignore[arg-type]


def from_its_place(*callbacks: pl.Callback, **arguments: Any) -> dict[str, Any]:
    return fit(Tagger(), speed(), *callbacks, loader=StatefulLoader(data_of(RANK)), **arguments)


def whole(folder: Path) -> dict[str, Any]:
    return from_its_place(SavesEveryBatch(folder))


def resumed(folder: Path) -> dict[str, Any]:
    """Resumed after each batch of the first epoch."""
    return {"runs": [from_its_place(ckpt_path=folder / f"0-{batch:02d}.ckpt") for batch in range(len(COUNTS[0]))]}


SCENARIOS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "no_sync": lambda folder: fit(Tagger(), speed()),
    "without_no_sync": lambda folder: fit(Tagger(), speed(), strategy=SyncsEveryBatch()),
    "stream": lambda folder: fit(Tagger(), speed(), loader=loader_of(data_of(RANK), length_known=False)),
    "sums": lambda folder: fit(SumTagger(), speed(loss_is="sum")),
    "mixin": lambda folder: fit(MaskedTagger(), speed(items=None), MaskingMonitor()),
    "whole": whole,
    "resumed": resumed,
    "fully_sharded": lambda folder: fit(ShardedTagger(), speed(), strategy=on_a_mesh(2, 1)),
    "tensor_parallel": lambda folder: fit(
        SharesBatchesTagger(), speed(), strategy=on_a_mesh(1, 2), loader=loader_of(data_of(0))
    ),
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:], SCENARIOS)
