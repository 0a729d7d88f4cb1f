"""Synthetic data of very many classes with a long tail, to measure what a wide output layer costs."""

from __future__ import annotations

from typing import Any

import torch

from as_lightning.benchmark.data.base import BenchmarkDataModule, LabelledDataset, check_least


class Extreme(BenchmarkDataModule):
    r"""Noisy copies of one random vector per class; the classes' frequencies follow Zipf's law. Synthetic.

    $$
    c \sim P(c) \propto (c + 1)^{-s}, \qquad x = v_c + \sigma \varepsilon, \qquad
    v_c, \varepsilon \sim \mathcal{N}(0, I_d)
    $$

    It says what training costs, not how well a method learns. Inputs are ``float32`` of shape ``(d,)``. ``classes`` is
    $C$, ``features`` $d$, ``exponent`` $s$, ``noise`` $\sigma$; ``split_seed`` seeds vectors and samples.
    """

    def __init__(
        self,
        classes: int = 100_000,
        features: int = 64,
        train_samples: int = 20_000,
        evaluation_samples: int = 2_000,
        exponent: float = 1.0,
        noise: float = 0.3,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        check_least(2, classes=classes)
        check_least(1, features=features, train_samples=train_samples, evaluation_samples=evaluation_samples)
        self.classes, self.features, self.exponent, self.noise = classes, features, exponent, noise
        self.sizes = {"train": train_samples, "validation": evaluation_samples, "test": evaluation_samples}

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_features": self.features}

    def load_splits(self) -> dict[str, LabelledDataset]:
        generator = torch.Generator().manual_seed(self.split_seed)
        self.class_names = [str(index) for index in range(self.classes)]
        vectors = torch.randn(self.classes, self.features, generator=generator)
        prior = torch.arange(1, self.classes + 1, dtype=torch.float64).pow(-self.exponent)

        def split(size: int) -> LabelledDataset:
            targets = torch.multinomial(prior, size, replacement=True, generator=generator)
            noise = torch.randn(size, self.features, generator=generator)
            return LabelledDataset(vectors[targets] + self.noise * noise, targets)

        return {name: split(size) for name, size in self.sizes.items()}
