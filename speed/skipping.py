"""What skipping samples costs by itself: the plan of an epoch, and the callback's share of a training step.

    python speed/skipping.py --output results/performance/skipping

The plan: of so many samples, the time and the memory of what happens between two epochs. The step: one training whose
steps run, in pairs of random order, with ``MaskingMonitor`` alone and with ``MaskedSampleSkipping`` beside it, which
then records the live samples; processor time of the process. The loader's part of a step is taken apart, in passes that
alternate: over the user's loader, and over the loader that notes the sample numbers.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from accumulation_overhead import CLASSES, Perceptron, trainer_of
from interleaved import command, environment, machine_line, megabytes, peak_memory, write_report
from torch.utils.data import DataLoader, Sampler, TensorDataset

from as_lightning import MaskedSampleSkipping, MaskingMonitor
from as_lightning.callbacks.epoch_batches import DrawnOrder, batches_of_awake
from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.callbacks.sleep_plan import SleepPlan

CPU = torch.device("cpu")
SIDES: dict[str, dict[str, Any]] = {
    "own_mask": {},
    "own_margin": {"delta": 0.5},
    "skip_backward": {"skip_backward": True},  # nothing is masked: all that it does is measure
}
NAMES = {"own_mask": "the loss's mask", "own_margin": "a margin of its own", "skip_backward": "`skip_backward`"}
AIM = 1.01  # the ratio that no side exceeds in a step of 10 ms


def measure_plan(samples: int, epochs: int) -> dict[str, Any]:
    """Seconds of each part, the median over epochs, and the memory of the costliest epoch."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(1000, (samples,), dtype=torch.int32, generator=generator)
    plan = SleepPlan(samples, max_sleep=4, patience=1, min_masked=0.3, max_woken=0.3, class_floor=0.05, classes=classes)
    awake = plan.awake()
    order: Sampler[int] = DrawnOrder(torch.randperm(samples, generator=generator))  # type: ignore[assignment]
    loader = DataLoader(range(samples), batch_size=256, sampler=order)  # type: ignore[arg-type,var-annotated]
    parts: dict[str, list[float]] = {"outcomes": [], "awake": [], "batches": []}
    peaks, shares = [], []
    for _ in range(epochs):
        visited = torch.rand(samples, generator=generator)
        outcomes = torch.where(awake, (visited < 0.2).char(), -1).char()  # 80% of what is visited is masked
        del visited

        def between_epochs(outcomes: torch.Tensor = outcomes) -> None:
            nonlocal awake
            parts["outcomes"].append(seconds(lambda: plan.end_epoch(outcomes)))

            def decide() -> None:
                nonlocal awake
                awake = plan.awake()

            parts["awake"].append(seconds(decide))

        peaks.append(peak_memory(between_epochs, CPU))
        parts["batches"].append(seconds(lambda: batches_of_awake(loader, awake, 0)))
        shares.append(float(awake.float().mean()))
    result: dict[str, Any] = {part: statistics.median(times) for part, times in parts.items()}
    result["plan"] = statistics.median(a + b for a, b in zip(parts["outcomes"], parts["awake"], strict=True))
    result["peak_memory"] = max(peak for peak in peaks if peak is not None)
    return result | {"samples": samples, "epochs": epochs, "awake_ratio": shares}


def seconds(side: Callable[[], Any]) -> float:
    """Processor time of one call: what else the machine does is not counted."""
    start = time.process_time()
    side()
    return time.process_time() - start


