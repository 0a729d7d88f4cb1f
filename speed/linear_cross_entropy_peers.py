r"""The fused head against its peers over a grid of sizes: time and peak memory, each side relative
to the dense head.

    python speed/linear_cross_entropy_peers.py \
        --output results/performance/linear_cross_entropy_peers \
        --peer-python /path/to/an/environment/with/torch-2.13/bin/python

PyTorch's own ``linear_cross_entropy`` is in 2.13 and later: ``--peer-python`` names the interpreter
of an environment that has it, made by ``pip install torch==2.13.0 lightning torchmetrics`` (this
package is found by PYTHONPATH). Each case runs in a process of its own for each interpreter. The
sides take turns in it, the dense head among them; ratios are to the dense head of the same process.

A case that is measured is a line of ``<output>.jsonl``; in the end all of them are written to
``<output>.json`` and ``<output>.md``. The same command again skips the cases that are there; with
``--peer-python`` it measures those again that lack PyTorch's function. ``--list`` names the cases,
and those that are left out because they take too much memory or time. On a GPU Liger-Kernel and
cut-cross-entropy are sides too, where they are installed.
"""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from head_sides import (
    CHUNKED,
    COMPILED,
    DENSE,
    DTYPES,
    MARGIN,
    ON_GPU,
    OURS,
    batch,
    forward_backward,
    loss_of,
)
from interleaved import (
    Side,
    environment,
    interleaved_times,
    machine_line,
    megabytes,
    peak_memory,
    write_report,
)

import as_lightning
from as_lightning.functional.kernels import head_loss

Case = dict[str, Any]  # rows, classes, features, threads, dtype, device
SHARES = (0.0, 0.5, 0.9, 1.0)
CLASSES, ROWS, FEATURES = (
    (1024, 8192, 32_000, 131_072, 1_048_576),
    (64, 256, 1024, 4096, 16_384),
    (64, 256, 1024),
)
GPU_SHAPES = ("8192x32000x4096", "8192x128256x4096", "8192x256000x4096")
# our head with its logits held and without: what the rule of the function chooses between
HELD, NEVER_HELD = "ours, logits held", "ours, logits not held"
MOST_HELD = 1 << 24  # logits: beyond, nobody would hold them for speed
LOGITS_AT_ONCE = (
    4  # tensors of the logits' size that the dense head has at its peak, and one to spare
)
MEAN_SIDE, LEAST_ROUNDS, MOST_ROUNDS = (
    1.0,
    3,
    30,
)  # seconds of rounds per side in the mean, bounds on their number


def margin_side(share: float) -> str:
    return f"{MARGIN}, {share:.0%} masked"


def own_sides(case: Case) -> list[str]:
    """The sides that this environment measures, the dense head first."""
    sides = [DENSE, COMPILED, OURS, *(margin_side(share) for share in SHARES)]
    if case["rows"] * case["classes"] <= MOST_HELD:
        sides += [HELD, NEVER_HELD]
    return [*sides, *ON_GPU] if case["device"] == "cuda" else sides


def measure(case: Case, sides: list[str], quick: bool) -> dict[str, Any]:
    """Time and memory of the sides in this process; those that cannot run here say why."""
    torch.set_num_threads(case["threads"])
    device = torch.device(case["device"])
    dtype, sizes = getattr(torch, case["dtype"]), (case["rows"], case["classes"], case["features"])
    hidden, weight, target = batch(*sizes, 0.0, device, dtype)
    found: dict[str, Any] = {"versions": {"torch": torch.__version__}, "not_measured": {}}
    calls: dict[str, Side] = {}
    for side in sides:
        share = next((share for share in SHARES if side == margin_side(share)), 0.0)
        own_hidden = batch(*sizes, share, device, dtype)[0] if share else hidden
        try:
            loss = loss_of(
                MARGIN if side.startswith(MARGIN) else OURS if side in (HELD, NEVER_HELD) else side
            )
            calls[side] = _with_limit(
                partial(forward_backward, loss, own_hidden, weight, target), side
            )
            calls[side]()  # compiles, and shows what does not run
        except Exception as error:
            calls.pop(side, None)
            found["not_measured"][side] = f"{type(error).__name__}: {error}".splitlines()[0]
    hidden.grad = weight.grad = None
    found["peak_bytes"] = {}
    gc.freeze()  # what is imported by now: each measurement collects garbage before it
    start = time.perf_counter()
    for side, one in calls.items():
        found["peak_bytes"][side] = peak_memory(one, device)
        hidden.grad = weight.grad = None
    mean = (time.perf_counter() - start) / len(calls)
    rounds = 1 if quick else int(min(MOST_ROUNDS, max(LEAST_ROUNDS, MEAN_SIDE / mean)))
    found["times"] = interleaved_times(calls, DENSE, device, rounds=rounds, warmup=0, settle=True)
    return found


