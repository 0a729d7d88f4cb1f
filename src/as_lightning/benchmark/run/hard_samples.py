"""The samples of a run that were never masked: the hard ones, and those with a wrong label."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.run.whole_file import whole_file
from as_lightning.functional.leads import target_leads

HARD_SAMPLES_FILE = "hard_samples.npz"


class HardSamples(NamedTuple):
    """The samples that were never masked, hardest first.

    Attributes:
        samples: the number of training samples ``N``.
        numbers: the numbers of the hard samples, ``int64``, shape ``(K,)``.
        lead: at the end of training the lead of their label over the strongest other class, in [-1, 1], ``float32``.
        predicted: the class with the largest logit then.
    """

    samples: int
    numbers: Tensor
    lead: Tensor
    predicted: Tensor

    def write(self, directory: str | Path) -> Path:
        """Write ``hard_samples.npz`` into ``directory``, twelve bytes for each hard sample, in one move."""
        path = Path(directory) / HARD_SAMPLES_FILE
        arrays = {"numbers": self.numbers.int(), "lead": self.lead.float(), "predicted": self.predicted.int()}
        content: dict[str, Any] = {name: array.numpy() for name, array in arrays.items()}
        with whole_file(path) as partial, partial.open("wb") as file:  # to a path savez would add its suffix
            np.savez(file, samples=self.samples, **content)
        return path

    @classmethod
    def read(cls, directory: str | Path) -> HardSamples:
        """Read what a run in ``directory`` has written.

        Raises:
            ValueError: if there is no such file, or it is damaged.
        """
        path = Path(directory) / HARD_SAMPLES_FILE
        if not path.exists():
            lacks = f"holds no {HARD_SAMPLES_FILE}" if Path(directory).is_dir() else "is no folder"
            raise ValueError(
                f"{directory} {lacks}. Give the folder of a finished run whose method skips masked samples, such as "
                "as_skip, or as_skip with method.max_sleep=0, which skips nothing. Each sample must have one class."
            )
        try:
            with np.load(path) as arrays:
                numbers, lead, predicted = (torch.from_numpy(arrays[name]) for name in ("numbers", "lead", "predicted"))
                return cls(int(arrays["samples"]), numbers.long(), lead, predicted.long())
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:  # NumPy advises to allow pickled objects
            raise ValueError(f"{path} is no file of hard samples: train the run again") from error


def hard_samples(
    trainer: pl.Trainer, module: pl.LightningModule, data: BenchmarkDataModule, never_masked: Tensor
) -> HardSamples:
    """How hard the samples are that were never masked, by the module at the end of training, in evaluation mode.

    Args:
        trainer: that has trained the module; gives the device and the precision.
        module: called as ``module(inputs)``, gives the logits, shape ``(n, C)``. It is left on the device and in the
            mode that it is in.
        data: of one class per sample, set up.
        never_masked: boolean, shape ``(N,)``.
    """
    train = data.splits["train"]
    numbers = never_masked.nonzero().squeeze(-1)
    plain = LabelledDataset(train.inputs, train.targets, data.splits["test"].transform)  # without augmentation
    lead, predicted = [torch.empty(0)], [torch.empty(0, dtype=torch.int64)]
    training, device, precision = module.training, module.device, trainer.precision_plugin
    module.eval().to(trainer.strategy.root_device)  # Lightning moves it to the CPU when training has ended
    with torch.no_grad():
        for batch in data.loader(Subset(plain, numbers.tolist())):
            inputs, target = trainer.strategy.batch_to_device(precision.convert_input(batch))
            with precision.forward_context():
                logits = module(inputs)
            lead.append(target_leads(logits, target).float().cpu())
            predicted.append(logits.argmax(-1).cpu())
    module.train(training).to(device)
    leads = torch.cat(lead)
    hardest = leads.argsort(stable=True)
    return HardSamples(len(train), numbers[hardest], leads[hardest], torch.cat(predicted)[hardest])


class FoundWrongLabels(NamedTuple):
    """How well a list of samples finds the wrong labels.

    Attributes:
        listed: how many samples are listed.
        wrong: how many labels are wrong.
        found: how many of the wrong ones are listed.
    """

    listed: int
    wrong: int
    found: int

    @property
    def precision(self) -> float:
        """The share of the listed samples whose label is wrong; 0 where none is listed."""
        return self.found / max(self.listed, 1)

    @property
    def recall(self) -> float:
        """The share of the wrong labels that are listed; 0 where none is wrong."""
        return self.found / max(self.wrong, 1)


def found_wrong_labels(numbers: Tensor, targets: Tensor, true_targets: Tensor) -> FoundWrongLabels:
    """How well the samples ``numbers`` are those whose target is not the true one.

    Example:
        >>> found = found_wrong_labels(torch.tensor([0, 3]), torch.tensor([1, 1, 2, 0]), torch.tensor([1, 0, 2, 1]))
        >>> found, found.precision, found.recall
        (FoundWrongLabels(listed=2, wrong=2, found=1), 0.5, 0.5)
    """
    wrong = targets != true_targets
    return FoundWrongLabels(len(numbers), int(wrong.sum()), int(wrong[numbers].sum()))
