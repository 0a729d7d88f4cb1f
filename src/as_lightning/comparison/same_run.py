"""When a finished run is read again: what decides it has the same digests."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from as_lightning.bench.run.identity import digest, value_digest
from as_lightning.comparison.candidates import Candidate

BATCHES, TARGETS = 8, 32  # that are read of each loader, and compared
VALIDATION = "val_dataloader"
HOOKS = ("train_dataloader", VALIDATION, "test_dataloader")
# of the trainer: they change no number
WITHOUT_EFFECT = ("logger", "profiler", "default_root_dir")


def code_digest(pickled: bytes, files: Mapping[str, str], version: str) -> str:
    """Return a digest of the user's code files; with ``version`` the user answers for them."""
    if version:
        return f"version {version}"
    if getattr(__import__("__main__"), "__file__", None) is None and b"__main__" in pickled:
        return secrets.token_hex(8)  # cells of a notebook have no file: like no other
    return digest(*files.values())


def module_digest(candidate: Candidate, module: pl.LightningModule) -> str:
    """Return a digest of structure, hyperparameters, weights, and what the function encloses."""
    weights = {}
    for name, weight in module.state_dict().items():
        if not is_lazy(weight):
            weights[name] = weight
    return value_digest([candidate.module, str(module), dict(module.hparams), weights])


def first_batches(data: pl.LightningDataModule, hook: str) -> list[Any]:
    loaders = getattr(data, hook)() if is_overridden(hook, data) else ()
    batches = []
    for loader in tree_leaves(getattr(loaders, "iterables", loaders)):
        with isolate_rng(include_cuda=False):
            for seed in (random.seed, np.random.seed, torch.manual_seed):
                seed(0)
            batches.append(list(islice(loader, BATCHES)))
    return batches


def targets(batch: Any) -> Any:
    """Return the target of a batch: its ``labels``, its last part, or all of it."""
    if isinstance(batch, Mapping) and "labels" in batch:
        return batch["labels"]
    if isinstance(batch, Sequence) and len(batch) > 1:
        return batch[-1]
    return batch


def scored_targets(loaders: Sequence[Sequence[Any]]) -> str:
    """Return a digest of the first targets of loaders, however they are batched."""
    texts = []
    for batches in loaders:
        parts = [targets(batch) for batch in batches]
        shapes = {
            part.shape[1:] if isinstance(part, Tensor) and part.dim() else None for part in parts
        }
        if len(shapes) == 1 and None not in shapes:  # padded tokens have others in other batches
            parts = [torch.cat(parts)[:TARGETS]]
        texts.append(value_digest(parts))
    return digest(*texts)
