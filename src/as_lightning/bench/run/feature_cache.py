"""Outputs of a frozen encoder, computed once for each sample and kept in memory or by joblib."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset, say
from as_lightning.bench.encoders.frozen import FrozenEncoder

CHUNK = 64  # samples of one size that the encoder takes at once


def cache_features(
    datamodule: BenchmarkDataModule, encoder: torch.nn.Module, data_dir: Path
) -> None:
    """Replace the inputs of all splits by the outputs of an encoder that can be kept.

    With ``feature_cache="file"`` they are kept in ``data_dir/frozen`` by `joblib.Memory`, under the
    digests of the frozen weights with their settings and of the samples of all splits.
    """
    if not isinstance(encoder, FrozenEncoder) or not encoder.can_be_kept:
        return
    if encoder.feature_cache == "off":
        return
    if datamodule.random_inputs:
        say(
            "the training inputs are augmented at random, so the frozen layers run in every "
            "epoch: switch that off (for images data.crop_padding=0 data.horizontal_flip=false) to "
            "run them once"
        )
        return
    place = data_dir / "frozen" if encoder.feature_cache == "file" else None
    memory = joblib.Memory(place, mmap_mode="c", verbose=0)
    computed = memory.cache(features_of, ignore=["encoder", "samples"])
    samples: ConcatDataset[Any] = ConcatDataset(datamodule.splits.values())
    keys = [joblib.hash(samples[index][0].numpy()) for index in range(len(samples))]
    order = np.argsort(keys)  # the same one, however the samples are dealt out
    outputs = computed(
        encoder, Subset(samples, order.tolist()), encoder_digest(encoder), sorted(keys)
    )
    values: Any = torch.from_numpy(outputs)
    rows = iter(np.argsort(order).tolist())
    for split, dataset in datamodule.splits.items():
        own: Any = Subset(values, list(islice(rows, len(dataset.targets))))
        datamodule.splits[split] = LabelledDataset(own, dataset.targets)
    encoder.inputs_are_features = True


def encoder_digest(encoder: FrozenEncoder) -> str:
    """Return a digest of what decides the outputs: weights, settings, and the version of torch."""
    weights = {}
    for name, weight in encoder.network.state_dict().items():
        # nothing reads the pooler, whose weights are random where a checkpoint has none
        if not name.startswith("pooler."):
            weights[name] = weight.cpu().numpy()
    return joblib.hash([torch.__version__, encoder.settings(), weights])


def features_of(
    encoder: FrozenEncoder, samples: Subset[Any], encoder_key: str, sample_keys: list[str]
) -> np.ndarray:
    """Return the features ``(samples, d)``; the two keys are what they are kept under."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    before = next(encoder.parameters()).device
    encoder.to(device)
    inputs = [samples[index][0] for index in range(len(samples))]
    by_shape = defaultdict(list)
    for index, values in enumerate(inputs):
        by_shape[values.shape].append(index)
    outputs: list[Tensor] = [torch.empty(0)] * len(inputs)
    for indices in by_shape.values():  # of one shape, so that no padding takes part
        for start in range(0, len(indices), CHUNK):
            chunk = indices[start : start + CHUNK]
            batch = torch.stack([inputs[index] for index in chunk]).to(device)
            for index, values in zip(chunk, encoder(batch), strict=True):
                outputs[index] = values.float().cpu()
    encoder.to(before)
    size = outputs[0].numel() * 4 * len(outputs) / 2**20
    say(f"the outputs of the frozen layers are computed, some {size:,.0f} MiB")
    return torch.stack(outputs).numpy()
