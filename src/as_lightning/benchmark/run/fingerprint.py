"""Digests of objects: all that a module, a loss, data or a trainer's argument is made of, the same in every process."""

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
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sized
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

LIBRARIES = ("as_lightning", "torch", "lightning", "torchmetrics", "numpy")  # wherever they are
INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")
EXAMPLES, BATCHES = 128, 8  # of a split that is compared with another one, and of one that is a stream
# how a fingerprint names any of a kind
CLASS, STREAM, RANDOM = "class", "stream", "random generator"
KINDS: dict[str, Any] = {CLASS: type, STREAM: IterableDataset}
KINDS[RANDOM] = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
# what holds nothing that a training could depend on
WITHOUT_STATE = (type(Lock()), type(RLock()), local, types.ModuleType, RemovableHandle, WeakKeyDictionary)
OF_CLASSES = ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "__annotations__")
# environment variables that differ between the processes of a run or between two commands, or tell how fast it is
OF_PROCESS = re.compile(
    r"(LOCAL_|GLOBAL_|NODE_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|PL_GLOBAL_SEED"
    r"|(SLURM|TORCHELASTIC|AS_LIGHTNING)_\w+|[A-Z]+_NUM_THREADS|_|(OLD)?PWD|SHLVL"
)
TAKING = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")  # instructions, from a function's file
PLAIN = (bool, int, float, complex, bytes, type(None), type(...), range, slice, torch.dtype, torch.device, np.dtype)


