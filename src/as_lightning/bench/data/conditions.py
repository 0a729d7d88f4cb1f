"""Conditions of a training split: few samples of each class, a long tail, wrong labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from as_lightning.bench.data.reading import say
from as_lightning.functional.argument_checks import check_choice, check_count, check_number

NoiseKind = Literal["uniform", "pairs"]


@dataclass
class Conditions:
    """The conditions of ``conf/data/base.yaml``; a seed of None is ``torch.initial_seed()``."""

    label_noise: float
    label_noise_kind: NoiseKind
    label_noise_seed: int | None
    shots: int | None
    imbalance: float | None
    draw_seed: int | None

    def __post_init__(self) -> None:
        share = "a share in [0, 1]"
        check_number("label_noise", self.label_noise, lambda rate: 0 <= rate <= 1, share)
        check_choice("label_noise_kind", self.label_noise_kind, get_args(NoiseKind))
        if self.shots is not None:
            check_count("shots", self.shots, least=1)
        if self.imbalance is not None:
            expected = "a number of at least 1, largest to smallest class"
            check_number("imbalance", self.imbalance, lambda ratio: ratio >= 1, expected)
            if self.shots is not None:
                raise ValueError(
                    f"shots={self.shots} and imbalance={self.imbalance} both set how many samples "
                    "a class has: give one"
                )

    @property
    def asked(self) -> str:
        """Return the conditions that are set, as a message names them."""
        names = ("label_noise", "shots", "imbalance")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names if getattr(self, name))

    def drawn(self, targets: Tensor, counts: Tensor, names: Sequence[str]) -> list[int] | None:
        """Return the rows that ``shots`` or ``imbalance`` leave; None for all of them."""
        generator = seeded(self.draw_seed)
        fewest = int(counts.min())
        smallest = f"class {names[int(counts.argmin())]!r} has {fewest} training samples"
        if self.shots is not None:
            if fewest < self.shots:
                raise ValueError(f"data.shots is {self.shots}, but {smallest}: set it to less")
            return drawn_rows(targets, [self.shots] * len(counts), generator)
        if self.imbalance is None:
            return None
        sizes = long_tail_sizes(counts, self.imbalance, generator).tolist()
        if not min(sizes):
            raise ValueError(
                f"data.imbalance={self.imbalance} leaves a class without a training sample "
                f"({smallest}, the largest has {int(counts.max())}): set it to less"
            )
        counted = f"{max(sizes)} to {min(sizes)} training samples"
        say(f"data.imbalance={self.imbalance}: a class has {counted}")
        return drawn_rows(targets, sizes, generator)

    def noisy(self, targets: Tensor, num_classes: int) -> Tensor:
        """Return the labels with the wrong ones among them."""
        draw = seeded(self.label_noise_seed)
        return corrupt_labels(targets, num_classes, self.label_noise, draw, self.label_noise_kind)


def seeded(seed: int | None) -> torch.Generator:
    """Return a generator of a seed, or of the run's."""
    return torch.Generator().manual_seed(torch.initial_seed() if seed is None else seed)


def corrupt_labels(
    targets: Tensor,
    num_classes: int,
    rate: float,
    generator: torch.Generator,
    kind: NoiseKind = "uniform",
) -> Tensor:
    """Give ``round(rate * N)`` of the class indices ``(N)`` another class.

    With ``"uniform"`` each other class has the same probability; with ``"pairs"`` class ``c``
    becomes class ``c + 1``, and the last one the first.

    Source: symmetric noise as in Patrini et al., CVPR 2017 (arXiv 1609.03683), without the
    diagonal; pair flipping as in Han et al., NeurIPS 2018 (arXiv 1804.06872).
    """
    chosen = torch.randperm(len(targets), generator=generator)[: round(rate * len(targets))]
    shift = torch.ones_like(chosen)
    if kind == "uniform":
        shift = torch.randint(1, num_classes, (len(chosen),), generator=generator)
    noisy = targets.clone()
    noisy[chosen] = (targets[chosen] + shift) % num_classes
    return noisy


def long_tail_sizes(counts: Tensor, imbalance: float, generator: torch.Generator) -> Tensor:
    r"""Return how many of its ``counts`` ``(C)`` samples a class keeps in an exponential profile.

    $$
    n_c = \min\big(N_c, \lfloor N_{\max} \, r^{-k_c / (C - 1)} \rfloor\big)
    $$

    with the imbalance $r$, the class's own number $N_c$, that of the largest class $N_{\max}$, and
    the place $k_c$ of the class in an order that ``generator`` draws.

    Source: Cao et al., NeurIPS 2019 (arXiv 1906.07413), section 4.
    """
    places = torch.randperm(len(counts), generator=generator).double() / (len(counts) - 1)
    profile = counts.max() * torch.tensor(imbalance, dtype=torch.float64) ** -places
    # Rounding may leave the power below a whole number.
    return counts.minimum((profile + 1e-9).long())


def drawn_rows(targets: Tensor, sizes: Sequence[int], generator: torch.Generator) -> list[int]:
    """Return ``sizes[c]`` rows of each class ``c``, drawn by ``generator``, in ascending order."""
    order = torch.randperm(len(targets), generator=generator)
    class_rows = [order[targets[order] == label][:size] for label, size in enumerate(sizes)]
    return sorted(torch.cat(class_rows).tolist())


def thirds_by_count(counts: Tensor) -> dict[str, list[int]]:
    """Return the classes in thirds by ``counts``: ``many``, ``medium`` (not of two), ``few``."""
    order = counts.argsort(descending=True, stable=True).tolist()
    first, second = round(len(order) / 3), round(2 * len(order) / 3)
    thirds = {"many": order[:first], "medium": order[first:second], "few": order[second:]}
    return {name: sorted(classes) for name, classes in thirds.items() if classes}
