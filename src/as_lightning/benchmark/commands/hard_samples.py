"""The command ``as-lightning-hard-samples``: the samples of a finished run that were never masked."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.run.hard_samples import HardSamples, found_wrong_labels
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.settings import class_arguments


def data_of_run(result: Result, data_dir: str) -> BenchmarkDataModule:
    """The data that a run was trained on, set up anew from its configuration."""
    config = OmegaConf.create({"data": _with_folder(result.config["data"], data_dir)})
    data = instantiate(class_arguments(config.data, "data"))
    data.prepare_data()
    data.setup("fit")
    return data


def _with_folder(value: Any, data_dir: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_folder(part, data_dir) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_folder(part, data_dir) for part in value]
    return value.replace("<data_dir>", data_dir) if isinstance(value, str) else value


def listing(hard: HardSamples, data: BenchmarkDataModule, limit: int) -> list[str]:
    """The lines that the command prints.

    Raises:
        ValueError: if the data are not those of the run.
    """
    train = data.splits["train"]
    if len(train) != hard.samples:
        raise ValueError(
            f"the run was trained on {hard.samples} samples, but its data now have {len(train)}: give the data that it "
            "was trained on with --data-dir"
        )
    lines = [f"{len(hard.numbers):,} of {hard.samples:,} training samples were never masked; hardest first:", ""]
    noise = data.true_targets
    header = ("number", "lead", "label", "predicted", *(() if noise is None else ("true label",)), "sample")
    lines.append("\t".join(header))
    for number, lead, predicted in zip(
        hard.numbers[:limit].tolist(), hard.lead.tolist(), hard.predicted.tolist(), strict=False
    ):
        classes = [int(train.targets[number]), predicted, *([] if noise is None else [int(noise[number])])]
        names = [data.class_names[index] for index in classes]
        lines.append("\t".join([str(number), f"{lead:.3f}", *names, " ".join(data.describe(number).split())]))
    if len(hard.numbers) > limit:
        lines.append(f"and {len(hard.numbers) - limit:,} more: --limit 0 lists all")
    if noise is not None:
        found = found_wrong_labels(hard.numbers, train.targets, noise)  # type: ignore[arg-type]
        lines += [
            "",
            f"wrong labels: {found.wrong:,}, of which {found.found:,} were never masked: "
            f"precision {found.precision:.1%}, recall {found.recall:.1%}",
        ]
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script ``as-lightning-hard-samples``."""
    # what each means is in as_lightning.benchmark.commands.help, which answers --help
    parser = argparse.ArgumentParser(prog="as-lightning-hard-samples", add_help=False)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--limit", type=int, default=50, metavar="COUNT")
    parser.add_argument("--data-dir", default=os.environ.get("AS_LIGHTNING_DATA", "data"), metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        hard = HardSamples.read(options.run)
        data = data_of_run(Result.read(options.run / RESULT_FILE), options.data_dir)
        lines = listing(hard, data, options.limit if options.limit > 0 else len(hard.numbers))
    except (ValueError, OSError) as error:
        parser.exit(1, f"as-lightning-hard-samples: {error}\n")
    print("\n".join(lines))


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import hard_samples as command

    command()
