"""Digests of all that a module, a loss, data or a trainer's argument is made of, the same in every
process.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import importlib.util
import os
import random
import re
import secrets
import sys
import types
from collections import ChainMap, OrderedDict
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sized
from contextlib import suppress
from enum import Enum
from itertools import chain, islice, pairwise
from pathlib import Path, PurePath
from threading import Lock, RLock, local
from typing import Any
from weakref import WeakKeyDictionary

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import IterableDataset
from torch.utils.hooks import RemovableHandle

LIBRARIES = (
    "as_lightning",
    "torch",
    "lightning",
    "torchmetrics",
    "numpy",
)  # installed, wherever their files lie
INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")
EXAMPLES, BATCHES = 128, 8  # how many a split's digest reads: examples, or batches of a stream
# kinds: the text of such a part is its kind, not the name of its type
CLASS, STREAM, RANDOM = "class", "stream", "random generator"
KINDS: dict[str, Any] = {CLASS: type, STREAM: IterableDataset}
KINDS[RANDOM] = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
# types whose objects hold nothing that a training could depend on
WITHOUT_STATE = (
    type(Lock()),
    type(RLock()),
    local,
    types.ModuleType,
    RemovableHandle,
    WeakKeyDictionary,
)
OF_CLASSES = {
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "__annotations__",
}
OF_CLASSES.add("_value2member_map_")  # which the unions of a Flag fill
# environment variables that differ between the processes of a run or between two commands, or set
# only its speed
OF_PROCESS = re.compile(
    r"(LOCAL_|GLOBAL_|NODE_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|PL_GLOBAL_SEED"
    r"|(SLURM|TORCHELASTIC|AS_LIGHTNING)_\w+|[A-Z]+_NUM_THREADS|_|(OLD)?PWD|SHLVL"
)
TAKING = (
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_FROM_DICT_OR_GLOBALS",
)  # the instructions that read a global variable
PLAIN = (
    bool,
    int,
    float,
    complex,
    bytes,
    type(None),
    type(...),
    range,
    slice,
    torch.dtype,
    torch.device,
    np.dtype,
)


def digest(*texts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


class Fingerprint:
    """What ``value`` is made of: attributes, weights, arrays, code, what functions enclose and
    call, files it names.

    ``parts`` has one text for each part, by its place in ``value``. ``outside`` has the states of
    the files and environment variables that texts in ``value`` name. ``unread`` lists the places of
    parts that cannot be read, such as a stream or an object of a C extension that cannot be
    pickled: a digest with such a part equals no other.
    """

    def __init__(
        self, value: Any, name: str, seen: MutableMapping[int, tuple[str, Any]] | None = None
    ) -> None:
        self.parts: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.unread: list[str] = []
        self._texts: set[str] = set()
        # the objects too, as Python reuses the id of one that is gone
        self._seen: MutableMapping[int, tuple[str, Any]] = {} if seen is None else seen
        self._read(value, name)

    @property
    def readable(self) -> str:
        """The digest of the parts that can be read."""
        lines = [*self.parts.items(), *sorted(self.outside.items())]
        return digest(*(f"{name} {text}" for name, text in lines))

    @property
    def digest(self) -> str:
        """The digest of all parts; a random one if some cannot be read."""
        return secrets.token_hex(8) if self.unread else self.readable

    def differing(self, other: Fingerprint) -> list[str]:
        """The places at which the parts of two fingerprints differ."""
        places = dict.fromkeys([*self.parts, *other.parts])
        return [place for place in places if self.parts.get(place) != other.parts.get(place)]

    def take(self, other: Fingerprint) -> None:
        """Move the files and environment variables that ``other`` names here."""
        self._texts |= other._texts
        self.outside |= other.outside
        other.outside = {}

    def changing(self) -> set[str]:
        """The files and environment variables that have changed or appeared since, as files that a
        training writes.
        """
        current = dict(chain.from_iterable(_outside(text).items() for text in self._texts))
        return {
            name
            for name in current.keys() | self.outside.keys()
            if current.get(name) != self.outside.get(name)
        }

    def leave_out(self, names: Collection[str]) -> None:
        """Forget the files and environment variables of these names."""
        self.outside = {name: state for name, state in self.outside.items() if name not in names}

    def lasting(self, *, of_data: bool = False) -> dict[str, str]:
        """The parts on which the next training may depend: none of classes, where users' code may
        collect values.

        Random generators count wherever they are; ``of_data`` only they and streams do.
        """
        included = tuple(
            f"{p}."
            for p, text in self.parts.items()
            if text == RANDOM or (of_data and text == STREAM)
        )
        classes = tuple(f"{p}." for p, text in self.parts.items() if text == CLASS)
        parts = {
            p: text
            for p, text in self.parts.items()
            if not (of_data or p.startswith(classes) or ".all of " in p)
        }
        return parts | {p: text for p, text in self.parts.items() if p.startswith(included)}

    def _read(self, value: Any, place: str) -> None:
        while place in self.parts:  # two keys such as 1 and "1", or two classes of one name
            place += " again"
        if id(value) in self._seen:
            self.parts[place] = f"as {self._seen[id(value)][0]}"
            return
        try:
            text = _text(value)
        except Exception:  # e.g. of a tensor without data
            self.parts[place] = type(value).__qualname__
            self.unread.append(place)
            return
        kind = next(
            (kind for kind, classes in KINDS.items() if isinstance(value, classes)),
            type(value).__qualname__,
        )
        self.parts[place] = kind if text is None else text
        candidates = (
            [value] if not isinstance(value, Mapping) or isinstance(value, _Attributes) else value
        )
        for name_or_path in (str(item) for item in candidates if isinstance(item, (str, PurePath))):
            self._texts.add(name_or_path)
            self.outside |= _outside(name_or_path)
        if text is None or isinstance(value, torch.nn.Parameter):  # a parameter may be tied
            self._seen[id(value)] = place, value
        if text is not None:
            return
        try:
            if isinstance(value, (set, frozenset)):
                # each by itself, since their order is another one in each process
                members = [Fingerprint(part, "member", ChainMap({}, self._seen)) for part in value]
                self.unread += [place for member in members if member.unread]
                for member in members:
                    self.take(member)
                self.parts[place] += digest(*sorted(member.digest for member in members))
                return
            for name, part in _inside(value):
                self._read(part, f"{place}.{name}")
        except Exception:  # whatever an object raises that cannot be taken apart
            self.unread.append(place)


class _Attributes(dict[str, Any]):
    """An object's attributes by name; the names are no texts of the user's."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        # an address in memory, which torch.compile sets
        super().__init__(
            {name: part for name, part in parts.items() if name != "_torchdynamo_wrapper_id"}
        )


