"""One of two processes that train together: ``python two_ranks.py FOLDER SCENARIO...``, with
LOCAL_RANK, MASTER_ADDR and MASTER_PORT set; what it has seen goes to
``FOLDER/<scenario>-<rank>.pt``.
"""

import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
import torch
from harness.scripted_masking import (
    SAMPLES,
    Plain,
    ScriptedMasking,
    batches_of,
    loader_of,
    quiet_trainer,
)
from harness.stateful_loader import StatefulLoader
from harness.token_batches import MaskedTagger, Tagger, token_batches, tokens_in
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from as_lightning import AccumulationSchedule, MarginHistogram, TemperatureScaling, TokenBudget
from as_lightning.callbacks import AdaptiveGradientAccumulation, MaskingMonitor
from as_lightning.functional import MaskingCounts, fit_temperature
from as_lightning.metrics import MaskingRate

BATCHES, EPOCHS = 26, 2
RANK = int(os.environ.get("LOCAL_RANK", "0"))


def data_of(rank):
    return batches_of(BATCHES, dtype=torch.float64, seed=10 + rank)


class RankScripted(ScriptedMasking):
    """Each rank reports masking of its own; ``asks`` says for how many batches a rank would ask by
    itself.
    """

    def __init__(self, asks=(1, 8), samples=(SAMPLES, SAMPLES)):
        super().__init__(dtype=torch.float64)
        self.asks, self.samples = asks[RANK], samples[RANK]

    def training_step(self, batch, batch_idx):
        masked = self.samples - self.samples // self.asks
        self.masking_counter.update(
            MaskingCounts(*torch.tensor([masked, self.samples, masked, self.samples]))
        )
        return self.loss_of(batch)


class CountsCollectives(pl.Callback):
    """Which collectives Python starts in each batch, and how often DDP reduces a bucket of
    gradients.
    """

    NAMES = (
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "barrier",
        "broadcast",
        "broadcast_object_list",
        "reduce",
        "reduce_scatter_tensor",
    )

    def __init__(self):
        self.collectives: Counter[tuple[str, int]] = Counter()
        self.bucket_batches: list[tuple[int, int]] = []
        self.stepping_batches: list[tuple[int, int]] = []

    def on_train_start(self, trainer, pl_module):
        if isinstance(trainer.strategy, DDPStrategy):

            def counted(state, bucket):  # type: ignore[no-untyped-def]  # DDP wants its own annotations or none
                self.bucket_batches.append((trainer.current_epoch, trainer.fit_loop.batch_idx))
                return allreduce_hook(state, bucket)

            trainer.strategy.model.register_comm_hook(None, counted)
        self.originals = {name: getattr(torch.distributed, name) for name in self.NAMES}
        for name, original in self.originals.items():
            setattr(torch.distributed, name, self.counting(name, original))

    def counting(self, name, original):
        def collective(*args, **kwargs):
            self.collectives[
                name, args[0].numel() if args and isinstance(args[0], Tensor) else 0
            ] += 1
            return original(*args, **kwargs)

        return collective

    def on_before_optimizer_step(self, trainer, *args):
        self.stepping_batches.append((trainer.current_epoch, trainer.fit_loop.batch_idx))

    def on_train_end(self, trainer, pl_module):
        for name, original in self.originals.items():
            setattr(torch.distributed, name, original)


def train(module, callbacks, *, strategy="ddp", loader=None, **arguments):
    fit_arguments = {
        key: arguments.pop(key) for key in ("ckpt_path", "val_dataloaders") if key in arguments
    }
    counts = CountsCollectives()
    trainer = quiet_trainer(
        max_epochs=EPOCHS,
        devices=2,
        strategy=strategy,
        use_distributed_sampler=False,
        callbacks=[counts, *callbacks],
        **arguments,
    )
    trainer.fit(module, loader_of(data_of(RANK)) if loader is None else loader, **fit_arguments)
    weights = {
        name: full(weight)
        for name, weight in trainer.strategy.lightning_module_state_dict().items()
    }
    return {
        "weights": weights,
        "history": [
            (w.epoch, w.batch, w.length, w.masked_samples, w.samples, w.items)
            for c in callbacks
            if isinstance(c, AdaptiveGradientAccumulation)
            for w in c.history
        ],
        "collectives": dict(counts.collectives),
        "bucket_batches": counts.bucket_batches,
        "stepping_batches": counts.stepping_batches,
    }