class SwitchesSkipping(Perceptron):
    """Trains one step of each pair with skipping, in random order, and takes each step's time from end to end."""

    def start_switching(self, monitor: pl.Callback, skipping: MaskedSampleSkipping, steps: int) -> None:
        self.sides = {False: [monitor], True: [monitor, skipping]}
        draw = random.Random(0)
        self.order = [on for _ in range(steps // 2) for on in draw.sample([True, False], 2)] + [True]
        self.seconds: list[float] = []
        self.searching: Callable[..., Any] | None = None

    def on_train_epoch_start(self) -> None:
        self.switch()
        self.clock = time.process_time()

    def switch(self) -> None:
        on = self.order[len(self.seconds)]
        self.masking_counter.wants_live = on
        if "training_step" in vars(self):  # skip_backward stands before it
            self.searching = vars(self).pop("training_step")
        if on and self.searching is not None:
            vars(self)["training_step"] = self.searching
        self.trainer.callbacks = self.sides[on]  # type: ignore[attr-defined]

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seconds.append(time.process_time() - self.clock)
        self.switch()
        self.clock = time.process_time()

    def on_train_epoch_end(self) -> None:
        self.trainer.callbacks = self.sides[True]  # type: ignore[attr-defined]


def data_of(steps: int, size: int, width: int) -> TensorDataset:
    return TensorDataset(torch.randn(size, width).repeat(steps, 1), torch.randint(CLASSES, (steps * size,)))


def paired_steps(layers: int, width: int, size: int, steps: int, **settings: Any) -> tuple[list[float], list[float]]:
    """Seconds of the steps with and without skipping, pair by pair."""
    module = SwitchesSkipping(width, layers)
    skipping = MaskedSampleSkipping(class_floor=0.0, **settings)
    monitor = MaskingMonitor()
    trainer = trainer_of(callbacks=[monitor, skipping], num_sanity_val_steps=0)
    module.start_switching(monitor, skipping, steps)
    trainer.fit(module, DataLoader(data_of(steps, size, width), batch_size=size))
    timed = list(zip(module.order, module.seconds, strict=False))[steps // 10 // 2 * 2 :]  # the first ones warm up
    return [time for on, time in timed if on], [time for on, time in timed if not on]


def layers_for(milliseconds: float, width: int, size: int) -> int:
    """How many layers make a step of about so many milliseconds."""
    _, few = paired_steps(2, width, size, 60)
    _, more = paired_steps(12, width, size, 60)
    per_layer = (statistics.median(more) - statistics.median(few)) / 10
    return max(1, round((milliseconds / 1e3 - statistics.median(few)) / per_layer) + 2)


def measure_loader(size: int, width: int, batches: int, rounds: int) -> float:
    """Seconds that noting the numbers adds to a batch."""
    mine = DataLoader(data_of(batches, size, width), batch_size=size)
    numbered = NumberedLoader(mine)
    numbered.plan(mine.batch_sampler, len(mine))  # type: ignore[arg-type]

    def pass_over(loader: Any) -> float:
        start = time.process_time()
        for _ in loader:
            pass
        return time.process_time() - start

    differences = []
    for index in range(rounds):
        sides = (numbered, mine) if index % 2 else (mine, numbered)
        times = {id(side): pass_over(side) for side in sides}
        differences.append((times[id(numbered)] - times[id(mine)]) / batches)
    return statistics.median(differences)


def measure_step(milliseconds: float, steps: int, rounds: int) -> dict[str, Any]:
    width, size = 256, 64
    loader = measure_loader(size, width, 200, 2 * rounds)
    results = []
    for _ in range(rounds):
        layers = layers_for(milliseconds, width, size)  # every round: the machine may have others to serve
        row: dict[str, float] = {"layers": layers}
        for name, settings in SIDES.items():
            on, off = paired_steps(layers, width, size, steps, **settings)
            added = statistics.median(a - b for a, b in zip(on, off, strict=True)) + loader
            row |= {
                f"{name}_added_us": added * 1e6,
                f"{name}_ratio": 1 + added / statistics.median(off),
                "without_ms": statistics.median(off) * 1e3,
            }
        results.append(row)
        print(row, flush=True)
    summary = {key: statistics.median(row[key] for row in results) for key in results[0]}
    return {"width": width, "batch_size": size, "steps": steps, "loader_us": loader * 1e6} | {
        "rounds": results,
        "median": summary,
    }


def table(report: dict[str, Any]) -> str:
    plan, step = report["plan"], report["step"]
    median = step["median"]
    lines = [
        "# Cost of skipping",
        "",
        f"## Between two epochs, {plan['samples']:,} samples",
        "",
        "| what | time, s |",
        "| --- | --- |",
        f"| take in what the epoch found | {plan['outcomes']:.2f} |",
        f"| decide who is awake, with a floor for each of 1,000 classes | {plan['awake']:.2f} |",
        f"| **the plan of an epoch** | **{plan['plan']:.2f}** |",
        f"| draw the sampler's order and leave out what sleeps | {plan['batches']:.2f} |",
        "",
        f"Median of {plan['epochs']} epochs, processor time of one thread. The plan raises the memory in use by",
        f"{megabytes(plan['peak_memory'])} at its peak. The aims are 2 s and 200 MB.",
        "The sampler yields its numbers one by one; a `DataLoader` asks for them one by one in any case.",
        "",
        "## In a training step",
        "",
        "`MaskedSampleSkipping` beside `MaskingMonitor` and a training step of a perceptron (layers of",
        f"{step['width']}, batches of {step['batch_size']}). Steps with and without it alternate in pairs of random",
        "order; the difference is the median over a round's pairs, and holds",
        f"{step['loader_us']:.0f} µs of the loader. Processor time of the process.",
        "",
        "| round | layers | without, ms |" + "".join(f" {NAMES[side]}, µs | ratio |" for side in SIDES),
        "| --- | --- | --- |" + " --- | --- |" * len(SIDES),
        *(
            f"| {index} | {row['layers']} | {row['without_ms']:.2f} | "
            + " | ".join(f"{row[f'{side}_added_us']:.0f} | {row[f'{side}_ratio']:.4f}" for side in SIDES)
            + " |"
            for index, row in enumerate(step["rounds"], 1)
        ),
        f"| **median** | | {median['without_ms']:.2f} | "
        + " | ".join(f"{median[f'{side}_added_us']:.0f} | **{median[f'{side}_ratio']:.4f}**" for side in SIDES)
        + " |",
        "",
        *aim_lines(step["rounds"], median),
        "",
        machine_line(report),
        "",
    ]
    return "\n".join(lines)


def aim_lines(rounds: Sequence[Mapping[str, float]], median: Mapping[str, float]) -> list[str]:
    """The aim for each side, and where its numbers miss it."""
    lines = [f"The aim is a ratio of at most {AIM} in the median, for a step of 10 ms: 100 µs.", ""]
    for side, name in NAMES.items():
        key = f"{side}_ratio"
        word = "misses" if median[key] > AIM else "meets"
        above = sum(row[key] > AIM for row in rounds)
        lines.append(f"- {name}: {median[key]:.4f} {word} the aim; above it in {above} of {len(rounds)} rounds.")
    return [
        *lines,
        "",
        "A margin of its own takes a second softmax of the logits: a dozen small operations on cold caches. With",
        "`skip_backward` nothing is masked here, so the difference is the cost of its measurements and bookkeeping.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--milliseconds", type=float, default=10.0, help="a step's length")
    parser.add_argument("--steps", type=int, default=400, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    plan = measure_plan(arguments.samples, arguments.epochs)
    print(plan, flush=True)
    step = measure_step(arguments.milliseconds, arguments.steps, arguments.rounds)
    report = {
        "command": command(),
        "environment": environment(CPU),
        "plan": plan,
        "step": step,
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