def _with_limit(call: Side, side: str) -> Side:
    """Our head with the rule of the function overruled, for the two sides that are about it."""
    if side not in (HELD, NEVER_HELD):
        return call

    def overruled() -> None:
        with mock.patch.object(head_loss, "FEW_LOGITS", MOST_HELD if side == HELD else 0):
            call()

    return overruled


def in_a_process_of_its_own(
    python: str, case: Case, sides: list[str], quick: bool
) -> dict[str, Any]:
    source = Path(as_lightning.__file__).parents[1]
    settings = {
        "PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parent}",
        "OMP_NUM_THREADS": str(case["threads"]),
    }
    command = [python, __file__, "--measure", json.dumps([case, sides, quick])]
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (
            f"the process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
        )
        return {
            "not_measured": dict.fromkeys(sides, reason),
            "times": {},
            "peak_bytes": {},
            "versions": {},
        }
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def refuse_an_interpreter_that_ends_badly(python: str, case: Case) -> None:
    """Exit before hours of measuring in which every case would lack what this interpreter was given
    for.
    """
    small = case | {"rows": 8, "classes": 64, "features": 4}
    found = in_a_process_of_its_own(python, small, [DENSE, CHUNKED], quick=True)
    if not found["versions"]:
        sys.exit(
            "--peer-python must name an interpreter with torch 2.13, lightning and torchmetrics, "
            f"got {python}: "
            f"{found['not_measured'][CHUNKED]}"
        )


def cases_of(arguments: argparse.Namespace) -> tuple[list[Case], list[tuple[Case, str]]]:
    """The cases to measure, the shortest first, and those that are left out with the reason."""
    shapes = arguments.shapes or (GPU_SHAPES if arguments.device == "cuda" else None)
    if shapes:
        sizes = [tuple(map(int, shape.split("x"))) for shape in shapes]
    else:
        sizes = [
            (rows, classes, features)
            for classes, rows, features in itertools.product(CLASSES, ROWS, FEATURES)
        ]
    cases, left_out = [], []
    for dtype, threads, (rows, classes, features) in itertools.product(
        arguments.dtypes, arguments.threads, sizes
    ):
        case = {
            "rows": rows,
            "classes": classes,
            "features": features,
            "threads": threads,
            "dtype": dtype,
        }
        case["device"] = arguments.device
        size = getattr(torch, dtype).itemsize
        needed = size * (LOGITS_AT_ONCE * rows * classes + 3 * classes * features) / 1e9
        operations = 6.0 * operations_of(case)
        if needed > arguments.gigabytes:
            left_out.append((case, f"needs {needed:.0f} GB"))
        elif operations > arguments.operations:
            left_out.append((case, f"{operations:.0e} operations per step"))
        else:
            cases.append(case)
    cases.sort(key=operations_of)
    return cases, left_out


def operations_of(case: Case) -> int:
    """The multiplications of one of the three matrix products."""
    return int(case["rows"] * case["classes"] * case["features"])


def place_in_table(case: Case) -> tuple[int, ...]:
    """The order of the written cases: by dtype, threads and size."""
    return DTYPES.index(case["dtype"]), case["threads"], operations_of(case)


def in_short(cases: list[dict[str, Any]], others: list[str]) -> list[str]:
    """How often each side is the fastest of those that compute plain cross-entropy, by dtype,
    threads and rule.
    """
    lines = []
    all_threads = sorted({line["case"]["threads"] for line in cases})
    for dtype, threads, rule in itertools.product(DTYPES, all_threads, ("held", "not held")):
        group = (dtype, threads, rule)
        chosen = [
            line
            for line in cases
            if (line["case"]["dtype"], line["case"]["threads"], line["rule"]) == group
        ]
        times = [line["times"] for line in chosen if OURS in line["times"]]
        if not times:
            continue
        fastest = Counter(fastest_plain(of_case, others) for of_case in times)
        counts = ", ".join(f"{side} {count}" for side, count in fastest.most_common())
        ours = [of_case[OURS]["ratio"] for of_case in times]
        lines.append(
            f"* {dtype}, {count_threads(threads)}, logits {rule} by our head ({len(times)} cases). "
            "It takes "
            f"{spread(ours)} of the dense head's time. The fastest: {counts}."
        )
        both = [
            of_case[OURS]["ratio"] / of_case[CHUNKED]["ratio"]
            for of_case in times
            if CHUNKED in of_case
        ]
        if both:
            faster = sum(ratio < 1 for ratio in both)
            lines[-1] += (
                f" It takes {spread(both)} of the time of {CHUNKED}, less in {faster} of "
                f"{len(both)} cases."
            )
    return lines