def full(weight):
    return (
        (weight.full_tensor() if hasattr(weight, "full_tensor") else weight).detach().cpu().clone()
    )


class SavesAfter(pl.Callback):
    """Saves a checkpoint after the given batches of the second epoch."""

    def __init__(self, paths):
        self.paths = paths

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == 1 and batch_idx in self.paths:
            trainer.save_checkpoint(self.paths[batch_idx])


INSIDE, BETWEEN = 13, 15  # a window of 4 takes the batches 12 to 15


class Sharded(RankScripted):
    def configure_model(self):
        from torch.distributed.fsdp import fully_shard

        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


class SharesBatches(RankScripted):
    """Tensor parallel: both ranks see the same batch and the same logits."""

    def configure_model(self):
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(self.net, self.device_mesh["tensor_parallel"], plan)


def to_six(module, *others, **arguments):
    return train(module, [*others, AdaptiveGradientAccumulation(max_steps=6)], **arguments)


def to_four(*others, module=RankScripted, **arguments):
    """Both ranks ask for more batches than four."""
    arguments = {"loader": StatefulLoader(data_of(RANK)), **arguments}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = train(
            module(asks=(8, 8)), [AdaptiveGradientAccumulation(max_steps=4), *others], **arguments
        )
    return seen | {"warnings": [str(warning.message) for warning in caught]}


def sharded(*callbacks, **arguments):
    return to_four(*callbacks, module=Sharded, strategy=on_a_mesh(2, 1), **arguments)


def on_a_mesh(data, tensor):
    return ModelParallelStrategy(data_parallel_size=data, tensor_parallel_size=tensor)


def stream():
    return loader_of(data_of(RANK), length_known=False)


def logits_and_target(module, batch):
    return module.net(batch[0]), batch[1]


class ReturnsScores(RankScripted):
    """Its validation returns numbers of the logits' shape, which under DDP are the result of the
    wrapped module.
    """

    def forward(self, inputs):
        return self.net(inputs)  # type: ignore[no-any-return]

    def validation_step(self, batch, batch_idx):
        return self(batch[0])


def validated(module, data, logits=logits_and_target, **arguments):
    """What the callbacks of validations have found in this rank's batches and in those of the
    others.
    """
    histogram, scaling = (
        callback(logits=logits) for callback in (MarginHistogram, TemperatureScaling)
    )
    train(
        module,
        [histogram, scaling],
        val_dataloaders=loader_of(data),
        limit_train_batches=4,
        **arguments,
    )
    return {"samples": int(histogram.counts.sum()), "temperature": scaling.temperature}


def validated_parts(folder):
    """Three batches of validation on the first rank, one on the second, whose targets are wrong."""
    module = ReturnsScores()
    data = [
        (inputs, module.net(inputs).argmax(-1))
        for inputs, _ in batches_of(4, size=8, dtype=torch.float64)
    ]
    data[3] = data[3][0], (data[3][1] + 1) % 4
    own = data[:3] if RANK == 0 else data[3:]
    seen = validated(module, own, logits=None)

    def fitted(part):
        inputs, target = (torch.cat(tensors) for tensors in zip(*part, strict=True))
        return fit_temperature(module.net(inputs).detach(), target)

    rate = MaskingRate()
    rate.update(MaskingCounts(*torch.tensor([(3, 10, 0, 0), (0, 30, 0, 0)][RANK])))
    return seen | {
        "of the whole": fitted(data),
        "of its own": fitted(own),
        "masking rate": rate.compute().item(),
    }


class Tested(RankScripted):
    def test_step(self, batch, batch_idx): ...


