"""Start the two processes of a program such as :mod:`harness.two_ranks`, and collect what they have seen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import as_lightning

Seen = Callable[[str], list[dict[str, Any]]]


def run_two_ranks(program: str | None, folder: Path, scenarios: Sequence[str], **environment: str) -> Seen:
    """Run the scenarios in one pair of processes; returns what each rank has seen in one of them."""
    assert program is not None
    settings = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(as_lightning.__file__).parents[1]),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(folder), *scenarios],
            env=os.environ | settings | environment | {"LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)

    def load(scenario: str) -> list[dict[str, Any]]:
        results = [torch.load(folder / f"{scenario}-{rank}.pt", weights_only=False) for rank in range(2)]
        for result in results:
            assert "error" not in result, result["error"]
        return results

    return load


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
