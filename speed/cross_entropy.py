r"""What ``as_cross_entropy`` costs, forward and backward, relative to ``F.cross_entropy``.

    python speed/cross_entropy.py --output results/performance/cross_entropy
    python speed/cross_entropy.py --shapes 64x10 64x151 256x100 --no-compile \
        --output results/performance/few_logits
    python speed/cross_entropy.py --dtype bfloat16 --no-compile \
        --output results/performance/cross_entropy_bfloat16

Sides: ``F.cross_entropy``, ``as_cross_entropy`` and a plain four-line formulation (softmax, gather,
where, cross_entropy, which is how the paper's code does it), each eager and compiled. A share of
the samples is fully masked; the others have logits drawn from a standard normal, so that they are
unmasked for many classes and mixed for few.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
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

from as_lightning.functional import as_cross_entropy

DELTA = 0.1
SIDES = ("F.cross_entropy", "as_cross_entropy", "with counts", "four lines")
# what "with counts" may cost: for few logits, where the number of operations is the cost; and for
# many, by masked share
FEW_LOGITS_BAR = 2.5
MANY_LOGITS_BARS = {0.0: 0.50, 1.0: 0.45}
FEW_LOGITS_ROUNDS = 20  # times as many rounds as for many


def four_lines(logits: Tensor, target: Tensor) -> Tensor:
    """The loss as its formula reads."""
    probability = logits.softmax(-1)
    target_probability = probability.gather(-1, target.unsqueeze(-1))
    kept = torch.where(target_probability - probability <= DELTA, logits, -torch.inf)
    return F.cross_entropy(kept, target)


def with_counts(logits: Tensor, target: Tensor) -> Tensor:
    """Our loss as a training calls it that watches the masking."""
    loss, _ = as_cross_entropy(logits, target, DELTA, return_counts=True)
    return loss


def batch(
    rows: int, classes: int, masked_share: float, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Logits of which a share is fully masked, in random order, and their targets."""
    torch.manual_seed(0)
    logits, target = (
        torch.randn(rows, classes, device=device),
        torch.randint(classes, (rows,), device=device),
    )
    masked = torch.randperm(rows, device=device)[: round(masked_share * rows)]
    logits[masked, target[masked]] += 30.0
    return logits.to(dtype).requires_grad_(), target


def forward_backward(loss: Any, logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).backward()


def few_logits_note(rows: list[dict[str, Any]]) -> str:
    """What the masked loss adds to ``F.cross_entropy`` for few logits, and whether that is within
    the bar.
    """
    counted, plain = SIDES[2], SIDES[0]
    above = [row for row in rows if row["times"][counted]["ratio"] > FEW_LOGITS_BAR]
    added = "; ".join(
        f"{row['shape']}, {row['masked_share']:.0%} masked: "
        f"{1e3 * row['times'][plain]['milliseconds']:.0f} and "
        f"{1e3 * (row['times'][counted]['milliseconds'] - row['times'][plain]['milliseconds']):.0f}"
        for row in rows
    )
    verdict = (
        "No row of few logits is above the bar."
        if not above
        else f"Above it: {len(above)} of {len(rows)} rows."
    )
    return (
        f'For few logits the bar of "with counts" is {FEW_LOGITS_BAR}. {verdict} The masked loss '
        "adds operations, each "
        "of which costs about the same whatever its size: the ratio is highest where "
        "`F.cross_entropy` itself takes "
        f"the least. Microseconds of `F.cross_entropy`, and what the masked loss adds: {added}."
    )


def many_logits_note(rows: list[dict[str, Any]]) -> str:
    """Whether the masked loss is within its bars for many logits."""
    counted = SIDES[2]
    judged = [row for row in rows if row["masked_share"] in MANY_LOGITS_BARS]
    above = [
        row
        for row in judged
        if row["times"][counted]["ratio"] > MANY_LOGITS_BARS[row["masked_share"]]
    ]
    named = ", ".join(
        f"{row['shape']} with {row['masked_share']:.0%} masked "
        f"({row['times'][counted]['ratio']:.2f})"
        for row in above
    )
    bars = " and ".join(
        f"{bar:.2f} with {share:.0%} of the samples masked"
        for share, bar in MANY_LOGITS_BARS.items()
    )
    return f'The bars of "with counts" are {bars}. ' + (
        f"Above them: {named}." if above else "No row is above them."
    )


