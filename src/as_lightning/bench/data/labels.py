"""Class names and the targets that they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sklearn.preprocessing import MultiLabelBinarizer
from torch import Tensor

from as_lightning.bench.data.reading import note

SMALL = 0.1  # of the largest class: a smaller one is noted
INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"))


def targets_of(
    labels: Mapping[str, Sequence[Any]], class_names: Sequence[str], several: bool
) -> dict[str, Tensor]:
    """Return each split's targets: ``(N)`` indices, or for ``several`` labels ``(N, C)`` of 0 and
    1.

    A ValueError names labels that are no class.
    """
    index = {name: number for number, name in enumerate(class_names)}
    targets = {}
    for split, rows in labels.items():
        unknown = sorted(names_in(rows, several) - index.keys())
        if unknown:
            names = ", ".join(unknown)
            raise ValueError(f"the {split} split has classes that the train split lacks: {names}")
        if several:
            values = MultiLabelBinarizer(classes=class_names).fit_transform(rows)
        else:
            values = [index[name] for name in rows]
        targets[split] = torch.as_tensor(values, dtype=torch.int64)
    return targets


def names_in(rows: Sequence[Any], several: bool) -> set[str]:
    """Return the names of the rows' labels."""
    if several:
        return set().union(*rows)
    return set(rows)


def note_alike(class_names: Sequence[str]) -> None:
    """Note classes whose names look alike."""
    alike = defaultdict(list)
    for name in class_names:
        alike[" ".join(name.translate(INVISIBLE).split()).casefold()].append(name)
    groups = [names for names in alike.values() if len(names) > 1]
    if groups:
        what = "class names differ in case, spaces or invisible characters alone"
        example = ", ".join(map(ascii, groups[0]))
        note(what, sum(map(len, groups)), len(class_names), example)


def note_small(counts: Tensor, class_names: Sequence[str]) -> None:
    """Note classes with less than a tenth of the largest one's samples."""
    small = (counts < SMALL * counts.max()).nonzero().flatten().tolist()
    if small:
        what = "classes have less than a tenth of the largest one (data.score=balanced_accuracy)"
        note(what, len(small), len(class_names), class_names[small[0]])
