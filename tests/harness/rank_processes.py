"""Start the two processes of a program such as :mod:`harness.two_ranks`, and collect what they have
seen.
"""

import runpy
import socket
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import torch
from harness.prepared_processes import start

Seen = Callable[[str], list[dict[str, Any]]]


def run_two_ranks(program, folder, scenarios, **environment):
    """Run the scenarios in one pair of processes; returns what each rank has seen in
    one of them.
    """
    assert program is not None
    settings = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": "1",
    }
    printed = [folder / f"printed-{rank}.txt" for rank in range(2)]
    ranks = [
        start(
            partial(runpy.run_path, program, run_name="__main__"),
            [program, str(folder), *scenarios],
            *[printed[rank]] * 2,
            **settings | environment | {"LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        # no time limit: a busy machine takes its time
        while all(rank.exitcode is None for rank in ranks):
            wait([rank.sentinel for rank in ranks])
        # the other one of a rank that has failed waits for it
        if all(rank.exitcode in (None, 0) for rank in ranks):
            for rank in ranks:
                rank.join()
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.exitcode for rank in ranks] == [0, 0], "\n".join(
        file.read_text() for file in printed
    )

    def load(scenario):
        results = [
            torch.load(folder / f"{scenario}-{rank}.pt", weights_only=False) for rank in range(2)
        ]
        for result in results:
            assert "error" not in result, result["error"]
        return results

    return load


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
