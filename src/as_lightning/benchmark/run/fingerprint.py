"""Digests of what runs are made with, the same in every process: a module, a loss, settings, a split's examples."""

from __future__ import annotations

import functools
import hashlib
import inspect
import pprint
import re
from collections.abc import Sized
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from as_lightning.functional.calibration import weights_digest

LIBRARIES = ("builtins", "torch", "lightning", "torchmetrics", "as_lightning")
EXAMPLES = 64  # of a split that its fingerprint reads
PLAIN = (bool, int, float, str, bytes, type(None))


def digest(*texts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def described(value: Any) -> str:
    """A value as text: callbacks with their settings, tensors and arrays by their bytes, no addresses in memory."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    shown: Any = [(type(part), vars(part)) if isinstance(part, pl.Callback) else part for part in parts]
    shown = tree_map_only(Tensor, lambda tensor: tensor.detach().cpu().numpy(), shown)
    shown = tree_map_only(np.ndarray, lambda array: (array.shape, hashlib.sha256(array.tobytes()).hexdigest()), shown)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", pprint.pformat(shown, width=1))  # so narrow that it sorts sets


def of_made(made: Any) -> str:
    """What makes a loss or module what it is: source, plain attributes, weights, and what a function encloses."""
    if isinstance(made, functools.partial):
        return "\n".join([of_made(made.func), described([made.args, made.keywords])])
    if inspect.isfunction(made):
        enclosed = [cell.cell_contents for cell in made.__closure__ or () if cell.cell_contents is not made]
        held = [of_made(value) if callable(value) else described(value) for value in enclosed]
        return "\n".join([_text(made), described([made.__defaults__, made.__kwdefaults__]), *held])
    parts = list(made.modules()) if isinstance(made, nn.Module) else [made]
    weights = weights_digest(made.state_dict()) if isinstance(made, nn.Module) else {}
    plain = [{name: x for name, x in getattr(part, "__dict__", {}).items() if isinstance(x, PLAIN)} for part in parts]
    kinds = [made] if isinstance(made, type) else [type(part) for part in parts]
    return "\n".join([source_of(*kinds), described([plain, weights])])


def of_split(data: pl.LightningDataModule, loader: str) -> str:
    """Some examples of a split, read under the same random state; empty without the split."""
    loaders = getattr(data, loader)() if is_overridden(loader, data) else ()
    dataset: Any = getattr(next(iter(tree_leaves(loaders)), None), "dataset", None)
    if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        return ""
    size = len(dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        chosen = tree_leaves([dataset[number] for number in range(0, size, max(1, size // EXAMPLES))])
    return digest(str(size), *map(described, chosen))


def source_of(*kinds: type) -> str:
    """The source of classes and of those that they inherit from, libraries left out."""
    bases = dict.fromkeys(base for made in kinds for base in made.__mro__)
    return "\n".join(_text(kind) for kind in bases if kind.__module__.partition(".")[0] not in LIBRARIES)


def _text(made: Any) -> str:
    try:
        return inspect.getsource(made)
    except (OSError, TypeError):  # typed into an interpreter
        return made.__qualname__
