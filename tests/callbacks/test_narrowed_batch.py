"""A batch is narrowed in its own structure, and what cannot be is refused."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from as_lightning.callbacks.narrowed_batch import narrow_batch

KEPT = torch.tensor([0, 2])
X, Y = torch.arange(12.0).reshape(3, 4), torch.tensor([5, 6, 7])
Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Record:
    x: Tensor
    name: str
    length: int = field(init=False, default=3)


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, (Tensor, np.ndarray)):
        return left.shape == right.shape and bool((left == right).all())
    if isinstance(left, (dict, UserDict)):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Record):
        return all(same(getattr(left, part.name), getattr(right, part.name)) for part in fields(left))
    return left == right


@pytest.mark.parametrize(
    ("batch", "narrowed"),
    [
        (X, X[KEPT]),
        ((X, Y), (X[KEPT], Y[KEPT])),
        ([X, {"y": Y, "deep": (Y, [X])}], [X[KEPT], {"y": Y[KEPT], "deep": (Y[KEPT], [X[KEPT]])}]),
        (Pair(X, Y), Pair(X[KEPT], Y[KEPT])),
        (OrderedDict(b=X, a=Y), OrderedDict(b=X[KEPT], a=Y[KEPT])),
        (UserDict(x=X), UserDict(x=X[KEPT])),
        (Record(X, "all"), Record(X[KEPT], "all")),
        ((X, 0.5, "text", None, torch.tensor(3)), (X[KEPT], 0.5, "text", None, torch.tensor(3))),
        ((X, ["a", "b", "c"]), (X[KEPT], ["a", "c"])),
        ((X, ("a", "b")), (X[KEPT], ("a", "b"))),  # not one value per sample
        ((X, [X[:1], X[:2], X[:1]]), (X[KEPT], [X[:1], X[:1]])),  # boxes of several sizes
        ([{"boxes": X[:1]}, {"boxes": X[:2]}, {"boxes": X[:1]}], [{"boxes": X[:1]}, {"boxes": X[:1]}]),
        ((X, [X, X, X]), (X[KEPT], [X[KEPT], X[KEPT], X[KEPT]])),  # parts that can be narrowed are parts
        ((X, np.arange(3)), (X[KEPT], np.array([0, 2]))),
        ((X, []), (X[KEPT], [])),
    ],
)
def test_each_structure_is_narrowed_part_by_part(batch: Any, narrowed: Any) -> None:
    assert same(narrow_batch(batch, KEPT, 3), narrowed)


def test_the_batch_itself_stays_as_it_is() -> None:
    batch = {"x": X, "record": Record(X, "all"), "names": ["a", "b", "c"]}
    narrow_batch(batch, KEPT, 3)
    assert batch["x"] is X
    assert batch["record"].x is X  # type: ignore[union-attr]
    assert batch["names"] == ["a", "b", "c"]


class Graph:
    """What no rule covers."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((X, torch.ones(4, 2)), r"batch\[1\] is a Tensor of shape \(4, 2\)"),
        ({"x": X, "deep": {"y": torch.ones(2)}}, r"batch\['deep'\]\['y'\] is a Tensor of shape \(2,\)"),
        (Pair(X, Graph(3)), r"batch.y is a Graph"),
        ((X, pack_sequence([X[0], X[1, :2], X[2, :1]])), r"batch\[1\] is a PackedSequence"),
        ((X, np.arange(4)), r"batch\[1\] is a ndarray of shape \(4,\)"),
        ((X, torch.ones(3, 3).to_sparse_csr()), r"batch\[1\] is a Tensor of shape \(3, 3\)"),
    ],
)
def test_a_part_that_no_rule_covers_is_refused_by_its_place(batch: Any, message: str) -> None:
    with pytest.raises(MisconfigurationException, match=rf"{message}: define `def narrow_batch\(self, part, kept\)`"):
        narrow_batch(batch, KEPT, 3)


def test_the_hook_narrows_what_no_rule_covers_and_nothing_else() -> None:
    def hook(part: Any, kept: Tensor) -> Any:
        assert isinstance(part, Graph)
        return Graph(len(kept))

    x, (graph, name) = narrow_batch((X, [Graph(3), "text"]), KEPT, 3, hook)
    assert same(x, X[KEPT])
    assert (graph.nodes, name) == (2, "text")
