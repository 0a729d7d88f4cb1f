"""Draw what masking does: where in the space of inputs a sample has no gradient, and its curves.

    python docs/masking_picture.py        # writes docs/images/masking.svg, in half a minute

Left: three classes of points in the plane, and a linear classifier trained on them. A sample of the
class that a point is assigned to has zero loss and zero gradient where that class leads every
other one by more than ``delta``. Right: ``masking/sample_ratio`` as `MaskingMonitor` logs it for
TensorBoard, of a small network on scikit-learn's digits.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import lightning.pytorch as pl
import matplotlib
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import ASSoftmaxLoss, MaskingMonitor

matplotlib.use("svg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).with_name("images") / "masking.svg"
MARGINS = (0.1, 0.5, 0.9)
BLUES = ("#c6dbef", "#6baed6", "#2171b5")
CENTRES = torch.tensor([[0.0, 1.5], [-1.3, -0.8], [1.3, -0.8]])


class Classifier(pl.LightningModule):
    """A network of one hidden layer, or of none, with AS-Softmax."""

    def __init__(self, inputs: int, classes: int, hidden: int, delta: float) -> None:
        super().__init__()
        self.rate = 0.001 if hidden else 0.01
        self.net: torch.nn.Module = torch.nn.Linear(inputs, classes)
        if hidden:
            layers = torch.nn.Linear(inputs, hidden), torch.nn.ReLU()
            self.net = torch.nn.Sequential(*layers, torch.nn.Linear(hidden, classes))
        self.criterion = ASSoftmaxLoss(delta=delta)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        inputs, target = batch
        return self.criterion(self.net(inputs), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def trained(
    inputs: torch.Tensor, target: torch.Tensor, hidden: int, delta: float, epochs: int
) -> tuple[Classifier, list[float]]:
    """Return a trained classifier and the masking ratio of each epoch."""
    pl.seed_everything(0)
    module = Classifier(inputs.shape[1], int(target.max()) + 1, hidden, delta)
    monitor = MaskingMonitor()
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[monitor],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(inputs, target), batch_size=32, shuffle=True))
    ratios = [epoch.masked_samples / epoch.samples for epoch in monitor.history]
    return module, ratios


def draw_inputs(axes: plt.Axes) -> None:
    """Draw the regions without a gradient, the larger margin inside the smaller."""
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(180) % 3
    points = CENTRES[target] + 0.75 * torch.randn(180, 2, generator=generator)
    module, _ = trained(points, target, hidden=0, delta=1.0, epochs=30)
    grid = np.linspace(-3.4, 3.4, 160)
    plane = torch.tensor(np.stack(np.meshgrid(grid, grid), -1), dtype=torch.float32)
    with torch.no_grad():
        best = module.net(plane).softmax(-1).sort(-1).values
    lead = (best[..., -1] - best[..., -2]).numpy()
    axes.contourf(grid, grid, lead, levels=[*MARGINS, 1.0], colors=BLUES)
    for label, marker in enumerate("os^"):
        rows = points[target == label]
        axes.scatter(rows[:, 0], rows[:, 1], s=9, marker=marker, color="black", linewidths=0)
    axes.set(title="Inputs whose sample has zero gradient", xticks=[], yticks=[], aspect="equal")
    axes.set(xlim=grid[[0, -1]], ylim=grid[[0, -1]])
    patches = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in BLUES]
    names = [f"delta = {margin}" for margin in MARGINS]
    axes.legend(patches, names, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)


def draw_curves(axes: plt.Axes) -> None:
    """Draw the share of masked samples by epoch, for each margin."""
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    target = torch.tensor(digits.target)
    for margin, colour in zip(MARGINS, BLUES, strict=True):
        _, ratios = trained(inputs, target, hidden=64, delta=margin, epochs=12)
        axes.plot(range(1, len(ratios) + 1), ratios, color=colour, linewidth=2.5)
    axes.set(
        title="masking/sample_ratio of MaskingMonitor",
        xlabel="epoch",
        ylim=(0, 1),
        xlim=(1, 12),
    )
    axes.set_xticks(range(2, 13, 2))
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Write the picture."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    plt.rcParams["svg.hashsalt"] = "as-lightning"
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
    draw_inputs(left)
    draw_curves(right)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
