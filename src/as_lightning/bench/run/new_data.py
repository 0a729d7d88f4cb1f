"""What a finished run predicts for data that it has not seen."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils.data import DataLoader

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset
from as_lightning.bench.data.class_folder import ClassFolder, LabelledFile
from as_lightning.bench.data.files import files_below, read_text
from as_lightning.bench.data.tables import read_table
from as_lightning.bench.data.text.data_module import TextDataModule
from as_lightning.bench.data.text.tagging import Conll
from as_lightning.bench.run.predictions import predicted_classes, predictions_table
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.settings import SettingError
from as_lightning.bench.run.train import made_module, read_data, run_inputs


def new_predictions(
    config: DictConfig, result: Result, checkpoint: Path, path: Path, text_column: str | None
) -> pd.DataFrame:
    """Return a table of the examples at a path, with the classes that a run predicts.

    The run's own data are read again, for its classes and tokens; a `SettingError` refuses those
    that have changed, and data that are neither texts, sentences, images nor clips.
    """
    for name, value in run_inputs(config).items():
        if result.inputs.get(name, value) != value:
            raise SettingError(f"the run was made with another {name}: give those of the run")
    data = read_data(config)
    module = made_module(config, data)
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise SettingError(f"{checkpoint} holds code beside weights: train the run again") from None
    module.load_state_dict(content["state_dict"])
    module.eval()
    names, dataset = new_examples(
        data, path, text_column or config.data.get("text_column") or "text"
    )
    multilabel = data.task == "multilabel"
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    for inputs, target in DataLoader(dataset, data.batch_size, collate_fn=data.collate):
        with torch.inference_mode():
            predicted = predicted_classes(module(inputs), multilabel)
        rows += zip(target.numpy(), predicted.numpy(), strict=True)
    table = predictions_table(rows, multilabel, names, data.class_names)
    return table.drop(columns=["target", "targets"], errors="ignore")


def new_examples(
    data: BenchmarkDataModule, path: Path, text_column: str
) -> tuple[list[str], LabelledDataset]:
    """Return the names of new examples, and the examples as a run reads its own, of class 0."""
    names: list[str] = []
    inputs: list[Tensor] = []
    if isinstance(data, ClassFolder):
        for name in files_below(path, data.suffixes):
            names.append(name)
            decoded, _ = data.decoded(LabelledFile(None, name, (path / name).read_bytes))
            inputs.append(decoded)
        return names, _dataset(inputs, data.splits["test"].transform)
    if isinstance(data, Conll):
        tags: list[Tensor] = []
        for name in filter(None, map(str.strip, read_text(path, data.columns[2]).split("\n"))):
            words = tuple(name.split(" "))
            sentence, classes = data._encode(words, torch.zeros(len(words)))
            names.append(name)
            inputs.append(sentence)
            tags.append(classes)
        return names, LabelledDataset(inputs, tags)
    if not isinstance(data, TextDataModule) or data.tokenizer is None:
        raise SettingError(f"{type(data).__name__} reads no new data from a path")
    # the run's own columns, encoding and quotation marks; new texts need no labels
    of_run = getattr(data, "table", {}) | {"label_separator": None}
    table = of_run | {"text_column": text_column, "label_column": text_column}
    names = [row.text for row in read_table(path, **table)]
    for encoding in data.tokenizer.encode_batch(names):
        inputs.append(torch.tensor(encoding.ids or [1]))
    return names, _dataset(inputs)


def _dataset(inputs: list[Tensor], transform: Any = None) -> LabelledDataset:
    if not inputs:
        raise SettingError("data.path holds no examples")
    return LabelledDataset(inputs, torch.zeros(len(inputs), dtype=torch.int64), transform)
