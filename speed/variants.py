"""What each loss of the softmax family costs, forward and backward, relative to
``F.cross_entropy``.

    python speed/variants.py --output results/performance/variants

Every round times ``F.cross_entropy``, the variant and ``F.cross_entropy`` again on the same logits;
a round's ratio is the variant's time over the mean of the two around it, and the table holds the
median of the rounds, so that a machine that slows down for a second slows down both sides.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from interleaved import command, write_report
from torch import Tensor

from as_lightning import functional
from as_lightning.bench.machine import machine_description

Loss = Callable[[Tensor, Tensor], Tensor]


def with_counts(loss: Callable[..., Tensor]) -> Loss:
    """The loss of a long tail: class $i$ has $i + 1$ examples."""
    return lambda logits, target: loss(
        logits, target, class_counts=torch.arange(logits.size(1)) + 1
    )


SINGLE_LABEL: dict[str, Loss] = {
    "t_softmax": partial(functional.t_softmax_loss, tau=0.5),
    "logit_adjusted": with_counts(functional.logit_adjusted_loss),
    "focal": functional.focal_loss,
    "generalised_cross_entropy": functional.generalised_cross_entropy_loss,
    "encouraging": functional.encouraging_loss,
    "sparse_softmax (k=10)": partial(functional.sparse_softmax_loss, k=10),
    "sparsemax": functional.sparsemax_loss,
    "entmax (alpha=1.5)": partial(functional.entmax_loss, alpha=1.5),
    "entmax (alpha=1.3)": partial(functional.entmax_loss, alpha=1.3),
    "taylor_softmax (order 2)": partial(functional.taylor_softmax_loss, order=2),
    "taylor_softmax (order 6)": partial(functional.taylor_softmax_loss, order=6),
    "am_softmax": partial(functional.am_softmax_loss, margin=0.35, tau=0.2),
    "perturb_max (gumbel)": partial(functional.perturb_max_loss, noise="gumbel"),
    "perturb_max (normal)": partial(functional.perturb_max_loss, noise="normal"),
    "perturb_max (logistic)": partial(functional.perturb_max_loss, noise="logistic"),
    "as_softmax (delta=0.1)": partial(functional.as_cross_entropy, delta=0.1),
}
MULTI_LABEL: dict[str, Loss] = {
    "multilabel_softmax": functional.multilabel_softmax_loss,
    "multilabel_sparse (k=10)": partial(functional.multilabel_sparse_loss, k=10),
    "bce": functional.bce_loss,
    "asymmetric": functional.asymmetric_loss,
    "multilabel_as_softmax (delta=0.1)": partial(functional.multilabel_as_cross_entropy, delta=0.1),
}


def seconds(loss: Loss, logits: Tensor, target: Tensor) -> float:
    """The time of one forward and one backward pass."""
    logits.grad = None
    if logits.is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    loss(logits, target).backward()
    if logits.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(
    loss: Loss, logits: Tensor, target: Tensor, class_index: Tensor, rounds: int, budget: float
) -> dict[str, Any]:
    """Interleaved rounds until there are ``rounds`` of them or ``budget`` seconds are spent, at
    least one.
    """
    baseline = F.cross_entropy
    seconds(baseline, logits, class_index)
    first = seconds(
        loss, logits, target
    )  # warms up; a loss that takes the budget at once is not run again
    times: list[float] = []
    baselines: list[float] = []
    spent = first
    while len(times) < rounds and (not times or spent + times[-1] < budget):
        before = seconds(baseline, logits, class_index)
        times.append(seconds(loss, logits, target))
        baselines.append((before + seconds(baseline, logits, class_index)) / 2)
        spent += times[-1]
    ratios = [t / b for t, b in zip(times, baselines, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "milliseconds": statistics.median(times) * 1e3,
        "baseline_milliseconds": statistics.median(baselines) * 1e3,
        "rounds": len(ratios),
    }


def table(report: dict[str, Any]) -> str:
    """The report as a Markdown document."""
    shapes = report["shapes"]
    lines = [
        "# Cost of the softmax family",
        "",
        "Time of the loss's forward and backward pass relative to `F.cross_entropy` on the same "
        "float32 logits",
        "(standard normal): median of interleaved rounds, with the smallest and the largest ratio, "
        "and the number of",
        "rounds. The multi-label losses get one positive label per sample.",
        "",
        f"`{report['command']}` on {report['machine']}, {report['threads']} thread(s), PyTorch "
        f"{report['torch']}.",
        "",
        "| method | " + " | ".join(shapes) + " |",
        "| --- |" + " --- |" * len(shapes),
    ]
    for name in report["ratios"]:
        cells = []
        for shape in shapes:
            cell = report["ratios"][name][shape]
            spread = f"{cell['ratio_min']:.2f}–{cell['ratio_max']:.2f}"
            cells.append(f"**{cell['ratio']:.2f}** ({spread}, n={cell['rounds']})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    baseline = ", ".join(
        f"{report['baseline_milliseconds'][shape]:.1f} ms at {shape}" for shape in shapes
    )
    return "\n".join([*lines, "", f"`F.cross_entropy` itself: {baseline}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument(
        "--shapes", nargs="+", default=["4096x1000", "1024x32000"], help="rows x classes"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--budget", type=float, default=12.0, help="seconds for each loss at each shape"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    ratios: dict[str, dict[str, Any]] = {}
    baselines: dict[str, float] = {}
    for shape in arguments.shapes:
        rows, classes = map(int, shape.split("x"))
        torch.manual_seed(0)
        logits = torch.randn(rows, classes, device=arguments.device, requires_grad=True)
        class_index = torch.randint(classes, (rows,), device=arguments.device)
        multi_hot = F.one_hot(class_index, classes).to(logits.dtype)
        targets = {
            **dict.fromkeys(SINGLE_LABEL, class_index),
            **dict.fromkeys(MULTI_LABEL, multi_hot),
        }
        for name, loss in {**SINGLE_LABEL, **MULTI_LABEL}.items():
            cell = measure(
                loss, logits, targets[name], class_index, arguments.rounds, arguments.budget
            )
            ratios.setdefault(name, {})[shape] = cell
            baselines.setdefault(shape, cell["baseline_milliseconds"])
            print(
                f"{shape:>12}  {name:<36} {cell['ratio']:8.2f}  ({cell['rounds']} rounds)",
                flush=True,
            )
    on_gpu = torch.device(arguments.device).type == "cuda"
    report = {
        "command": command(),
        "machine": torch.cuda.get_device_name(arguments.device)
        if on_gpu
        else machine_description()["processor"],
        "threads": arguments.threads,
        "torch": torch.__version__,
        "shapes": arguments.shapes,
        "baseline_milliseconds": baselines,
        "ratios": ratios,
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