def digest(*texts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


class Fingerprint:
    """What ``value`` is made of: attributes, weights, arrays, code, what functions enclose and call, files it names.

    ``parts`` has a line for each, by its place in ``value``. ``outside`` tells the state of the files and environment
    variables that texts name. ``unread`` are the places of which nothing can be known, as a stream or an object of a C
    extension that cannot be pickled: a fingerprint that has one is like no other.
    """

    def __init__(self, value: Any, name: str, seen: dict[int, tuple[str, Any]] | None = None) -> None:
        self.parts: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.unread: list[str] = []
        self._texts: set[str] = set()
        # with the object: an id is free again when its object is gone
        self._seen = {} if seen is None else seen
        self._read(value, name)

    @property
    def readable(self) -> str:
        """The digest of all that can be read."""
        lines = [*self.parts.items(), *sorted(self.outside.items())]
        return digest(*(f"{name} {text}" for name, text in lines))

    @property
    def digest(self) -> str:
        """The digest of all parts, like no other if there are some of which nothing can be known."""
        return secrets.token_hex(8) if self.unread else self.readable

    def differing(self, other: Fingerprint) -> list[str]:
        """The places at which the parts of two fingerprints differ."""
        places = dict.fromkeys([*self.parts, *other.parts])
        return [place for place in places if self.parts.get(place) != other.parts.get(place)]

    def take(self, other: Fingerprint) -> None:
        """Take over what another one names outside."""
        self._texts |= other._texts
        self.outside |= other.outside
        other.outside = {}

    def changing(self) -> set[str]:
        """What is named outside and has changed since, or come into being, as files that a training writes."""
        now = dict(chain.from_iterable(_outside(text).items() for text in self._texts))
        return {name for name in now.keys() | self.outside.keys() if now.get(name) != self.outside.get(name)}

    def leave_out(self, names: Collection[str]) -> None:
        """Forget what is outside and has these names."""
        self.outside = {name: state for name, state in self.outside.items() if name not in names}

    def lasting(self, *, of_data: bool = False) -> dict[str, str]:
        """The parts on which a training may depend if they change: not what belongs to a class, where users collect.

        Random generators count wherever they are, and ``of_data`` they and streams alone.
        """
        kept = tuple(f"{p}." for p, text in self.parts.items() if text == RANDOM or (of_data and text == STREAM))
        left = tuple(f"{p}." for p, text in self.parts.items() if text == CLASS)
        rest = {p: text for p, text in self.parts.items() if not (of_data or p.startswith(left) or ".all of " in p)}
        return rest | {p: text for p, text in self.parts.items() if kept and p.startswith(kept)}

    def _read(self, value: Any, place: str) -> None:
        while place in self.parts:  # two keys, as 1 and "1", or two classes of one name
            place += " again"
        if id(value) in self._seen:
            self.parts[place] = f"as {self._seen[id(value)][0]}"
            return
        try:
            text = _text(value)
        except Exception:  # as of a tensor without data
            self.parts[place] = type(value).__qualname__
            self.unread.append(place)
            return
        kind = next((kind for kind, of in KINDS.items() if isinstance(value, of)), type(value).__qualname__)
        self.parts[place] = kind if text is None else text
        named = [value] if not isinstance(value, Mapping) or isinstance(value, _Attributes) else value
        for named_text in (str(text) for text in named if isinstance(text, (str, PurePath))):
            self._texts.add(named_text)
            self.outside |= _outside(named_text)
        if text is None or isinstance(value, torch.nn.Parameter):  # which may be tied
            self._seen[id(value)] = place, value
        if text is not None:
            return
        try:
            if isinstance(value, (set, frozenset)):
                members = [Fingerprint(part, "member", self._seen) for part in value]
                self.unread += [place for member in members if member.unread]
                for member in members:
                    self.take(member)
                self.parts[place] += digest(*sorted(member.digest for member in members))
                return
            for name, part in _inside(value):
                self._read(part, f"{place}.{name}")
        except Exception:  # whatever an object says that cannot be taken apart
            self.unread.append(place)


class _Attributes(dict[str, Any]):
    """What an object has by the names of its attributes, which are no texts of the user's."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        # of what torch.compile has made it is an address
        super().__init__({name: part for name, part in parts.items() if name != "_torchdynamo_wrapper_id"})


def _outside(text: str) -> dict[str, str]:
    """The state of the file, and of the environment variable, that a text names."""
    found = {}
    path = os.path.expanduser(text) if text.startswith("~/") else text
    if len(text) < 4096 and os.path.isfile(path):
        about = os.stat(path)
        found[f"the file {text}"] = f"{about.st_size} {about.st_mtime_ns}"
    if text.isidentifier() and text in os.environ and not OF_PROCESS.fullmatch(text):
        found[f"the variable {text}"] = os.environ[text]
    return found


def _text(value: Any) -> str | None:
    """What is told in one line: plain values, arrays, names of libraries; None of what has parts."""
    if isinstance(value, (str, PurePath)):
        return repr(str(value))
    if isinstance(value, PLAIN) and not isinstance(value, Enum):
        return repr(value)
    if isinstance(value, Tensor):
        trained = " trained" * value.requires_grad
        if value.layout is not torch.strided or _hooks_of(value) or vars(value):
            return None
        value = value.detach().cpu().resolve_conj().resolve_neg()
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(raw).hexdigest()}{trained}"
    if type(value) in (np.ndarray, np.memmap) and not value.dtype.hasobject:  # others may have a mask
        raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        return f"{value.dtype} {value.shape} {hashlib.sha256(raw).hexdigest()}"
    if isinstance(value, WITHOUT_STATE) or value is os.environ:  # of which those count that a text names
        return type(value).__name__ + getattr(value, "__name__", "")
    builtin = isinstance(value, types.BuiltinFunctionType)
    known = isinstance(value, (type, types.FunctionType)) and not getattr(value, "__closure__", None)
    return named(value) if builtin or (known and of_library(value)) else None


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value, by their names; raises where it cannot be taken apart."""
    if isinstance(value, (Mapping, list, tuple)) and not of_library(type(value)):
        yield from [("state", getattr(value, "__dict__", None)), ("class", type(value))]
    if isinstance(value, Enum):
        yield from [("class", type(value)), ("name", value.name)]
    elif isinstance(value, Mapping):
        yield "factory", getattr(value, "default_factory", None)
        parts = enumerate(value.items())
        yield from ((key if isinstance(key, str) else f"key {n}", part) for n, (key, part) in parts)
        yield from ((f"key the key {n}", key) for n, key in enumerate(value) if not isinstance(key, str))
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif type(value) is np.ndarray:
        yield "values", value.tolist()
    elif isinstance(value, Tensor):
        yield "dense", value.detach().to_dense()
        yield from [("hooks", _hooks_of(value)), ("attributes", vars(value))]
    elif isinstance(value, functools.partial):
        yield from [("function", value.func), ("arguments", value.args), ("keywords", value.keywords)]
    elif isinstance(value, types.MethodType):
        yield from [("function", value.__func__), ("self", value.__self__)]
    elif isinstance(value, (staticmethod, classmethod)):
        yield "function", value.__func__
    elif isinstance(value, property):
        yield "functions", (value.fget, value.fset)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, type):
        yield "class", type(value)
        for base in (base for base in value.__mro__ if not of_library(base)):
            # sorted, as in a class that another process has been sent
            own = {name: part for name, part in sorted(vars(base).items()) if name not in OF_CLASSES}
            yield base.__qualname__, _Attributes({n: p for n, p in own.items() if not n.startswith("_abc_")})
            yield "bases", [of for of in base.__bases__ if of_library(of)]
    elif isinstance(value, torch.Generator):
        yield "state", value.get_state()
    elif isinstance(value, random.Random):
        yield "state", value.getstate()
    elif isinstance(value, np.random.Generator):
        yield "state", value.bit_generator.state
    elif isinstance(value, torch.nn.Module):
        # first: it names what is shared
        yield from [("state", _state(value)), ("class", type(value))]
    else:  # what pickle would make it of; what that is told of can be an object of C
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):  # a name, as of what `functools.lru_cache` makes of a function
            reduced = reduced, (), getattr(value, "__dict__", None)
        made, arguments, state, *items = (*reduced, None, None)[:5]
        yield "state", _Attributes(state) if type(state) is dict else state
        plain = getattr(made, "__name__", None) == "__newobj__" and len(arguments) == 1
        yield from [("class", type(value))] if plain else [("made", [made, arguments])]
        yield "items", [[*each] for each in items[:2] if each is not None]


