"""When a finished run is read again: code, module, first batches, trainer and ``version=`` are the
same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
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

from as_lightning.bench.run.identity import code_files, digest, tensor_text, value_digest
from as_lightning.comparison.candidates import Candidate

BATCHES = 8  # that are read of each loader
SPLITS = {"train": "train_dataloader", "val": "val_dataloader", "test": "test_dataloader"}
# of the trainer: they change no number
WITHOUT_EFFECT = ("logger", "profiler", "default_root_dir")


def digests(
    pickled: bytes,
    module: str,
    batches: Mapping[str, Sequence[Any]],
    trainer: Mapping[str, Any],
    version: str,
) -> dict[str, str]:
    """Return the digests by which a candidate's finished runs are read again; what cannot be read
    gives a digest that is like no other.

    ``pickled`` is the candidate, ``module`` the digest of a fresh one (`module_digest`), and
    ``batches`` are the first ones of each split (`first_batches`). With ``version`` the user
    answers for the code.
    """
    files = code_files()
    code = digest(*(files[path] for path in sorted(files)))
    if version:
        code = f"version {version}"
    elif getattr(__import__("__main__"), "__file__", None) is None and b"__main__" in pickled:
        code = value_digest(object)  # Cells of a notebook have no file.
    read = {name: value for name, value in trainer.items() if name not in WITHOUT_EFFECT}
    return {
        "code": code,
        "module": module,
        "data": value_digest(batches),
        "trainer": value_digest(read),
    }


def module_digest(candidate: Candidate, module: pl.LightningModule) -> str:
    """Return a digest of structure, hyperparameters, weights, and what the function encloses."""
    weights = []
    for name, weight in module.state_dict().items():
        if not is_lazy(weight):
            weights.append(f"{name} {tensor_text(weight)}")
    enclosed = value_digest(candidate.module)
    return digest(enclosed, str(module), value_digest(dict(module.hparams)), *weights)


def first_batches(data: pl.LightningDataModule) -> dict[str, list[Any]]:
    """Return the first batches of each loader of each split, read under one random state."""
    batches: dict[str, list[Any]] = {}
    for split, hook in SPLITS.items():
        batches[split] = []
        loaders = getattr(data, hook)() if is_overridden(hook, data) else ()
        for loader in tree_leaves(getattr(loaders, "iterables", loaders)):
            with isolate_rng(include_cuda=False):
                for seed in (random.seed, np.random.seed, torch.manual_seed):
                    seed(0)
                batches[split].append(list(islice(loader, BATCHES)))
    return batches


def targets(batches: Any) -> Iterator[Any]:
    """Yield the target of each batch: its ``labels``, its last part, or all of it."""
    for batch in batches:
        if isinstance(batch, Mapping) and "labels" in batch:
            yield batch["labels"]
        elif isinstance(batch, Sequence) and len(batch) > 1:
            yield batch[-1]
        else:
            yield batch


def scored_targets(batches: Mapping[str, Sequence[Any]]) -> str:
    """Return a digest of the first targets of validation and test, however they are batched."""
    texts = []
    for split in ("val", "test"):
        for loader_batches in batches[split]:
            parts = list(targets(loader_batches))
            if all(isinstance(part, Tensor) and part.dim() == 1 for part in parts) and parts:
                parts = [torch.cat(parts)[:128]]
            texts.append(value_digest(parts))
    return digest(*texts)


class ScoredTargets(pl.Callback):
    """Notes sums over the targets of the first validation in ``seen``, the same in any order."""

    def __init__(self) -> None:
        self.seen = ""
        self._sums = [0.0, 0.0, 0.0]

    def state_dict(self) -> dict[str, str]:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        self.seen = state_dict["seen"]

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, *place: int
    ) -> None:
        """Add the targets of a batch."""
        for leaf in tree_leaves(list(targets([batch]))):
            if isinstance(leaf, Tensor) and not (self.seen or trainer.sanity_checking):
                values = leaf.detach().cpu().double()
                for place_of_sum, part in enumerate((values * 0 + 1, values, values**2)):
                    self._sums[place_of_sum] += float(part.sum())

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Note the sums of the first validation."""
        if not (self.seen or trainer.sanity_checking):
            self.seen = " ".join(f"{total:.6g}" for total in self._sums)