def table(report: dict[str, Any]) -> str:
    lines = [
        "# Cost of `as_cross_entropy`",
        "",
        f"Forward and backward on the same {report['dtype']} logits: the time relative to eager "
        "`F.cross_entropy`",
        f"(median of {report['rounds']} interleaved rounds, for few logits {FEW_LOGITS_ROUNDS} "
        "times as many,",
        "each side called once untimed before), in brackets the milliseconds.",
        f'`delta = {DELTA}`. "With counts" is `return_counts=True`, as a training calls it.',
        "",
        machine_line(report),
        "",
        "| rows x classes | masked samples | " + " | ".join(report["sides"]) + " |",
        "| --- | --- |" + " --- |" * len(report["sides"]),
    ]
    for row in report["rows"]:
        cells = [
            f"{row['times'][s]['ratio']:.2f} ({row['times'][s]['milliseconds']:.2f})"
            for s in report["sides"]
        ]
        lines.append(f"| {row['shape']} | {row['masked_share']:.0%} | " + " | ".join(cells) + " |")
    on_gpu = report["environment"]["device"] == "cuda"
    has_bars = report["dtype"] == "float32" and not on_gpu
    few = [row for row in report["rows"] if row["few_logits"] and has_bars]
    if few:
        lines += ["", few_logits_note(few)]
    many = [row for row in report["rows"] if row["peak_bytes"] is not None]
    if many:
        lines += [
            *(["", many_logits_note(many)] if has_bars else []),
            "",
            "Peak memory of forward and backward beyond the logits, the gradient (of their size) "
            "included:",
            "",
            "| rows x classes | masked samples | logits | " + " | ".join(SIDES) + " |",
            "| --- | --- | --- |" + " --- |" * len(SIDES),
        ]
    for row in many:
        cells = [megabytes(row["peak_bytes"][side]) for side in SIDES]
        size = megabytes(row["logits_bytes"])
        lines.append(
            f"| {row['shape']} | {row['masked_share']:.0%} | {size} | " + " | ".join(cells) + " |"
        )
    others = (
        ""
        if on_gpu
        else "\nOn a GPU: [float32](cross_entropy_gpu.md), "
        "[compiled](cross_entropy_compiled_gpu.md), "
        "[bfloat16](cross_entropy_bfloat16_gpu.md).\n"
    )
    return "\n".join([*lines, others])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["4096x1000", "1024x32000", "256x131072"],
        help="rows x classes",
    )
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.5, 1.0])
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled sides")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    eager = (F.cross_entropy, partial(as_cross_entropy, delta=DELTA), with_counts, four_lines)
    losses: dict[str, Any] = dict(zip(SIDES, eager, strict=True))
    if not arguments.no_compile:
        compiled = (
            torch.compile(lambda logits, target: F.cross_entropy(logits, target), fullgraph=True),
            torch.compile(
                lambda logits, target: as_cross_entropy(logits, target, DELTA), fullgraph=True
            ),
            torch.compile(with_counts, fullgraph=True),
            torch.compile(four_lines, fullgraph=True),
        )
        losses |= {f"{name}, compiled": loss for name, loss in zip(SIDES, compiled, strict=True)}
    rows = []
    for shape in arguments.shapes:
        samples, classes = map(int, shape.split("x"))
        small = samples * classes < 1 << 17
        for share in arguments.shares:
            logits, target = batch(samples, classes, share, device, getattr(torch, arguments.dtype))
            sides = {
                name: partial(forward_backward, loss, logits, target)
                for name, loss in losses.items()
            }
            rounds = FEW_LOGITS_ROUNDS * arguments.rounds if small else arguments.rounds
            times = interleaved_times(sides, SIDES[0], device, rounds=rounds, warmup=2, settle=True)
            logits.grad = None
            peaks = {}
            for name in SIDES:
                peaks[name] = peak_memory(sides[name], device)
                logits.grad = None
            logits_bytes = logits.numel() * logits.element_size()
            rows.append(
                {
                    "shape": shape,
                    "masked_share": share,
                    "times": times,
                    "few_logits": small,
                    "peak_bytes": None
                    if small
                    else peaks,  # next to nothing, among the interpreter's own pages
                    "logits_bytes": logits_bytes,
                }
            )
            ratios = ", ".join(f"{name} {found['ratio']:.2f}" for name, found in times.items())
            print(f"{shape} masked {share:.0%}: {ratios}", flush=True)
    report = {
        "command": command(),
        "environment": environment(device),
        "delta": DELTA,
        "dtype": arguments.dtype,
        "rounds": arguments.rounds,
        "sides": list(losses),
        "rows": rows,
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