def evaluated_on_one_rank(folder):
    """The second rank has a stream without batches, in validation and in test."""
    module = Tested()
    data = [
        (inputs, module.net(inputs).argmax(-1))
        for inputs, _ in batches_of(3, size=8, dtype=torch.float64)
    ]
    own = loader_of(data if RANK == 0 else [], length_known=False)
    histogram, scaling = (
        callback(logits=logits_and_target) for callback in (MarginHistogram, TemperatureScaling)
    )
    train(module, [histogram, scaling], val_dataloaders=own, limit_train_batches=4)
    seen = {
        "samples": int(histogram.counts.sum()),
        "temperature": scaling.temperature,
        "labels": scaling.multilabel,
    }
    arguments: Any = {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
    quiet_trainer(callbacks=[scaling], **arguments).test(module, own, verbose=False)
    return seen | {"tested": scaling.diagrams["scaled"].predictions.sum().item()}


# Trainings on batches of different items

# in the batches of each rank
ITEMS = ((3, 17, 0, 24, 8, 24, 2, 0, 24, 1), (9, 1, 0, 2, 0, 5, 11, 0, 7, 13))
CLIP = 0.2


def tokens_of(rank):
    return token_batches(ITEMS[rank], seed=10 + rank)


FOURS = AccumulationSchedule({0: 4})


def by_items(policy=FOURS, **arguments):
    settings: dict[str, Any] = {"items": tokens_in, **arguments}
    return AdaptiveGradientAccumulation(policy, **settings)


def on_items(module, *callbacks, loader=None, **arguments):
    loader = loader_of(tokens_of(RANK)) if loader is None else loader
    return train(module, list(callbacks), loader=loader, gradient_clip_val=CLIP, **arguments)


class ShardedTagger(Tagger):
    configure_model = Sharded.configure_model


class SharesBatchesTagger(Tagger):
    configure_model = SharesBatches.configure_model


SCENARIOS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "without_accumulation": lambda folder: train(RankScripted(), []),
    "different_masking": lambda folder: to_six(RankScripted()),
    "with_the_monitor": lambda folder: to_six(RankScripted(), MaskingMonitor()),
    "one_rank_all_ignored": lambda folder: to_six(RankScripted(asks=(3, 1), samples=(SAMPLES, 0))),
    "without_a_counter": lambda folder: train(
        Plain(dtype=torch.float64),
        [AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), lr_scale="sqrt")],
    ),
    "fully_sharded": lambda folder: to_six(Sharded(), strategy=on_a_mesh(2, 1)),
    "tensor_parallel": lambda folder: to_six(
        SharesBatches(asks=(8, 8)), strategy=on_a_mesh(1, 2), loader=loader_of(data_of(0))
    ),
    "a_stream_of_unknown_length": lambda folder: to_four(loader=stream()),
    "uninterrupted": lambda folder: to_four(
        SavesAfter({INSIDE: folder / "inside.ckpt", BETWEEN: folder / "between.ckpt"})
    ),
    "resumed_inside_a_window": lambda folder: to_four(ckpt_path=folder / "inside.ckpt"),
    "resumed_between_windows": lambda folder: to_four(ckpt_path=folder / "between.ckpt"),
    "sharded_uninterrupted": lambda folder: sharded(
        SavesAfter({BETWEEN: folder / "sharded-between"})
    ),
    "sharded_resumed_between_windows": lambda folder: sharded(ckpt_path=folder / "sharded-between"),
    "validated_parts": validated_parts,
    "validated_shared": lambda folder: validated(
        SharesBatches(), data_of(0)[:4], strategy=on_a_mesh(1, 2)
    ),
    "evaluated_on_one_rank": evaluated_on_one_rank,
    "items": lambda folder: on_items(Tagger(), by_items()),
    "a_budget_of_items": lambda folder: on_items(Tagger(), by_items(TokenBudget(60))),
    "items_of_the_mixin": lambda folder: on_items(
        MaskedTagger(), by_items(items="module"), MaskingMonitor()
    ),
    "items_fully_sharded": lambda folder: on_items(
        ShardedTagger(), by_items(), strategy=on_a_mesh(2, 1)
    ),
    "items_tensor_parallel": lambda folder: on_items(
        SharesBatchesTagger(), by_items(), strategy=on_a_mesh(1, 2), loader=loader_of(tokens_of(0))
    ),
}
ON_TWO_GPUS = {"fsdp": lambda folder: to_six(RankScripted(), strategy="fsdp", accelerator="gpu")}


def main(folder, scenarios, functions):
    torch.set_num_threads(1)
    for scenario in scenarios:
        try:
            seen = functions[scenario](folder)
        except Exception:
            seen = {"error": traceback.format_exc()}
        torch.save(seen, folder / f"{scenario}-{RANK}.pt")
    torch.distributed.barrier()
    os._exit(0)  # to destroy the groups of several meshes, torch 2.6 may wait for ever


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:], SCENARIOS | ON_TWO_GPUS)
