"""What the search loses: test scores of the settings that it chooses against the best of a dense
grid, on the digits.

python results/statistics/regret.py --choosing 4 --judging 24    # 40 minutes on one core
python results/statistics/regret.py --choosing 2 --judging 3 --searches 1 --output /tmp

It writes regret.json and regret.md beside this file.

Some seeds choose the best point of the grid, others score it and the chosen settings, so that the
best is not the luckiest. All methods contain softmax: where its best point is better than that of
their own grid, it is the reference. Finished runs are kept in --runs, and the same command goes on
where it was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir

from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.runner import quiet_training
from as_lightning.bench.run.train import train
from as_lightning.comparison.engine import execution
from as_lightning.comparison.methods import knobs, method_config
from as_lightning.comparison.next_runs import Outcome, Replay, next_runs
from as_lightning.comparison.plan import ComparisonPlan, Run, default_settings
from as_lightning.comparison.search import learning_rates

KNOBS: dict[str, dict[str, list[float]]] = {
    "softmax": {},
    "as_softmax": {"delta": [0.05, 0.1, 0.2, 0.4, 0.7, 1.0]},
    "label_smoothing": {"smoothing": [0.0, 0.05, 0.1, 0.2, 0.4]},
}
DEFAULT_RATE, EPOCHS = 3e-3, 12  # of conf/experiment/digits.yaml
RATES = [DEFAULT_RATE * 2**step for step in range(7)]


def trained(folder: Path, method: str, settings: Mapping[str, Any], seed: int) -> Result:
    """The run of a method with these settings; the seed also splits the data, as in a
    comparison.
    """
    chosen = {
        ("optimizer.lr" if name == "lr" else f"method.{name}"): value
        for name, value in settings.items()
    }
    name = ",".join(f"{key}={value}" for key, value in chosen.items())
    overrides = [
        "experiment=digits",
        f"method={method}",
        f"seed={seed}",
        f"++data.split_seed={seed}",
        "logger=none",
    ]
    overrides += [f"{key}={value}" for key, value in chosen.items()]
    overrides += [
        "trainer.enable_progress_bar=false",
        f"output_dir='{folder / method / name / str(seed)}'",
    ]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = compose("train", overrides=overrides)
    return train(config)


def chosen_settings(folder: Path, number: int) -> dict[str, Mapping[str, Any]]:
    """What the search number so-and-so chooses for each method, by tuning seeds of its own."""
    seeds: dict[str, Any] = {"seeds": 1, "tuning_seeds": [1000 + 2 * number, 1001 + 2 * number]}
    rates = learning_rates(DEFAULT_RATE, default_settings()["search"]["lr_factor"])
    spaces = {method: {"lr": rates, **knobs(method_config(method), ())} for method in KNOBS}

    plan = ComparisonPlan(list(KNOBS), "softmax", EPOCHS, half_epochs=False, **seeds)
    plan = plan.with_spaces(spaces, name="digits", score="accuracy")
    finished: dict[Run, Outcome] = {}

    def run_one(run: Run) -> Result:
        return replace(trained(folder, run.candidate, run.settings, run.seed), **run.about(EPOCHS))

    while runs := next_runs(plan, finished):
        finished |= dict(execution(run_one)(runs))
    return dict(Replay(plan, finished, {}).record.settings)


def scores(
    folder: Path, method: str, settings: Mapping[str, Any], seeds: Sequence[int]
) -> np.ndarray:
    """The test scores in points."""
    return np.array(
        [100 * trained(folder, method, settings, seed).metrics["accuracy"] for seed in seeds]
    )


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--choosing", type=int, default=8)
    parser.add_argument("--judging", type=int, default=40)
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--runs", type=Path, default=Path("regret_runs"))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    choosing, judging = range(asked.choosing), range(asked.choosing, asked.choosing + asked.judging)
    rows: list[dict[str, Any]] = []
    references: dict[str, np.ndarray] = {}
    with quiet_training():
        searches = [chosen_settings(asked.runs, number) for number in range(asked.searches)]
        for method, knobs in KNOBS.items():
            axes = {"lr": RATES, **knobs}
            grid = [
                dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())
            ]
            best = max(
                grid, key=lambda settings: scores(asked.runs, method, settings, choosing).mean()
            )
            reached = scores(asked.runs, method, best, judging)
            references[method] = max(reached, references.get("softmax", reached), key=np.mean)
            lost = np.array(
                [
                    references[method] - scores(asked.runs, method, found[method], judging)
                    for found in searches
                ]
            )
            error = lost.mean(0).std(ddof=1) / np.sqrt(len(judging))
            row = {"method": method, "grid": len(grid), "best": best, "score": reached.mean()}
            row |= {"reference": references[method].mean(), "regret": lost.mean()}
            rows.append(
                row | {"error": error, "chosen": [dict(found[method]) for found in searches]}
            )
    trials = default_settings()["trials"]
    lines = [
        f"Of {asked.choosing} seeds that choose the best point of a grid, {asked.judging} that judge, and "
        f"{asked.searches} searches of {trials} trials, which begin at a learning rate of {DEFAULT_RATE:g}. "
        f"`python results/statistics/regret.py --choosing {asked.choosing} --judging {asked.judging}`",
        "",
        "| method | points of the grid | the best | its score | reference | regret, points |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        point = ", ".join(f"{name} {value:g}" for name, value in row["best"].items())
        numbers = f"{row['score']:.2f} | {row['reference']:.2f} | {row['regret']:+.2f} ± {row['error']:.2f}"
        lines.append(f"| {row['method']} | {row['grid']} | {point} | {numbers} |")
    (asked.output / "regret.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (asked.output / "regret.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