def _hooks_of(value: Tensor) -> list[Any]:
    """The hooks of a tensor's gradient."""
    kinds = (value._backward_hooks, getattr(value, "_post_accumulate_grad_hooks", None))
    return [hook for kind in kinds for hook in (kind or {}).values()]


def _state(value: torch.nn.Module) -> dict[str, Any]:
    """The attributes; hooks are numbered in the order of the process."""
    hooks = {name: part for name, part in vars(value).items() if "_hooks" in name and type(part) is OrderedDict}
    places = {key: place for place, key in enumerate(sorted({key for part in hooks.values() for key in part}))}
    numbered = {n: {places[key]: hook for key, hook in part.items()} for n, part in hooks.items()}
    return _Attributes(vars(value) | numbered)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Code, defaults, and what a function encloses and takes from its file and from other files of the user's."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            yield name, cell.cell_contents
    if of_library(function):
        yield "name", named(function)
        return
    yield "defaults", [function.__defaults__, function.__kwdefaults__]
    yield "attributes", _Attributes(vars(function))
    # the source may be that of several functions, of the one that is wrapped, or newer than what runs
    codes, names, taken = [code], dict[str, None](), dict[str, None]()
    for number, each in enumerate(codes):  # also those of functions inside
        names |= dict.fromkeys(each.co_names)  # attributes too
        taken |= {step.argval: None for step in dis.get_instructions(each) if step.opname in TAKING}
        codes += [part for part in each.co_consts if isinstance(part, types.CodeType)]
        loaded = {step.arg for step in dis.get_instructions(each) if step.opcode in dis.hasconst}
        of_doc = {0} - loaded  # where a docstring is
        constants = [p for n, p in enumerate(each.co_consts) if n not in of_doc and not isinstance(p, types.CodeType)]
        about = repr((each.co_names, each.co_varnames, each.co_flags))
        yield f"code {number}", [each.co_code, getattr(each, "co_exceptiontable", b""), about, constants]
    scopes = [("", function.__globals__)]
    imported = [module for each in codes for module in _imported(each, function.__globals__.get("__package__"))]
    scopes += [(f"{module.__name__}.", vars(module)) for module in dict.fromkeys(imported)]
    for prefix, scope in scopes:
        for name in names if prefix else taken:
            if name not in scope:
                continue
            part = scope[name]
            yield prefix + name, part
            of_user = isinstance(part, types.ModuleType) and not _installed(part.__name__.partition(".")[0])
            if of_user and all(vars(part) is not known for _, known in scopes):
                scopes.append((f"{part.__name__}.", vars(part)))
    for module in dict.fromkeys(module for each in codes for module in _handed_on(each, function.__globals__)):
        of_code = {name: part for name, part in vars(module).items() if isinstance(part, (type, types.FunctionType))}
        yield f"all of {module.__name__}", [of_code, _content(getattr(module, "__file__", None) or "")]


