"""When two runs are the same: all that reads, resumes or replaces runs asks `RunIdentity`."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import secrets
import sys
import sysconfig
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from joblib.hashing import NumpyHasher

# settings that change no number: where files lie, what is shown, how batches are loaded
WITHOUT_EFFECT = re.compile(
    r"data_dir|output_dir|logger\..*|data\.num_workers"
    r"|callbacks\.(learning_rate_monitor|margin_histogram|last_checkpoint)\..*"
    r"|callbacks\.model_checkpoint\.(_target_|dirpath)"
    r"|trainer\.(enable_progress_bar|enable_model_summary|log_every_n_steps)"
)


@dataclass(frozen=True)
class RunIdentity:
    """A run's settings as text, without those that change no number, and the digests of its inputs.

    >>> one = RunIdentity.of({"seed": 0, "trainer": {"max_epochs": 3, "enable_progress_bar": True}})
    >>> one.changed(RunIdentity.of({"seed": 1, "trainer": {"max_epochs": 3}}))
    ['seed']
    """

    config: Mapping[str, str]
    inputs: Mapping[str, str]

    @classmethod
    def of(cls, config: Mapping[str, Any], inputs: Mapping[str, str] | None = None) -> RunIdentity:
        """Return the identity of a resolved configuration, and of digests of what it reads."""
        settings = flat(config)
        for key in filter(WITHOUT_EFFECT.fullmatch, list(settings)):
            del settings[key]
        return cls(settings, dict(inputs or {}))

    def changed(self, other: RunIdentity) -> list[str]:
        """Return the names of the settings that differ, the shortest first, and of the inputs.

        An absent setting is null. An input that only one of the two has recorded is not compared.
        """
        changed = []
        keys = self.config.keys() | other.config.keys()
        for key in sorted(keys, key=lambda key: (len(key), key)):
            if self.config.get(key, "null") != other.config.get(key, "null"):
                changed.append(key)
        for key in sorted(self.inputs.keys() & other.inputs.keys()):
            if self.inputs[key] != other.inputs[key]:
                changed.append(f"inputs.{key}")
        return changed


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a nested configuration as one level of dotted keys, with values as text.

    >>> flat({"method": {"delta": 0.1, "warm": None}, "test": True})
    {'method.delta': '0.1', 'method.warm': 'null', 'test': 'true'}
    """
    settings: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{key}.")
        else:
            read = json.loads(json.dumps(value, default=str))  # as a result holds it
            settings[f"{prefix}{key}"] = read if isinstance(read, str) else json.dumps(read)
    return settings


def digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


class ValueHasher(NumpyHasher):
    """joblib's hasher, for tensors too, and for functions by their names and what they enclose."""

    def save(self, obj: Any) -> None:
        if isinstance(obj, torch.Tensor):
            obj = tensor_text(obj)
        elif isinstance(obj, types.FunctionType):
            enclosed = inspect.getclosurevars(obj).nonlocals
            obj = (obj.__module__, obj.__qualname__, enclosed, obj.__defaults__, obj.__kwdefaults__)
        elif isinstance(obj, type) and (obj.__module__ == "__main__" or "<" in obj.__qualname__):
            obj = (obj.__module__, obj.__qualname__)
        super().save(obj)


def tensor_text(value: torch.Tensor) -> str:
    """Return a text that is another one for a tensor of another dtype, shape or value."""
    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    digest = hashlib.sha256(raw).hexdigest()
    return f"{value.dtype} {tuple(value.shape)} {value.requires_grad} {digest}"


def value_digest(value: Any) -> str:
    """Return a digest of a value; one that cannot be pickled is like no other."""
    try:
        return str(ValueHasher(hash_name="md5").hash(value))
    except Exception:  # whatever an object of the user's raises
        return secrets.token_hex(8)


def code_files() -> dict[str, str]:
    """Return the digests of the imported files of the user's own code, by path in order.

    Of installed packages, the standard library and this package a run records the versions.
    """
    left_out = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]))
    installed = "|".join(["(site|dist)-packages|hydra_plugins", *map(re.escape, left_out)])
    digests = {}
    for module in list(sys.modules.values()):
        file = str(getattr(module, "__file__", None) or "")
        if file.endswith(".py") and not re.search(installed, file) and Path(file).is_file():
            digests[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return dict(sorted(digests.items()))
