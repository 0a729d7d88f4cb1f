"""How the loss benchmarks measure: interleaved rounds for time, the process's high-water mark for
memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from as_lightning.bench.machine import machine_description, package_versions

Side = Callable[[], Any]


def seconds(side: Side, device: torch.device) -> float:
    """The time of one call."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    side()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def interleaved_times(
    sides: Mapping[str, Side],
    baseline: str,
    device: torch.device,
    *,
    rounds: int,
    warmup: int = 1,
    settle: bool = False,
) -> dict[str, dict[str, float]]:
    """Each round times every side once; a side's ratio is the median over the rounds of its time
    over the baseline's.

    A machine that slows down for a while slows down all sides of the round. With ``settle`` a side
    is called once more, untimed, just before: so that it finds the allocator as it leaves it
    itself, as in a training, and not as another side has left it (fresh pages can cost more than
    the loss).
    """
    for _ in range(warmup):
        for side in sides.values():
            side()
    times = {name: [] for name in sides}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, side in sides.items():
            if settle:
                side()
            times[name].append(seconds(side, device))
    found = {}
    for name, own in times.items():
        ratios = [t / b for t, b in zip(own, times[baseline], strict=True)]
        found[name] = {
            "milliseconds": statistics.median(own) * 1e3,
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "rounds": rounds,
        }
    return found


def peak_memory(side: Side, device: torch.device) -> int | None:
    """Bytes by which one call raises the memory in use at its peak; None where the system cannot
    tell.

    On Linux the resident size of the process, whose high-water mark is reset first; on CUDA the
    allocator's.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        side()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not reset_peak():
        return None
    before = resident_memory()  # memory that an earlier call has freed must not hide this one's
    reset_peak()
    side()
    return max(0, peak_resident_memory() - before)


def environment(device: torch.device) -> dict[str, Any]:
    """The machine and the versions that a table belongs to."""
    return {"machine": machine_description(), "versions": package_versions(), "device": device.type}


def command() -> str:
    """The command that runs this script, as others can repeat it."""
    return shlex.join(["python", *sys.argv])


def machine_line(report: Mapping[str, Any]) -> str:
    """The command, the machine and the versions, for the head of a table."""
    machine, versions = report["environment"]["machine"], report["environment"]["versions"]
    where = (
        machine["accelerator"]
        if report["environment"]["device"] == "cuda"
        else machine["processor"]
    )
    return (
        f"`{report['command']}` on {where}, {machine['cores']} cores, {machine['threads']} "
        "threads; PyTorch "
        f"{versions['torch']}, Python {versions['python']}."
    )


def megabytes(size: int | None) -> str:
    """``12.3 MB``, or ``not measured``."""
    return "not measured" if size is None else f"{size / 1e6:,.1f} MB"


def write_report(report: Mapping[str, Any], text: str, output: Path | None) -> None:
    """Write the table beside its JSON as ``<output>.md`` and ``<output>.json``, and print it.

    It is written first: what took an hour to measure is not lost where nobody reads the output to
        its end.
    """
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.with_suffix(".json").write_text(
            json.dumps(report, indent=2) + "\n", encoding="utf-8"
        )
        output.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def resident_memory() -> int:
    """Bytes that the process holds now, after what it has freed has gone back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # which the C library may still hold
    return _status("VmRSS")


def reset_peak() -> bool:
    """Start anew to look for the most that the process holds; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_resident_memory() -> int:
    """The most bytes that the process has held since `reset_peak`."""
    return _status("VmHWM")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
