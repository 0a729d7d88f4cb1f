"""What a wide head with ``as_linear_cross_entropy`` costs, relative to ``F.linear`` and
``F.cross_entropy``.

    python speed/linear_cross_entropy.py --output results/performance/linear_cross_entropy

Forward and backward, gradients of hidden states and weight. A share of the samples is fully masked,
the others are unmasked (the target no likelier than any class): the most work that a sample can be.
The functions of others are in ``linear_cross_entropy_peers.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from head_sides import DELTA, DENSE, batch, dense, forward_backward
from interleaved import (
    command,
    environment,
    interleaved_times,
    machine_line,
    megabytes,
    peak_memory,
    write_report,
)
from torch import Tensor

from as_lightning.functional import as_linear_cross_entropy
from as_lightning.functional.kernels import head_loss

OURS = "as_linear_cross_entropy"


def ours(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return as_linear_cross_entropy(hidden, weight, target, DELTA)


def chunk_times(shape: str, chunks: list[int], device: torch.device, rounds: int) -> dict[str, Any]:
    """Our time with nothing masked for several numbers of rows per chunk, beside the
    dense head's.
    """
    count, classes, features = map(int, shape.split("x"))
    hidden, weight, target = batch(count, classes, features, 0.0, device)

    def chunked(size: int) -> None:
        with mock.patch.object(head_loss, "workspace_rows", return_value=size):
            forward_backward(ours, hidden, weight, target)

    sides: dict[str, Callable[[], None]] = {
        DENSE: partial(forward_backward, dense, hidden, weight, target)
    }
    sides |= {str(size): partial(chunked, size) for size in chunks if size <= count}
    return {
        "shape": shape,
        "rows": head_loss.workspace_rows(count, weight),
        "times": interleaved_times(sides, DENSE, device, rounds=rounds),
    }


def held_times(shapes: list[str], device: torch.device, rounds: int) -> list[dict[str, Any]]:
    """Our time with the logits held and with them chunk by chunk, beside the dense head's, nothing
    masked.
    """
    found = []
    for shape in shapes:
        count, classes, features = map(int, shape.split("x"))
        tensors = batch(count, classes, features, 0.0, device)

        def with_limit(limit: int, tensors: tuple[Tensor, Tensor, Tensor] = tensors) -> None:
            with mock.patch.object(head_loss, "FEW_LOGITS", limit):
                forward_backward(ours, *tensors)

        sides: dict[str, Callable[[], None]] = {
            DENSE: partial(forward_backward, dense, *tensors),
            "held": partial(with_limit, 1 << 62),
            "chunk by chunk": partial(with_limit, 0),
        }
        times = interleaved_times(sides, DENSE, device, rounds=rounds, warmup=2)
        found.append({"shape": shape, "logits": count * classes, "times": times})
    return found


def table(report: dict[str, Any]) -> str:
    sides = [DENSE, OURS]
    lines = [
        "# Cost of `as_linear_cross_entropy`",
        "",
        "Forward and backward with the gradients of hidden states (N x d) and weight (C x d), "
        "float32: seconds, and in",
        f"brackets the ratio to {DENSE} (median of {report['rounds']} interleaved rounds). `delta "
        f"= {DELTA}`.",
        "",
        machine_line(report),
        "",
        "| C | N | d | masked samples | " + " | ".join(sides) + " |",
        "| --- | --- | --- | --- |" + " --- |" * len(sides),
    ]
    for row in report["rows"]:
        cells = [
            f"{row['times'][side]['milliseconds'] / 1e3:.2f} ({row['times'][side]['ratio']:.2f})"
            if side in row["times"]
            else "not measured"
            for side in sides
        ]
        head = f"| {row['classes']:,} | {row['rows']:,} | {row['features']} | "
        head += f"{row['masked_share']:.0%} | "
        lines.append(head + " | ".join(cells) + " |")
    lines += [
        "",
        "Peak memory beyond hidden states, weight and targets. That of the fused head includes the "
        "gradient of the",
        "weight; that of the dense head is reached before it is there. The last column leaves it "
        "out of both, and so",
        "says too little.",
        "",
        f"| C | masked samples | weight's gradient | {DENSE} | {OURS} | ratio | ratio without it |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["rows"]:
        base, own, gradient = row["peak_bytes"][DENSE], row["peak_bytes"][OURS], row["weight_bytes"]
        ratios = ["not measured"] * 2
        if base and own:
            ratios = [f"1/{base / own:.1f}", f"1/{(base - gradient) / max(own - gradient, 1):.1f}"]
        cells = [
            f"{row['classes']:,}",
            f"{row['masked_share']:.0%}",
            *map(megabytes, (gradient, base, own)),
            *ratios,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    sizes = [str(size) for size in report["chunk_sizes"]]
    lines += [
        "",
        f"Rows per chunk, nothing masked: {OURS} relative to {DENSE}.",
        "",
        "| N x C x d | the function takes | " + " | ".join(sizes) + " |",
        "| --- | --- |" + " --- |" * len(sizes),
    ]
    for row in report["chunks"]:
        cells = [
            f"{row['times'][size]['ratio']:.2f}" if size in row["times"] else "–" for size in sizes
        ]
        lines.append(f"| {row['shape']} | {row['rows']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"Held or not: {OURS} with the logits held and with them chunk by chunk, relative to "
        f"{DENSE}, nothing",
        f"masked. On the CPU the function holds up to {report['few_logits']:,} logits of float32.",
        "",
        "| N x C x d | logits | held | chunk by chunk |",
        "| --- | --- | --- | --- |",
    ]
    for row in report["held"]:
        held, chunked = (row["times"][side]["ratio"] for side in ("held", "chunk by chunk"))
        lines.append(f"| {row['shape']} | {row['logits']:,} | {held:.2f} | {chunked:.2f} |")
    others = (
        ""
        if report["environment"]["device"] == "cuda"
        else "\nOn a GPU: [beside its peers](linear_cross_entropy_peers_gpu.md).\n"
    )
    return "\n".join([*lines, others])


def figure(report: dict[str, Any], path: Path) -> None:
    """Time against the masked share, and peak memory against C."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "as-lightning"  # the same numbers draw the same file
    from matplotlib import pyplot

    rows = report["rows"]
    classes = sorted({row["classes"] for row in rows})
    drawing, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for count in classes:
        line = [row for row in rows if row["classes"] == count]
        shares = [row["masked_share"] for row in line]
        left.plot(
            shares,
            [row["times"][OURS]["ratio"] for row in line],
            marker="o",
            label=f"C = {count:,}",
        )
    left.axhline(1.0, color="grey", linestyle="--", label=DENSE)
    left.set(
        xlabel="share of masked samples", ylabel="time relative to the dense head", ylim=(0, None)
    )
    left.legend()
    for side in (DENSE, OURS):
        most = [
            max(row["peak_bytes"][side] or 0 for row in rows if row["classes"] == count)
            for count in classes
        ]
        right.plot(classes, [size / 1e6 for size in most], marker="o", label=side)
    weight = [
        next(row["weight_bytes"] for row in rows if row["classes"] == count) / 1e6
        for count in classes
    ]
    right.plot(classes, weight, color="grey", linestyle="--", label="weight's gradient alone")
    right.set(xscale="log", yscale="log", xlabel="classes C", ylabel="peak extra memory, MB")
    right.legend()
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["2048x8192x256", "2048x131072x256", "256x1048576x128"],
        help="rows x classes x features",
    )
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.5, 0.9, 1.0])
    parser.add_argument(
        "--chunk-shapes", nargs="+", default=["16384x1024x64", "4096x8192x64", "1024x131072x256"]
    )
    parser.add_argument("--chunks", nargs="+", type=int, default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument(
        "--held-shapes",
        nargs="+",
        default=[
            "64x1024x64",
            "256x1024x64",
            "256x1024x256",
            "1024x1024x256",
            "64x8192x64",
            "256x8192x256",
            "64x32000x64",
        ],
        help="heads whose logits are held in one side, and not in the other",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--output", type=Path, help="where to write: <output>.json, <output>.md and <output>.svg"
    )
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    losses = {DENSE: dense, OURS: ours}
    rows = []
    for shape in arguments.shapes:
        count, classes, features = map(int, shape.split("x"))
        for share in arguments.shares:
            hidden, weight, target = batch(count, classes, features, share, device)
            sides = {
                name: partial(forward_backward, loss, hidden, weight, target)
                for name, loss in losses.items()
            }
            peaks = {}
            for name, side in sides.items():  # before the clock runs: these calls also warm up
                hidden.grad = weight.grad = None
                peaks[name] = peak_memory(side, device)
            times = interleaved_times(sides, DENSE, device, rounds=arguments.rounds, warmup=0)
            with torch.no_grad():
                _, counts = as_linear_cross_entropy(
                    hidden, weight, target, DELTA, return_counts=True
                )
            rows.append(
                {
                    "rows": count,
                    "classes": classes,
                    "features": features,
                    "masked_share": int(counts.masked_samples) / int(counts.samples),
                    "times": times,
                    "peak_bytes": peaks,
                    "weight_bytes": weight.numel() * weight.element_size(),
                }
            )
            ratios = ", ".join(f"{name} {found['ratio']:.2f}" for name, found in times.items())
            memory = ", ".join(f"{name} {megabytes(size)}" for name, size in peaks.items())
            print(f"{shape} masked {rows[-1]['masked_share']:.0%}: {ratios}; {memory}", flush=True)
    report = {
        "command": command(),
        "environment": environment(device),
        "delta": DELTA,
        "rounds": arguments.rounds,
        "sides": list(losses),
        "rows": rows,
        "few_logits": head_loss.FEW_LOGITS,
        "held": held_times(arguments.held_shapes, device, 5 * arguments.rounds),
        "chunk_sizes": arguments.chunks,
        "chunks": [
            chunk_times(shape, arguments.chunks, device, arguments.rounds)
            for shape in arguments.chunk_shapes
        ],
    }
    write_report(report, table(report), arguments.output)
    if arguments.output is not None:
        figure(report, arguments.output.with_suffix(".svg"))


if __name__ == "__main__":
    main()