def count_threads(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"


def spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def fastest_plain(times: dict[str, Any], others: list[str]) -> str:
    """The fastest of the sides that compute plain cross-entropy."""
    plain = {
        side: times[side]["ratio"] for side in (DENSE, COMPILED, OURS, *others) if side in times
    }
    return min(plain, key=plain.__getitem__)


def table(report: dict[str, Any]) -> str:
    """Markdown of the cases that were measured."""
    cases, left_out = report["cases"], report["left_out"]
    others = [CHUNKED, *(side for side in ON_GPU if any(side in line["times"] for line in cases))]
    sides = [COMPILED, OURS, *(margin_side(share) for share in SHARES), *others]
    peers = sorted({line["peer_torch"] for line in cases if line["peer_torch"]})
    lines = [
        "# The fused head and its peers",
        "",
        "Forward and backward with the gradients of hidden states (N x d) and weight (C x d).",
        f"{DENSE}: in milliseconds. The other sides: relative to it in the same process, medians "
        "of",
        "interleaved rounds. After the comma: the peak memory beyond the operands. The last column "
        "names the fastest",
        "of the sides that compute plain cross-entropy.",
        "",
        machine_line(report),
        "",
        f"PyTorch of the peers: {', '.join(peers) or 'not measured'}.",
        "",
        *in_short(cases, others),
        "",
        f"| dtype | threads | C | N | d | {DENSE} | " + " | ".join(sides) + " | fastest |",
        "| --- |" + " --- |" * (len(sides) + 6),
    ]
    for line in cases:
        case = line["case"]
        head = f"| {case['dtype']} | {case['threads']} | {case['classes']:,} | "
        head += f"{case['rows']:,} | {case['features']} | "
        if DENSE not in line["times"]:
            lines.append(f"{head}not measured |" + " |" * (len(sides) + 1))
            continue
        cells = [
            f"{line['times'][DENSE]['milliseconds']:.1f}, {megabytes(line['peak_bytes'][DENSE])}"
        ]
        for side in sides:
            measured = line["times"].get(side)
            size = megabytes(line["peak_bytes"].get(side))
            cells.append(f"{measured['ratio']:.2f}, {size}" if measured else "not measured")
        lines.append(head + " | ".join([*cells, fastest_plain(line["times"], others)]) + " |")
    lines += [
        "",
        "## The rule: few logits are held",
        "",
        "Our head with its logits held and not, relative to the dense.",
        "",
    ]
    lines += [
        "| dtype | threads | N x C x d | logits | held | not held | faster | the rule says |",
        "| --- |" + " --- |" * 7,
    ]
    for line in sorted(cases, key=lambda line: line["case"]["rows"] * line["case"]["classes"]):
        if HELD not in line["times"] or NEVER_HELD not in line["times"]:
            continue
        case, held, chunked = (
            line["case"],
            line["times"][HELD]["ratio"],
            line["times"][NEVER_HELD]["ratio"],
        )
        shape, logits = (
            f"{case['rows']}x{case['classes']}x{case['features']}",
            case["rows"] * case["classes"],
        )
        faster = "held" if held < chunked else "not held"
        lines.append(
            f"| {case['dtype']} | {case['threads']} | {shape} | {logits:,} | {held:.2f} | "
            f"{chunked:.2f} | {faster} "
            f"| {line['rule']} |"
        )
    if left_out:
        lines += ["", "Left out:", ""]
        lines += [
            f"* {case['rows']}x{case['classes']}x{case['features']}, {case['dtype']}, threads "
            f"{case['threads']}: {why}"
            for case, why in left_out
        ]
    reasons = sorted(
        {f"{side}: {why}" for line in cases for side, why in line["not_measured"].items()}
    )
    if reasons:
        lines += ["", "Not measured:", "", *(f"* {reason}" for reason in reasons)]
    if all(line["case"]["device"] != "cuda" for line in cases):
        lines += [
            "",
            f"Against {' and '.join(ON_GPU)}, which need a GPU: [the table of "
            "one](linear_cross_entropy_peers_gpu.md).",
        ]
    return "\n".join([*lines, ""])


def rule_of(case: Case) -> str:
    """What the function chooses in this case."""
    weight = torch.empty(
        case["classes"], 1, device=case["device"], dtype=getattr(torch, case["dtype"])
    )
    return "held" if head_loss.dense_is_faster(case["rows"], weight) else "not held"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument(
        "--shapes", nargs="+", help="rows x classes x features, in place of the grid"
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--peer-python", help="the interpreter of an environment with PyTorch 2.13 or later"
    )
    parser.add_argument(
        "--gigabytes", type=float, default=12.0, help="cases that need more memory are left out"
    )
    parser.add_argument(
        "--operations", type=float, default=1e11, help="and those of more operations per step"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--quick", action="store_true", help="one round per side: to see that everything runs"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and measure nothing")
    parser.add_argument(
        "--only-write", action="store_true", help="measure nothing, write what has been measured"
    )
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    parser.add_argument(
        "--measure", type=json.loads, help="measure one case in this process: [case, sides, quick]"
    )
    arguments = parser.parse_args()
    if not (arguments.output or arguments.list or arguments.measure):
        parser.error("--output is needed: the cases are written there as they are measured")
    return arguments


def main() -> None:
    arguments = parsed()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    cases, left_out = cases_of(arguments)
    if arguments.list:
        for case in cases:
            print(json.dumps(case))
        for case, why in left_out:
            print("left out:", json.dumps(case), why)
        print(f"{len(cases)} cases, {len(left_out)} left out")
        return
    if arguments.peer_python and cases and not arguments.only_write:
        refuse_an_interpreter_that_ends_badly(arguments.peer_python, cases[0])
    path, finished = arguments.output.with_suffix(".jsonl"), arguments.output.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    read = json.loads(finished.read_text(encoding="utf-8"))["cases"] if finished.exists() else []
    read += (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )
    measured = {json.dumps(line["case"]): line for line in read}  # the last one of a case
    for number, case in enumerate(cases, 1):
        before = measured.get(json.dumps(case))
        if before is not None and (CHUNKED in before["times"] or not arguments.peer_python):
            continue
        if arguments.only_write:
            if before is None:
                left_out.append((case, "not measured yet"))
            continue
        found = in_a_process_of_its_own(sys.executable, case, own_sides(case), arguments.quick)
        peer: dict[str, Any] = {
            "times": {},
            "peak_bytes": {},
            "not_measured": {CHUNKED: "no --peer-python was given"},
        }
        if arguments.peer_python:
            peer = in_a_process_of_its_own(
                arguments.peer_python, case, [DENSE, CHUNKED], arguments.quick
            )
        line = {
            "case": case,
            "rule": rule_of(case),
            "peer_torch": peer.get("versions", {}).get("torch"),
        }
        line["environment"] = environment(torch.device(arguments.device))
        # the dense head is that of this environment; PyTorch's own function is relative to the one
        # beside it
        for key in ("times", "peak_bytes", "not_measured"):
            line[key] = {
                **{side: value for side, value in peer[key].items() if side != DENSE},
                **found[key],
            }
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        measured[json.dumps(case)] = line
        ratios = ", ".join(
            f"{side} {time['ratio']:.2f}" for side, time in line["times"].items() if side != DENSE
        )
        print(f"{number} of {len(cases)}: {json.dumps(case)}: {ratios}", flush=True)
    given = [
        arguments.peer_python and "<torch-2.13>/bin/python" if x == arguments.peer_python else x
        for x in sys.argv
    ]
    if not measured:
        sys.exit(f"nothing has been measured yet: there is neither {finished} nor {path}")
    lines = sorted(measured.values(), key=lambda line: place_in_table(line["case"]))
    where = copy.deepcopy(lines[0]["environment"])
    where["machine"] |= {
        "threads": " and ".join(sorted({str(line["case"]["threads"]) for line in lines}))
    }
    report = {
        "command": shlex.join(["python", *given]),
        "environment": where,
        "cases": lines,
        "left_out": left_out,
    }
    write_report(report, table(report), arguments.output)
    path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
