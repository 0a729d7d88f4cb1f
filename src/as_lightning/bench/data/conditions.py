"""Conditions of a training split: few samples of each class, a long tail, wrong labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_choice, check_count, check_number

NoiseKind = Literal["uniform", "pairs"]


def check_least(least: int, **values: int | None) -> None:
    """Raise an error that names an argument that is no integer of at least ``least``, nor None."""
    for name, value in values.items():
        if value is not None:
            check_count(name, value, least=least)


@dataclass
class Conditions:
    """The conditions of ``conf/data/base.yaml``; a ``draw_seed`` of None is that of the run."""

    label_noise: float = 0.0
    label_noise_kind: NoiseKind = "uniform"
    shots: int | None = None
    imbalance: float | None = None
    draw_seed: int | None = None

    def __post_init__(self) -> None:
        share = "a share in [0, 1]"
        check_number("label_noise", self.label_noise, lambda rate: 0 <= rate <= 1, share)
        check_choice("label_noise_kind", self.label_noise_kind, get_args(NoiseKind))
        check_least(0, draw_seed=self.draw_seed)
        check_least(1, shots=self.shots)
        if self.imbalance is not None:
            expected = "a number of at least 1, largest to smallest class, without shots"
            alone = self.shots is None
            check_number("imbalance", self.imbalance, lambda ratio: alone and ratio >= 1, expected)

    @property
    def asked(self) -> str:
        """Return the conditions that are set, as a message names them."""
        names = ("label_noise", "shots", "imbalance")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names if getattr(self, name))

    def generator(self) -> torch.Generator:
        """Return a generator of `draw_seed`, or of the run's seed."""
        seed = torch.initial_seed() if self.draw_seed is None else self.draw_seed
        return torch.Generator().manual_seed(seed)

    def drawn(self, targets: Tensor, counts: Tensor, names: Sequence[str]) -> list[int]:
        """Return the rows that ``shots`` or ``imbalance`` leave, in ascending order."""
        generator, sizes = self.generator(), counts
        if self.shots is not None:
            sizes = torch.full_like(counts, self.shots)
        if self.imbalance is not None:
            sizes = long_tail_sizes(counts, self.imbalance, generator)
        if (counts < sizes.clamp(min=1)).any() or not sizes.all():
            smallest = f"class {names[int(counts.argmin())]!r} has {int(counts.min())}"
            raise ValueError(
                f"{self.asked} needs more training samples of a class than there are ({smallest}, "
                f"the largest has {int(counts.max())}): set it to less"
            )
        order = torch.randperm(len(targets), generator=generator)
        rows = [order[targets[order] == label][:size] for label, size in enumerate(sizes)]
        return sorted(torch.cat(rows).tolist())

    def noisy(self, targets: Tensor, num_classes: int) -> Tensor:
        """Return the class indices ``(N)``, of which ``round(label_noise * N)`` are another class.

        With ``"uniform"`` each other class has the same probability; with ``"pairs"`` class ``c``
        becomes class ``c + 1``, and the last one the first.

        Source: symmetric noise as in Patrini et al., CVPR 2017 (arXiv 1609.03683), without the
        diagonal; pair flipping as in Han et al., NeurIPS 2018 (arXiv 1804.06872).
        """
        generator, wrong = self.generator(), round(self.label_noise * len(targets))
        chosen = torch.randperm(len(targets), generator=generator)[:wrong]
        shift = torch.ones_like(chosen)
        if self.label_noise_kind == "uniform":
            shift = torch.randint(1, num_classes, (wrong,), generator=generator)
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