def _outside(text: str) -> dict[str, str]:
    """The state of the file, and of the environment variable, that a text names."""
    states = {}
    path = os.path.expanduser(text) if text.startswith("~/") else text
    if len(text) < 4096 and os.path.isfile(path):
        status = os.stat(path)
        states[f"the file {text}"] = f"{status.st_size} {status.st_mtime_ns}"
    if text.isidentifier() and text in os.environ and not OF_PROCESS.fullmatch(text):
        states[f"the variable {text}"] = os.environ[text]
    return states


def _text(value: Any) -> str | None:
    """The text of a plain value, an array, or a library's class or function; None of a value that
    has parts.
    """
    if of_library(type(value)) and not isinstance(
        value, Enum
    ):  # a class of the user's may have more than its value
        if isinstance(value, (str, PurePath)):
            return repr(str(value))
        if isinstance(value, PLAIN):
            return repr(value)
    if isinstance(value, Tensor):
        trained = " trained" * value.requires_grad
        if value.layout is not torch.strided or _hooks_of(value) or vars(value):
            return None
        value = value.detach().cpu().resolve_conj().resolve_neg()
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(raw).hexdigest()}{trained}"
    if (
        type(value) in (np.ndarray, np.memmap) and not value.dtype.hasobject
    ):  # a subclass may hold more, such as a mask
        raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        return f"{value.dtype} {value.shape} {hashlib.sha256(raw).hexdigest()}"
    if (
        isinstance(value, WITHOUT_STATE) or value is os.environ
    ):  # variables count where a text names them
        return type(value).__name__ + getattr(value, "__name__", "")
    builtin = isinstance(value, types.BuiltinFunctionType)
    nameable = isinstance(value, (type, types.FunctionType)) and not getattr(
        value, "__closure__", None
    )
    return named(value) if builtin or (nameable and of_library(value)) else None


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of a value's parts; raises where it cannot be taken apart."""
    if isinstance(value, (Mapping, list, tuple)) and not of_library(type(value)):
        yield from [("state", getattr(value, "__dict__", None)), ("class", type(value))]
    if isinstance(value, Enum):
        yield from [("class", type(value)), ("name", value.name)]
    elif isinstance(value, Mapping):
        yield "factory", getattr(value, "default_factory", None)
        parts = enumerate(value.items())
        yield from ((key if type(key) is str else f"key {n}", part) for n, (key, part) in parts)
        yield from (
            (f"key the key {n}", key) for n, key in enumerate(value) if type(key) is not str
        )
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif type(value) is np.ndarray:
        yield "values", value.tolist()
    elif isinstance(value, Tensor):
        yield "dense", value.detach().to_dense()
        yield from [("hooks", _hooks_of(value)), ("attributes", vars(value))]
    elif isinstance(value, functools.partial):
        yield from [
            ("function", value.func),
            ("arguments", value.args),
            ("keywords", value.keywords),
        ]
    elif isinstance(value, types.MethodType):
        yield from [("function", value.__func__), ("self", value.__self__)]
    elif isinstance(value, (staticmethod, classmethod)):
        yield "function", value.__func__
    elif isinstance(value, property):
        yield "functions", (value.fget, value.fset)
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, type):
        yield "class", type(value)
        for base in (base for base in value.__mro__ if not of_library(base)):
            # sorted, since a class that is sent to another process has its attributes in another
            # order there
            attributes = {
                name: part for name, part in sorted(vars(base).items()) if name not in OF_CLASSES
            }
            yield (
                base.__qualname__,
                _Attributes({n: p for n, p in attributes.items() if not n.startswith("_abc_")}),
            )
            yield "bases", [parent for parent in base.__bases__ if of_library(parent)]
    elif isinstance(value, torch.Generator):
        yield "state", value.get_state()
    elif isinstance(value, random.Random):
        yield "state", value.getstate()
    elif isinstance(value, np.random.Generator):
        yield "state", value.bit_generator.state
    elif isinstance(value, torch.nn.Module):
        # the state comes first, so that it names the places of shared parts
        yield from [("state", _state(value)), ("class", type(value))]
    else:  # any other object, also one of C: what pickle would rebuild it from
        reducer = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if reducer is None else reducer(value)
        if isinstance(
            reduced, str
        ):  # a global name, as of a function that `functools.lru_cache` wraps
            reduced = reduced, (), getattr(value, "__dict__", None)
        factory, arguments, state, *items = (*reduced, None, None)[:5]
        yield "state", _Attributes(state) if type(state) is dict else state
        by_class_alone = getattr(factory, "__name__", None) == "__newobj__" and len(arguments) == 1
        yield from [("class", type(value))] if by_class_alone else [("made", [factory, arguments])]
        yield "items", [[*iterator] for iterator in items[:2] if iterator is not None]


