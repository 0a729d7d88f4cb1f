"""What ``skip_backward`` saves in a training, epoch by epoch: runs of the app with it and without, in turns.

    python speed/skip_backward.py clinc150 sst5 --output results/performance/skip_backward

Each round trains AS-Softmax and its rivals with one seed, in an order that alternates. An epoch's ratio is the median
over the rounds of its training time (without validation) over that of AS-Softmax's same epoch. ``AS_LIGHTNING_DATA``
names the folder of the data that are not embedded.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from interleaved import command, environment, machine_line, write_report

from as_lightning.benchmark.run.config_dir import config_dir
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.train import train

BASELINE = "as_softmax"
METHODS = (BASELINE, "as_skip_backward", "as_skip_both")
AIM = 1.03  # the ratio that no epoch of as_skip_backward exceeds


def run(experiment: str, method: str, seed: int, overrides: Sequence[str]) -> Result:
    """One training of the app."""
    with tempfile.TemporaryDirectory() as directory, initialize_config_dir(str(config_dir()), version_base="1.3"):
        settings = [f"experiment={experiment}", f"method={method}", f"seed={seed}", f"output_dir={directory}"]
        quiet = ["logger=none", "trainer.enable_progress_bar=false"]
        return train(compose("train", [*settings, *quiet, *overrides]))


def measure(experiment: str, rounds: int, overrides: Sequence[str]) -> dict[str, Any]:
    """The runs of one experiment, and its epochs' ratios."""
    runs: dict[str, list[Result]] = {method: [] for method in METHODS}
    for seed in range(rounds):
        for method in METHODS if seed % 2 else reversed(METHODS):
            runs[method].append(run(experiment, method, seed, overrides))
            print(experiment, seed, method, runs[method][-1].epoch_seconds, flush=True)
    return {
        "score": runs[BASELINE][0].score,
        "methods": {method: summary(runs[method], runs[BASELINE]) for method in METHODS},
    }


def summary(results: Sequence[Result], baselines: Sequence[Result]) -> dict[str, Any]:
    """What the runs of a method come to beside those of the baseline with the same seeds."""
    scores = [100 * result.metrics[result.score] for result in results]
    pairs = list(zip(results, baselines, strict=True))
    found: dict[str, Any] = {
        "score": statistics.mean(scores),
        "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "whole": spread([sum(own.epoch_seconds) / sum(other.epoch_seconds) for own, other in pairs]),
        "epochs": [],
    }
    for index in range(len(baselines[0].epoch_seconds)):
        epoch: dict[str, Any] = {
            "time": spread([own.epoch_seconds[index] / other.epoch_seconds[index] for own, other in pairs])
        }
        if all(own.skipping for own in results):
            rows = [own.skipping[index] for own in results]
            epoch["backward"] = statistics.median(row["backward"] / row["samples"] for row in rows)
        found["epochs"].append(epoch)
    return found


def spread(ratios: Sequence[float]) -> dict[str, float]:
    return {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}


def in_words(time: dict[str, float]) -> str:
    return f"{time['ratio']:.2f} [{time['lowest']:.2f}, {time['highest']:.2f}]"


def table(report: dict[str, Any]) -> str:
    lines = [
        "# Training time with `skip_backward`",
        "",
        f"Beside `{BASELINE}` with the same margin and seed. Training time of an epoch, validation excluded:",
        f"median of {report['rounds']} paired ratios, lowest and highest in brackets. *Backward* is the share of the",
        "samples that took a backward pass.",
        "",
    ]
    for experiment, found in report["experiments"].items():
        rivals = {method: own for method, own in found["methods"].items() if method != BASELINE}
        lines += [
            f"## {experiment}",
            "",
            "| epoch | " + " | ".join(f"{method}, time | backward" for method in rivals) + " |",
            "| --- |" + " --- | --- |" * len(rivals),
        ]
        for index in range(len(found["methods"][BASELINE]["epochs"])):
            cells = []
            for own in rivals.values():
                epoch = own["epochs"][index]
                cells += [in_words(epoch["time"]), f"{epoch['backward']:.0%}"]
            lines.append(f"| {index + 1} | " + " | ".join(cells) + " |")
        lines.append("| **all** | " + " | ".join(f"**{in_words(own['whole'])}** | " for own in rivals.values()) + "|")
        lines += ["", "| method | test " + found["score"].replace("_", " ") + " |", "| --- | --- |"]
        for method, own in found["methods"].items():
            deviation = "" if own["deviation"] is None else f" ± {own['deviation']:.2f}"
            lines.append(f"| {method} | {own['score']:.2f}{deviation} |")
        lines += ["", *aim_lines([epoch["time"]["ratio"] for epoch in rivals["as_skip_backward"]["epochs"]]), ""]
    return "\n".join([*lines, machine_line(report), ""])


def aim_lines(ratios: Sequence[float]) -> list[str]:
    """The aim for an epoch, and the epochs that miss it."""
    missed = [f"{number} ({ratio:.2f})" for number, ratio in enumerate(ratios, 1) if ratio > AIM]
    which = f"It is missed in epoch {', '.join(missed)}." if missed else "No epoch misses it."
    return [
        f"The slowest epoch of `as_skip_backward` takes {max(ratios):.2f} times the time of `{BASELINE}`.",
        f"The aim is at most {AIM} in each epoch. {which}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("experiments", nargs="+", help="of conf/experiment: one class per sample, no BatchNorm")
    parser.add_argument("--rounds", type=int, default=5, help="seeds")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of all runs")
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    found = {name: measure(name, arguments.rounds, arguments.set) for name in arguments.experiments}
    report = {
        "command": command(),
        "environment": environment(torch.device("cpu")),
        "rounds": arguments.rounds,
        "experiments": found,
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
