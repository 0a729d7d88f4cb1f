"""What the callbacks cost a training step, and what accumulation saves where gradients are reduced
over processes.

    python speed/accumulation_overhead.py overhead --output results/accumulation/overhead
    python speed/accumulation_overhead.py processes --output results/accumulation/processes

``overhead``: one training whose windows run, in pairs of random order, with the callbacks and
without them, in the ways of :data:`WAYS`. Both windows of a pair see the same machine, so that one
that slows down slows down both sides; the clock is the process's own processor time, so that what
else the machine does is not counted. Windows without the callbacks accumulate as many batches as
those with them.

``processes``: DDP on two processes of this machine (gloo), a model whose gradients take longer to
reduce than its batches to compute. Every batch reports masking that asks for all of ``max_steps =
k``; rounds interleave the k.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import socket
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import lightning.pytorch as pl
import torch
from interleaved import command, write_report
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from as_lightning import (
    AccumulationSchedule,
    AdaptiveGradientAccumulation,
    ASSoftmaxMixin,
    MaskingMonitor,
)
from as_lightning.bench.machine import machine_description
from as_lightning.callbacks.open_window import divide_gradients
from as_lightning.functional import MaskingCounts

CLASSES = 32


class OneBatch(Dataset[tuple[Tensor, Tensor]]):
    """The same batch over and over: the data cost nothing."""

    def __init__(self, batches: int, size: int, width: int) -> None:
        self.batches = batches
        self.batch = (torch.randn(size, width), torch.randint(CLASSES, (size,)))

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.batch


class Perceptron(ASSoftmaxMixin, pl.LightningModule):
    """Equal layers, as many as it takes."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__(delta=0.1)
        hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.net = nn.Sequential(*hidden, nn.Linear(width, CLASSES))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        loss = self.as_softmax_loss(self.net(inputs), target)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def trainer_of(**arguments: Any) -> pl.Trainer:
    """One epoch, nothing printed or saved."""
    settings: dict[str, Any] = {
        "max_epochs": 1,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(**(settings | arguments))


class SwitchesCallbacks(Perceptron):
    """Trains one window of each pair with the callbacks, in random order, and takes the time of
    each step.
    """

    def start_switching(
        self, trainer: pl.Trainer, callbacks: list[pl.Callback], steps: int, length: int
    ) -> None:
        self.without: list[pl.Callback] = []
        self.with_callbacks = callbacks
        draw = random.Random(0)
        pairs = [on for _ in range(steps // length // 2) for on in draw.sample([True, False], 2)]
        # what the trainer accumulates while they are away, or what they have set
        self.other_accumulation = length
        self.order = [on for on in [True, False, *pairs] for _ in range(length)]
        self.step = 0
        self.seconds: list[float] = []
        self.clock = 0.0
        trainer.callbacks = self.chosen()  # type: ignore[attr-defined]

    def chosen(self) -> list[pl.Callback]:
        return self.with_callbacks if self.order[self.step] else self.without

    def on_train_start(self) -> None:
        self.clock = time.process_time()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # the callbacks' hooks of this step have run, and no loop over the list is under way
        now = time.process_time()
        super().on_train_batch_end(outputs, batch, batch_idx)
        self.seconds.append(now - self.clock)
        self.step += 1
        if self.order[self.step - 1] != self.order[self.step]:
            accumulation = self.trainer.accumulate_grad_batches
            self.trainer.accumulate_grad_batches = self.other_accumulation
            self.other_accumulation = accumulation
        self.trainer.callbacks = self.chosen()  # type: ignore[attr-defined]
        self.clock = time.process_time()


class StartsSwitching(pl.Callback):
    def __init__(self, callbacks: list[pl.Callback], steps: int, length: int) -> None:
        self.callbacks, self.steps, self.length = callbacks, steps, length

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, SwitchesCallbacks)
        pl_module.start_switching(trainer, self.callbacks, self.steps, self.length)


class Idle(pl.Callback):
    """Does nothing; Lightning calls its hooks all the same."""


class Multiplies(pl.Callback):
    """One pass over all gradients before each step, as each window of several batches makes."""

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any
    ) -> None:
        divide_gradients(optimizer, 1.001)


def paired_steps(
    callbacks: list[pl.Callback],
    width: int,
    layers: int,
    size: int,
    steps: int,
    logger: Any,
    length: int = 1,
) -> tuple[list[float], list[float]]:
    """Seconds a batch of the windows with and without the callbacks, pair by pair."""
    module = SwitchesCallbacks(width, layers)
    trainer = trainer_of(callbacks=[StartsSwitching(callbacks, steps, length)], logger=logger)
    trainer.fit(module, DataLoader(OneBatch(steps, size, width), batch_size=None))
    starts = range(0, len(module.seconds) // length * length, length)
    windows = [
        (module.order[start], sum(module.seconds[start : start + length]) / length)
        for start in starts
    ]
    timed = windows[len(windows) // 10 // 2 * 2 :]  # the first ones warm up
    pairs = len(timed) // 2 * 2
    on, off = (
        [seconds for with_them, seconds in timed[:pairs] if with_them is side]
        for side in (True, False)
    )
    return on, off


def by_step(length: int, *others: pl.Callback, **arguments: Any) -> list[pl.Callback]:
    return [AdaptiveGradientAccumulation(AccumulationSchedule({0: length}), **arguments), *others]


def differing_items() -> Callable[[Any], int]:
    """As many items as no batch before had: the gradients must be multiplied in every window."""
    items = itertools.count(1000)
    return lambda batch: next(items)


# in words: how many batches a window takes, and the callbacks
WAYS: dict[str, tuple[int, Callable[[], list[pl.Callback]]]] = {
    "AS-Speed that decides after every batch, beside the monitor": (
        1,
        lambda: [AdaptiveGradientAccumulation(max_steps=1, lr_scale="none"), MaskingMonitor()],
    ),
    "the same, without the monitor": (
        1,
        lambda: [AdaptiveGradientAccumulation(max_steps=1, lr_scale="none")],
    ),
    "two callbacks that do nothing": (1, lambda: [Idle(), Idle()]),
    "windows of 4 batches": (4, lambda: by_step(4)),
    "windows of 4, the rate scaled": (4, lambda: by_step(4, lr_scale="sqrt")),
    "windows of 4, by items, as many in each batch": (
        4,
        lambda: by_step(4, items=lambda batch: 64),
    ),
    "windows of 4, by items, another number in each batch": (
        4,
        lambda: by_step(4, items=differing_items()),
    ),
    "windows of 4, and one multiplication of all gradients": (4, lambda: by_step(4, Multiplies())),
}


def layers_for(milliseconds: float, width: int, size: int) -> int:
    """How many layers make a step of about so many milliseconds."""
    _, few = paired_steps([], width, 2, size, 60, False)
    _, more = paired_steps([], width, 12, size, 60, False)
    per_layer = (statistics.median(more) - statistics.median(few)) / 10
    return max(1, round((milliseconds / 1e3 - statistics.median(few)) / per_layer) + 2)


def measure_overhead(milliseconds: float, steps: int, rounds: int) -> dict[str, Any]:
    from lightning.pytorch.loggers import TensorBoardLogger

    width, size = 256, 64
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            layers = layers_for(
                milliseconds, width, size
            )  # every round: the machine may have others to serve
            for way, (length, make) in WAYS.items():
                on, off = paired_steps(
                    make(), width, layers, size, steps, TensorBoardLogger(folder), length
                )
                added = statistics.median(a - b for a, b in zip(on, off, strict=False))
                results[way].append(
                    {
                        "layers": layers,
                        "without_ms": statistics.median(off) * 1e3,
                        "added_us": added * 1e6,
                        "ratio": 1 + added / statistics.median(off),
                    }
                )
                print(way, results[way][-1], flush=True)
    return {
        "width": width,
        "batch_size": size,
        "steps": steps,
        "rounds": results,
        "median": {
            way: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            for way, rows in results.items()
        },
        "bar": 1.01,
    }


class AlwaysMasked(Perceptron):
    """Reports every sample as masked, so that the callback goes to ``max_steps`` as
    fast as it may.
    """

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        samples = target.numel()
        reported = self.as_softmax_module
        reported.called = True
        if reported.masking_counter is not None:
            counts = MaskingCounts(*torch.tensor([samples, samples, 0, 1]))
            reported.masking_counter.update(counts)
        return nn.functional.cross_entropy(self.net(inputs), target)


class Clock(pl.Callback):
    """Times the batches after the first ``skip``: the window has then reached its length."""

    def __init__(self, skip: int) -> None:
        self.skip, self.start, self.seconds = skip, 0.0, 0.0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == self.skip:
            torch.distributed.barrier()
            self.start = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds = time.perf_counter() - self.start


def train_on_two_processes(steps: int, batches: int, width: int, layers: int) -> dict[str, float]:
    clock, speed = Clock(skip=12), AdaptiveGradientAccumulation(max_steps=steps, lr_scale="none")
    trainer = trainer_of(
        devices=2, strategy="ddp", callbacks=[clock, speed], use_distributed_sampler=False
    )
    torch.manual_seed(0)
    trainer.fit(
        AlwaysMasked(width, layers), DataLoader(OneBatch(12 + batches, 8, width), batch_size=None)
    )
    timed = [window for window in speed.history if window.batch >= 12]
    assert {window.length for window in timed} == {steps}
    return {"seconds": clock.seconds, "optimizer_steps": len(timed)}


def one_process(
    rank: int, port: int, output: str, rounds: int, shape: tuple[int, int, int]
) -> None:
    """What each of the two processes runs; the first writes what it has measured."""
    ranks = {
        "LOCAL_RANK": str(rank),
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    os.environ.update(ranks)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    train_on_two_processes(1, 12, *shape[1:])
    results = []
    for round_index in range(rounds):
        order = [1, 2, 4] if round_index % 2 == 0 else [4, 2, 1]
        results.append({str(steps): train_on_two_processes(steps, *shape) for steps in order})
    if rank == 0:
        Path(output).write_text(json.dumps(results), encoding="utf-8")
    torch.distributed.destroy_process_group()


def measure_processes(rounds: int, batches: int, width: int, layers: int) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "seconds.json"
        torch.multiprocessing.spawn(
            one_process, (port, str(output), rounds, (batches, width, layers)), nprocs=2
        )
        results = json.loads(output.read_text(encoding="utf-8"))
    parameters = sum(parameter.numel() for parameter in Perceptron(width, layers).parameters())
    rows = {}
    for steps in ("1", "2", "4"):
        ratios = [result[steps]["seconds"] / result["1"]["seconds"] for result in results]
        rows[steps] = {
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "milliseconds_a_batch": statistics.median(
                result[steps]["seconds"] for result in results
            )
            / batches
            * 1e3,
            "optimizer_steps": results[0][steps]["optimizer_steps"],
        }
    return {
        "parameters": parameters,
        "batches": batches,
        "batch_size": 8,
        "rounds": len(results),
        "steps": rows,
    }


def overhead_table(report: dict[str, Any]) -> list[str]:
    result = report["result"]
    return [
        "# Cost of the callbacks",
        "",
        f"What the callbacks add to a training step of a perceptron (layers of {result['width']}, "
        "batches of "
        f"{result['batch_size']}), TensorBoard",
        "writing every 50 steps. Windows with and without the callbacks alternate in pairs of "
        "random order and take",
        "as many batches; the difference is the median over a round's pairs, for each batch. "
        "Processor time of the",
        f"process. Medians of {len(next(iter(result['rounds'].values())))} rounds, with the "
        "smallest and the largest "
        "ratio. Two callbacks that do nothing stand beside them:",
        "Lightning calls every hook of every callback, which is part of what a callback costs.",
        "A masked loss counts only where a callback asks for it, so that the counting is part of what",
        "is added; [whole epochs beside 0.4](../performance/versions.md) take the same time.",
        "",
        "| | a step, ms | added, µs | ratio |",
        "| --- | --- | --- | --- |",
        *(
            f"| {way} | {median['without_ms']:.2f} | {median['added_us']:.0f} | "
            f"**{median['ratio']:.4f}** "
            f"({min(row['ratio'] for row in rows):.4f}–{max(row['ratio'] for row in rows):.4f}) |"
            for (way, median), rows in zip(
                result["median"].items(), result["rounds"].values(), strict=True
            )
        ),
        "",
        f"The aim is {result['bar']:.2f} for a step of 10 ms, {(result['bar'] - 1) * 1e4:.0f} µs. "
        "The number of layers",
        "is chosen anew for each round, for a step of about that length. By items, a window whose "
        "batches have",
        "different numbers must multiply all gradients before it steps, as the last row does "
        "without items: a pass",
        "over as much memory as the weights. A decision after every batch reads that batch's "
        "counts on the host;",
        "windows of several batches share one read.",
    ]


def processes_table(report: dict[str, Any]) -> list[str]:
    result = report["result"]
    return [
        "# Accumulation on two processes",
        "",
        "DDP on two processes of one machine (gloo), a perceptron of "
        f"{result['parameters'] / 1e6:.1f} million "
        f"parameters, batches of {result['batch_size']} a",
        f"process. Time of {result['batches']} batches relative to k = 1: median of "
        f"{result['rounds']} interleaved "
        "rounds, with the smallest and the largest.",
        "Gradients are reduced once per window; no sample is skipped, so this is what fewer "
        "reductions and optimizer",
        "steps save.",
        "",
        "| k | optimizer steps | ms per batch | time / k = 1 |",
        "| --- | --- | --- | --- |",
        *(
            f"| {steps} | {row['optimizer_steps']} | {row['milliseconds_a_batch']:.1f} | "
            f"**{row['ratio']:.2f}** "
            f"({row['ratio_min']:.2f}–{row['ratio_max']:.2f}) |"
            for steps, row in result["steps"].items()
        ),
    ]


def table(report: dict[str, Any]) -> str:
    """The page of either measurement."""
    made = (
        f"`{report['command']}` on {report['machine']}, {report['cores']} cores, 1 thread per "
        "process, "
        f"PyTorch {report['torch']}, Lightning {report['lightning']}, Python {report['python']}."
    )
    lines = processes_table if "parameters" in report["result"] else overhead_table
    return "\n".join([*lines(report), "", made, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("what", choices=["overhead", "processes"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=400, help="overhead: steps of a round")
    parser.add_argument(
        "--milliseconds", type=float, default=10.0, help="overhead: a step's length"
    )
    parser.add_argument("--batches", type=int, default=24, help="processes: batches that are timed")
    parser.add_argument("--width", type=int, default=1024, help="processes: width of the layers")
    parser.add_argument("--layers", type=int, default=16, help="processes: how many of them")
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if arguments.what == "overhead":
        result = measure_overhead(arguments.milliseconds, arguments.steps, arguments.rounds)
    else:
        result = measure_processes(
            arguments.rounds, arguments.batches, arguments.width, arguments.layers
        )
    report = {
        "command": command(),
        "machine": machine_description()["processor"],
        "cores": os.cpu_count(),
        "threads": 1,
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "python": platform.python_version(),
        "result": result,
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
