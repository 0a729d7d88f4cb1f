"""One of two processes that measure the masking rate together.

Spawned processes import it by name, so it lies beside no installed package's name (one installs a package ``tests``).
"""

from __future__ import annotations

import os

import torch
import torch.multiprocessing as mp

from as_lightning import MaskingRate
from as_lightning.functional import MaskingCounts

COUNTS = (3, 10, 0, 0), (0, 30, 0, 0)


def rate_of_a_rank(rank: int, port: int, rates: mp.SimpleQueue) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    rate = MaskingRate()
    rate.update(MaskingCounts(*torch.tensor(COUNTS[rank])))
    rates.put(rate.compute().item())
    torch.distributed.destroy_process_group()