def _imported(code: types.CodeType, package: str | None) -> Iterator[types.ModuleType]:
    """The modules of the user's that are imported where a function is called."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for level, step in ((steps[n - 2].argval, step) for n, step in enumerate(steps) if step.opname == "IMPORT_NAME"):
        if level or not _installed(step.argval.partition(".")[0]):
            with suppress(Exception):  # as of one that is not there, which no training needs
                yield importlib.import_module("." * level + step.argval, package)


def _handed_on(code: types.CodeType, scope: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    """The user's modules of which a function may take anything: by `getattr`, or imported by a text."""
    steps = pairwise(step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG")
    whole = [step.argval for step, then in steps if then.opname not in ("LOAD_ATTR", "LOAD_METHOD")]
    found = [scope.get(name) for name in whole if isinstance(name, str)]
    if not {"import_module", "__import__"}.isdisjoint(code.co_names):
        for text in (text for text in code.co_consts if isinstance(text, str)):
            with suppress(Exception):  # as of a text that names no module
                found.append(importlib.import_module(text))
    for module in found:
        if isinstance(module, types.ModuleType) and not _installed(module.__name__.partition(".")[0]):
            yield module


def named(value: Any) -> str:
    """The name of what an installed package has, with a digest of its code unless that has a version of note."""
    package = str(value.__module__).partition(".")[0]
    return f"{value.__module__}.{value.__qualname__}{code_of(package)}"


@functools.cache
def code_of(package: str) -> str:
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None or package in LIBRARIES or package in sys.stdlib_module_names:
        return ""
    path = Path(file)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return f" {digest(*map(_content, map(str, files)))}"


def of_library(value: Any) -> bool:
    """Whether a class or function is installed, so that its name tells what it is, and no file of the user's."""
    return _installed(str(value.__module__ or "builtins").partition(".")[0])


@functools.cache
def _installed(package: str) -> bool:
    if package in ("__main__", "__mp_main__"):  # a script of the user's, whatever file another process has for it
        return False
    if package in LIBRARIES or package in sys.stdlib_module_names:
        return True
    module = sys.modules.get(package)
    found = importlib.util.find_spec(package) if module is None else None  # of what is imported later
    file = getattr(module, "__file__", None) if found is None else found.origin
    return file is not None and INSTALLED.search(file) is not None


def user_files() -> dict[str, str]:
    """Digests of the files of the user's own code that are imported here."""
    modules = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    paths = {path for name, path in modules.items() if path and not _installed(name.partition(".")[0])}
    return {path: found for path in sorted(paths) if (found := _content(path))}


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # as inside an archive
        return ""


def of_split(data: pl.LightningDataModule, loader: str, *, alike: bool = False) -> str:
    """Some of the examples that the loaders of a split give, read under the same random state; empty without the split.

    They are drawn at random; of a stream they are those of the first batches. A loader's are left out if they must be
    ``alike`` in a second reading, as those of a stream must, and are not.
    """
    read: list[str] = []
    for each in loaders_of(getattr(data, loader)() if is_overridden(loader, data) else ()):
        twice = alike or isinstance(getattr(each, "dataset", None), IterableDataset)
        found = {_of_loader(each) for _ in range(1 + twice)}
        read += found if len(found) == 1 else ()
    return " ".join(filter(None, read))


def loaders_of(loaders: Any) -> list[Any]:
    """The loaders of a hook's collection of them, as a list, a dict or a ``CombinedLoader``."""
    return tree_leaves(getattr(loaders, "iterables", loaders))


def _of_loader(loader: Any) -> str:
    dataset: Any = getattr(loader, "dataset", None)
    stream = isinstance(dataset, IterableDataset)
    if not stream and not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        return ""
    with isolate_rng(include_cuda=False):
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        if stream:
            return digest(*(Fingerprint(each, "batch").digest for each in islice(loader, BATCHES)))
        batches = getattr(loader, "batch_sampler", None)
        batches = [getattr(loader, "sampler", range(len(dataset)))] if batches is None else batches
        # a sampler may leave examples out, or have no end
        numbers = [*islice(chain.from_iterable(batches), len(dataset))]
        numbers.sort(key=lambda number: (len(str(number)), str(number)))  # as numbers, whatever they are
        chosen = random.Random(0).sample(numbers, min(EXAMPLES, len(numbers)))
        return digest(str(len(numbers)), *(Fingerprint(dataset[number], "example").digest for number in chosen))
