"""A head of a million classes on two processes against one: time and memory per process.

    python speed/class_parallel.py --output results/performance/class_parallel

Forward and backward of ``as_linear_cross_entropy``, gradients of hidden states and weight. The two processes hold half
of the classes each (DTensor, ``Shard(0)``, gloo) and see the same hidden states; a third process holds all classes. The
sides take turns, so that they see the same machine, and each process has one thread. A share of the samples is fully
masked, the others are unmasked: the most work that a sample can be.

Memory is what the process holds at its peak beyond what it held before its operands were made: weight, gradients and
workspace. CPU seconds are those of the busiest process of a side: what a machine with enough free cores would need, if
the processes did not slow each other down.
"""

from __future__ import annotations

import argparse
import datetime
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing
from head_sides import batch
from interleaved import (
    command,
    environment,
    machine_line,
    megabytes,
    peak_memory,
    resident_memory,
    write_report,
)
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

from as_lightning.functional import MaskingCounts, as_linear_cross_entropy

DELTA = 0.1
ONE, TWO = "1 process", "2 processes"
SHARDS = 2
BARS = {"time": 0.6, "memory": 0.55}


class Side:
    """One process of a side: its hidden states and its part of the weight."""

    def __init__(self, shape: str, share: float, mesh: DeviceMesh | None) -> None:
        count, classes, features = map(int, shape.split("x"))
        self.hidden, self.weight, self.target = batch(
            count, classes, features, share, torch.device("cpu")
        )
        if mesh is not None:
            self.weight = distribute_tensor(
                self.weight.detach(), mesh, [Shard(0)], src_data_rank=None
            )
            self.weight = (
                self.weight.detach().clone().requires_grad_()
            )  # only this part of it stays

    def loss(self) -> tuple[Tensor, MaskingCounts]:
        return as_linear_cross_entropy(
            self.hidden, self.weight, self.target, DELTA, return_counts=True
        )

    def forward_backward(self) -> None:
        self.hidden.grad = self.weight.grad = None
        self.loss()[0].backward()


def measure(
    rank: int, port: int, shapes: list[str], shares: list[float], rounds: int, path: Path
) -> None:
    """The work of one of three processes: two of the one side, and the other side alone."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=SHARDS + 1,
        timeout=datetime.timedelta(hours=1),
    )
    mesh = DeviceMesh("cpu", list(range(SHARDS)))
    found = []
    for shape in shapes:
        for share in shares:
            found.append(measure_case(rank, mesh, shape, share, rounds))
    gathered: list[Any] = [None] * (SHARDS + 1)
    torch.distributed.all_gather_object(gathered, found)
    if rank == 0:
        torch.save(gathered, path)
    torch.distributed.destroy_process_group()


def measure_case(
    rank: int, mesh: DeviceMesh, shape: str, share: float, rounds: int
) -> dict[str, Any]:
    side = TWO if rank < SHARDS else ONE
    before = resident_memory()
    operands = Side(shape, share, mesh if side == TWO else None)
    held = resident_memory() - before
    found: dict[str, Any] = {"side": side, "seconds": [], "cpu_seconds": []}
    for turn in range(rounds + 1):
        for whose in (ONE, TWO):
            torch.distributed.barrier()
            if whose != side:
                continue
            if turn == 0:  # warms up, too
                found["peak_bytes"] = held + (
                    peak_memory(operands.forward_backward, torch.device("cpu")) or 0
                )
                continue
            start, cpu_start = time.perf_counter(), time.process_time()
            operands.forward_backward()
            found["seconds"].append(time.perf_counter() - start)
            found["cpu_seconds"].append(time.process_time() - cpu_start)
    torch.distributed.barrier()
    loss, counts = operands.loss()
    found |= {"loss": float(loss.detach()), "counts": [int(count) for count in counts]}
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def summary(shape: str, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Both sides of a case, and their ratios: of the times round by round."""
    sides = {side: [rank for rank in ranks if rank["side"] == side] for side in (ONE, TWO)}
    assert len({tuple(rank["counts"]) for rank in ranks}) == 1, (
        "both sides must have computed the same"
    )
    times = {
        clock: {
            side: [max(turn) for turn in zip(*(rank[clock] for rank in found), strict=True)]
            for side, found in sides.items()
        }
        for clock in ("seconds", "cpu_seconds")
    }
    peaks = {side: max(rank["peak_bytes"] for rank in found) for side, found in sides.items()}
    ratios = {
        clock: statistics.median(two / one for two, one in zip(own[TWO], own[ONE], strict=True))
        for clock, own in times.items()
    }
    count, classes, features = map(int, shape.split("x"))
    masked, samples, _, _ = ranks[0]["counts"]
    return {
        "rows": count,
        "classes": classes,
        "features": features,
        "masked_share": masked / samples,
        "losses": [rank["loss"] for rank in ranks],
        "times": {
            clock: {side: statistics.median(own[side]) for side in own}
            for clock, own in times.items()
        },
        "peak_bytes": peaks,
        "ratios": {**ratios, "memory": peaks[TWO] / peaks[ONE]},
    }


def table(report: dict[str, Any]) -> str:
    lines = [
        "# The class-parallel head",
        "",
        "`as_linear_cross_entropy`, forward and backward with both gradients, float32, `delta = "
        f"{DELTA}`: {TWO} that",
        f"hold half of the classes each (gloo) against {ONE} that holds all, one thread per "
        "process, in turns (median",
        f"of {report['rounds']} rounds; ratios round by round). CPU seconds are those of the "
        "busiest process of a",
        "side. Memory is that of a process at its peak: weight, gradients and workspace.",
        "",
        machine_line(report),
        "",
        "| C | N | d | masked samples | | " + f"{ONE} | {TWO} | ratio | bar |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["cases"]:
        head = (
            f"| {row['classes']:,} | {row['rows']} | {row['features']} | {row['masked_share']:.0%} "
        )
        for clock, name, bar in (
            ("seconds", "seconds", f"{BARS['time']}"),
            ("cpu_seconds", "CPU seconds", ""),
        ):
            one, two = (row["times"][clock][side] for side in (ONE, TWO))
            lines.append(
                f"{head}| {name} | {one:.2f} | {two:.2f} | {row['ratios'][clock]:.2f} | {bar} |"
            )
        one, two = (megabytes(row["peak_bytes"][side]) for side in (ONE, TWO))
        lines.append(
            f"{head}| memory | {one} | {two} | {row['ratios']['memory']:.2f} | {BARS['memory']} |"
        )
    load = ", ".join(f"{value:.1f}" for value in report["load"])
    lines += [
        "",
        f"Load of the machine (average of one minute) before and after the measurement: {load}. "
        "Two processes need two",
        "free cores: where other work holds one of them, seconds say more about that work, and CPU "
        "seconds are the",
        "ratio to read.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument(
        "--shapes", nargs="+", default=["256x1048576x128"], help="rows x classes x features"
    )
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.9])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks.pt"
        torch.multiprocessing.spawn(
            measure,
            args=(free_port(), arguments.shapes, arguments.shares, arguments.rounds, path),
            nprocs=SHARDS + 1,
        )
        ranks = torch.load(path, weights_only=False)
    load.append(os.getloadavg()[0])
    cases = [(shape, share) for shape in arguments.shapes for share in arguments.shares]
    report = {
        "command": command(),
        "environment": environment(torch.device("cpu")),
        "delta": DELTA,
        "rounds": arguments.rounds,
        "load": load,
        "cases": [
            summary(shape, [rank[i] for rank in ranks]) for i, (shape, _) in enumerate(cases)
        ],
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