def _hooks_of(value: Tensor) -> list[Any]:
    """The hooks of a tensor's gradient."""
    kinds = (value._backward_hooks, getattr(value, "_post_accumulate_grad_hooks", None))
    return [hook for kind in kinds for hook in (kind or {}).values()]


def _state(value: torch.nn.Module) -> dict[str, Any]:
    """A module's attributes, with its hooks renumbered: PyTorch counts the hooks of a whole
    process.
    """
    hooks = {
        name: part
        for name, part in vars(value).items()
        if "_hooks" in name and type(part) is OrderedDict
    }
    numbers = {
        key: number
        for number, key in enumerate(sorted({key for part in hooks.values() for key in part}))
    }
    renumbered = {
        n: {numbers[key]: hook for key, hook in part.items()} for n, part in hooks.items()
    }
    return _Attributes(vars(value) | renumbered)


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """A function's code and defaults, and what it encloses and reads from its own and other files
    of the user's.
    """
    outer_code = function.__code__
    for name, cell in zip(outer_code.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            yield name, cell.cell_contents
    if of_library(function):
        yield "name", named(function)
        return
    yield "defaults", [function.__defaults__, function.__kwdefaults__]
    yield "attributes", _Attributes(vars(function))
    # not the source, which may be of several functions, of the wrapped one, or newer than the code
    # that runs
    codes, names, global_names = [outer_code], dict[str, None](), dict[str, None]()
    for number, code in enumerate(codes):  # and of nested functions
        names |= dict.fromkeys(code.co_names)  # attributes too
        global_names |= {
            step.argval: None for step in dis.get_instructions(code) if step.opname in TAKING
        }
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        loaded = {step.arg for step in dis.get_instructions(code) if step.opcode in dis.hasconst}
        unloaded = {0} - loaded  # where a docstring is
        constants = [
            p
            for n, p in enumerate(code.co_consts)
            if n not in unloaded and not isinstance(p, types.CodeType)
        ]
        names_and_flags = repr((code.co_names, code.co_varnames, code.co_flags))
        yield (
            f"code {number}",
            [code.co_code, getattr(code, "co_exceptiontable", b""), names_and_flags, constants],
        )
    scopes = [("", function.__globals__)]
    imported = [
        module
        for code in codes
        for module in _imported(code, function.__globals__.get("__package__"))
    ]
    scopes += [(f"{module.__name__}.", vars(module)) for module in dict.fromkeys(imported)]
    for prefix, scope in scopes:
        for name in names if prefix else global_names:
            if name not in scope:
                continue
            part = scope[name]
            yield prefix + name, part
            is_user_module = isinstance(part, types.ModuleType) and not _installed(
                part.__name__.partition(".")[0]
            )
            if is_user_module and all(vars(part) is not known_scope for _, known_scope in scopes):
                scopes.append((f"{part.__name__}.", vars(part)))
    for module in dict.fromkeys(
        module for code in codes for module in _handed_on(code, function.__globals__)
    ):
        members = {
            name: part
            for name, part in vars(module).items()
            if isinstance(part, (type, types.FunctionType))
        }
        yield (
            f"all of {module.__name__}",
            [members, _file_digest(getattr(module, "__file__", None) or "")],
        )


def _imported(code: types.CodeType, package: str | None) -> Iterator[types.ModuleType]:
    """The user's modules that a function imports when it is called."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for level, step in (
        (steps[n - 2].argval, step) for n, step in enumerate(steps) if step.opname == "IMPORT_NAME"
    ):
        if level or not _installed(step.argval.partition(".")[0]):
            with suppress(Exception):  # e.g. of a missing module, which no training needs
                yield importlib.import_module("." * level + step.argval, package)


def _handed_on(code: types.CodeType, scope: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    """The user's modules that a function hands on whole, e.g. to `getattr`, or may import by a
    text.
    """
    steps = pairwise(step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG")
    whole_names = [
        step.argval
        for step, following in steps
        if following.opname not in ("LOAD_ATTR", "LOAD_METHOD")
    ]
    candidates = [scope.get(name) for name in whole_names if isinstance(name, str)]
    if not {"import_module", "__import__"}.isdisjoint(code.co_names):
        for text in (text for text in code.co_consts if isinstance(text, str)):
            with suppress(Exception):  # e.g. of a text that names no module
                candidates.append(importlib.import_module(text))
    for module in candidates:
        if isinstance(module, types.ModuleType) and not _installed(
            module.__name__.partition(".")[0]
        ):
            yield module


def named(value: Any) -> str:
    """The full name of a class or function, with a digest of its package's code unless runs record
    its version.
    """
    package = str(value.__module__).partition(".")[0]
    return f"{value.__module__}.{value.__qualname__}{code_of(package)}"


@functools.cache
def code_of(package: str) -> str:
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None or package in LIBRARIES or package in sys.stdlib_module_names:
        return ""
    path = Path(file)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return f" {digest(*map(_file_digest, map(str, files)))}"


def of_library(value: Any) -> bool:
    """Whether a class or function is of an installed package, so that its name identifies it, and
    not the user's.
    """
    return _installed(str(value.__module__ or "builtins").partition(".")[0])


@functools.cache
def _installed(package: str) -> bool:
    if package in (
        "__main__",
        "__mp_main__",
    ):  # the user's script, whatever its file is in another process
        return False
    if package in LIBRARIES or package in sys.stdlib_module_names:
        return True
    module = sys.modules.get(package)
    spec = (
        importlib.util.find_spec(package) if module is None else None
    )  # a package that is imported later
    file = getattr(module, "__file__", None) if spec is None else spec.origin
    return file is not None and INSTALLED.search(file) is not None


def user_files() -> dict[str, str]:
    """The digests of the imported files of the user's own code, by path."""
    modules = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    paths = {
        path for name, path in modules.items() if path and not _installed(name.partition(".")[0])
    }
    return {path: hexdigest for path in sorted(paths) if (hexdigest := _file_digest(path))}


def _file_digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # e.g. of a file inside an archive
        return ""


def of_split(data: pl.LightningDataModule, loader: str, *, alike: bool = False) -> str:
    """A digest of some examples of each loader of a split, read under one random state; empty
    without the split.

    The examples are drawn at random; those of a stream are its first batches. If ``alike``, and for
    streams always, a loader is read twice and left out where the two digests differ.
    """
    digests: list[str] = []
    for split_loader in loaders_of(getattr(data, loader)() if is_overridden(loader, data) else ()):
        twice = alike or isinstance(getattr(split_loader, "dataset", None), IterableDataset)
        readings = {_loader_digest(split_loader) for _ in range(1 + twice)}
        digests += readings if len(readings) == 1 else ()
    return " ".join(filter(None, digests))


def loaders_of(loaders: Any) -> list[Any]:
    """All loaders that a dataloader hook returns: one, a list, a dict or a ``CombinedLoader``."""
    return tree_leaves(getattr(loaders, "iterables", loaders))


def _loader_digest(loader: Any) -> str:
    dataset: Any = getattr(loader, "dataset", None)
    stream = isinstance(dataset, IterableDataset)
    if not stream and not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        return ""
    with isolate_rng(include_cuda=False):
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        if stream:
            return digest(
                *(Fingerprint(batch, "batch").digest for batch in islice(loader, BATCHES))
            )
        index_batches = getattr(loader, "batch_sampler", None)
        index_batches = (
            [getattr(loader, "sampler", range(len(dataset)))]
            if index_batches is None
            else index_batches
        )
        # a sampler may leave examples out, or have no end
        indices = [*islice(chain.from_iterable(index_batches), len(dataset))]
        indices.sort(
            key=lambda index: (len(str(index)), str(index))
        )  # in the order of integers, whatever their type
        chosen = random.Random(0).sample(indices, min(EXAMPLES, len(indices)))
        return digest(
            str(len(indices)), *(Fingerprint(dataset[index], "example").digest for index in chosen)
        )
