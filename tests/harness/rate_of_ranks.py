"""One of two processes that measure the masking rate together."""

from __future__ import annotations

import os
from multiprocessing.queues import SimpleQueue

import torch

from as_lightning import MaskingRate
from as_lightning.functional import MaskingCounts

COUNTS = (3, 10, 0, 0), (0, 30, 0, 0)


def rate_of_a_rank(rank: int, port: int, rates: SimpleQueue[float]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    rate = MaskingRate()
    rate.update(MaskingCounts(*torch.tensor(COUNTS[rank])))
    rates.put(rate.compute().item())
    torch.distributed.destroy_process_group()
