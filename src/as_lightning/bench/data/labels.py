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
) -> tuple[list[str], dict[str, Tensor]]:
    """Return the class names, by default those of train, and each split's targets: ``(N)`` indices,
    or for ``several`` labels ``(N, C)`` of 0 and 1.

    A ValueError names labels that are no class.
    """
    found = {}
    for split, rows in labels.items():
        found[split] = set().union(*rows) if several else set(rows)
    names = list(class_names) or sorted(found["train"])
    index = {name: number for number, name in enumerate(names)}
    targets = {}
    for split, rows in labels.items():
        unknown = ", ".join(sorted(found[split] - index.keys()))
        if unknown:
            raise ValueError(
                f"the {split} split has labels that are no class: {unknown} (the classes are the "
                "labels of train, or with data.classes the numbers from 0)"
            )
        if several:
            values = MultiLabelBinarizer(classes=names).fit_transform(rows)
        else:
            values = [index[name] for name in rows]
        targets[split] = torch.as_tensor(values, dtype=torch.int64)
    return names, targets


def note_alike(class_names: Sequence[str]) -> None:
    alike = defaultdict(list)
    for name in class_names:
        alike[" ".join(name.translate(INVISIBLE).split()).casefold()].append(name)
    same = []
    for names in alike.values():
        if len(names) > 1:
            same += [", ".join(map(ascii, names))] * len(names)
    what = "class names differ in case, spaces or invisible characters alone"
    note(what, same, len(class_names))


def note_small(counts: Tensor, class_names: Sequence[str]) -> None:
    """Note classes with less than a tenth of the largest one's samples."""
    small = (counts < SMALL * counts.max()).nonzero().flatten().tolist()
    what = "classes have less than a tenth of the largest one (data.score=balanced_accuracy)"
    note(what, [class_names[number] for number in small], len(class_names))
