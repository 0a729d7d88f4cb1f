"""Score against learning rate when the last two layers of a pretrained encoder are trained, method
by method.

    python results/learning_rate/experiment.py run --encoder FOLDER [--minutes 60] [--only clinc150_20]
    python results/learning_rate/experiment.py show

``run`` goes through the plan in its order and writes a line for each run; runs that are there are
not run again. ``show`` writes the figure and the table of the runs that there are.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

HERE = Path(__file__).parent
RATES = (1e-4, 5e-4, 2e-5, 2e-4, 1e-3, 5e-5)  # in the order in which they are run
SGD_RATES = (0.03, 0.01, 0.003, 0.1)
PAPER_RATE = 2e-5
METHODS = {
    "softmax": ("method=softmax",),
    "as_softmax 0.1": ("method=as_softmax", "method.delta=0.1"),
    "as_softmax 0.3": ("method=as_softmax", "method.delta=0.3"),
    "as_softmax 0.5": ("method=as_softmax", "method.delta=0.5"),
    "as_speed 0.1": ("method=as_speed", "method.delta=0.1", "method.lr_scale=none"),
}
PAIR = ("softmax", "as_softmax 0.1")  # the two that are run first, and of which the sentences are
LIVE, LIVE_RATE = "live rows 0.5", 5e-4
LIVE_DATA = (("clinc150_20", 6, 4), ("clinc150", 2, 1))  # with the epochs of softmax, and fewer
LIVE_SETTINGS = (
    "method=softmax",
    "method._target_=live_rows.LiveRowsClassifier",
    "method.knobs=[delta]",
    "method.arguments=[delta]",
    "method.delta=0.5",
)
SHOTS = ("experiment=clinc150", "data.out_of_scope=false", "data.shots=20")
DATA = {
    "clinc150_20": SHOTS,
    "clinc150_20_sgd": (*SHOTS, "optimizer._target_=torch.optim.SGD", "+optimizer.momentum=0.9"),
    "sst5": ("experiment=sst5",),
    "wnut17": ("experiment=wnut17",),
    "goemotions": ("experiment=goemotions", "data.first=10000"),
    "clinc150": ("experiment=clinc150", "data.out_of_scope=false"),
}
TITLES = {
    "clinc150_20": "CLINC150, 20 examples a class (150 intents)",
    "clinc150_20_sgd": "CLINC150, 20 examples a class, SGD with momentum 0.9",
    "sst5": "SST-5",
    "wnut17": "WNUT-17 (tokens)",
    "goemotions": "GoEmotions, first 10,000 examples (several labels)",
    "clinc150": "CLINC150, whole (150 intents)",
}
EPOCHS = {2: "#edae49", 6: "#00798c"}  # with their colours in the figure on the first page
COLOURS = {
    "softmax": "#444444",
    "as_softmax 0.1": "#d1495b",
    "as_softmax 0.3": "#edae49",
    "as_softmax 0.5": "#00798c",
    "as_speed 0.1": "#7b4ea3",
}


class Job(NamedTuple):
    """One run: a data set, its epochs, a method, a learning rate and a seed."""

    data: str
    epochs: int
    method: str
    rate: float
    seed: int


def rates_of(data: str) -> tuple[float, ...]:
    """The learning rates of a data set's optimizer."""
    return SGD_RATES if data.endswith("_sgd") else RATES


def plan() -> Iterator[Job]:
    """All runs, in an order in which what is there at any time is a result."""
    others = list(METHODS)[2:]
    live = [
        (data, of, methods, range(5), [LIVE_RATE])
        for data, epochs, fewer in LIVE_DATA
        for of, methods in ((epochs, ["softmax", LIVE]), (fewer, ["softmax"]))
    ]
    blocks = [
        *live,
        ("clinc150_20", 6, PAIR, range(3), RATES),
        ("clinc150_20_sgd", 6, PAIR, range(5), SGD_RATES),
        ("clinc150_20", 6, others, [0], RATES),
        ("sst5", 2, PAIR, range(3), RATES),
        *(
            (data, 2, PAIR, range(3), RATES)
            for data in ("wnut17", "goemotions", "clinc150", "clinc150_20")
        ),
        ("clinc150_20", 6, others, range(1, 3), RATES),
        *(
            (data, 2, others, range(3), RATES)
            for data in ("clinc150_20", "wnut17", "clinc150", "sst5", "goemotions")
        ),
        *(
            (data, 6, PAIR, range(3), RATES)
            for data in ("sst5", "wnut17", "clinc150", "goemotions")
        ),
        *((data, epochs, METHODS, range(5), rates_of(data)) for data in DATA for epochs in EPOCHS),
    ]
    planned = dict.fromkeys(
        Job(data, epochs, method, rate, seed)
        for data, epochs, methods, seeds, rates in blocks
        for seed in seeds
        for rate in rates
        for method in methods
    )
    return iter(planned)


def overrides(job: Job, encoder: Path, folder: str) -> list[str]:
    """The app's settings of a run that writes into a folder."""
    return [
        *DATA[job.data],
        *(
            word.replace("method=", "method=multilabel_") if job.data == "goemotions" else word
            for word in (METHODS | {LIVE: LIVE_SETTINGS})[job.method]
        ),
        "model=auto_model",
        f"model.name={encoder}",
        "model.trainable_layers=2",
        f"model.pooling={'none' if job.data == 'wnut17' else 'mean'}",
        "data.batch_size=32",
        f"optimizer.lr={job.rate}",
        f"seed={job.seed}",
        f"trainer.max_epochs={job.epochs}",
        f"+trainer.check_val_every_n_epoch={job.epochs}",
        "+trainer.enable_checkpointing=false",
        "~callbacks.model_checkpoint",
        "~callbacks.temperature_scaling",
        "trainer.precision=bf16-mixed",
        "trainer.enable_progress_bar=false",
        "+callbacks.share._target_=gradient_share.GradientShare",
        "logger=none",
        f"output_dir={folder}",
    ]


def run(encoder: Path, runs: Path, minutes: float, only: str | None) -> None:
    """Run what the plan has and ``runs`` lacks, until the time is over."""
    from gradient_share import GradientShare
    from hydra import compose, initialize_config_dir

    from as_lightning.bench.packages import config_dir
    from as_lightning.bench.run.train import train

    until = time.monotonic() + 60 * minutes
    done = {Job(*(line[name] for name in Job._fields)) for line in read(runs)}
    for job in plan():
        if time.monotonic() > until:
            break
        if job in done or only not in (None, job.data):
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            initialize_config_dir(str(config_dir()), version_base="1.3"),
        ):
            result = train(compose("train", overrides=overrides(job, encoder, folder)))
        line = {
            **job._asdict(),
            "test": result.metrics[result.score],
            "validation": result.evaluations[-1]["score"],
            "validation_loss": result.evaluations[-1]["loss"],
            "masked_by_epoch": [
                round(epoch["masked_samples"] / max(epoch["samples"], 1), 4)
                for epoch in result.masking
            ],
            "right_share_of_gradient": GradientShare.shares,
            "right_share_of_rows": GradientShare.right,
            "cpu_seconds": GradientShare.cpu_seconds,
            "steps": result.optimizer_steps,
            "seconds": round(result.train_seconds, 1),
        }
        with runs.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read(runs: Path) -> list[dict]:
    """The runs that there are."""
    return (
        [json.loads(line) for line in runs.read_text(encoding="utf-8").splitlines()]
        if runs.exists()
        else []
    )


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95% interval (Student's t); nan for one value."""
    half = math.nan
    if len(values) > 1:
        half = float(
            stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
        )
    return float(np.mean(values)), half


def grouped(lines: list[dict]) -> dict[tuple[str, int], dict[str, dict[float, dict[int, dict]]]]:
    """Runs by data set and epochs, method, rate and seed."""
    groups: dict = {}
    for line in lines:
        methods = groups.setdefault((line["data"], line["epochs"]), {})
        methods.setdefault(line["method"], {}).setdefault(line["rate"], {})[line["seed"]] = line
    return groups


def complete(lines: list[dict]) -> dict[tuple[str, int], dict[str, dict[float, dict[int, dict]]]]:
    """The data sets and epochs in which softmax and AS-Softmax have three seeds at each rate, in
    the order of the page.

    A further method is there if it has them too. All methods are shown at a rate with the same
    seeds.
    """
    found = {}
    for key, runs in grouped(lines).items():
        rates = sorted(rates_of(key[0]))
        enough = [
            name
            for name in METHODS
            if all(len(runs.get(name, {}).get(rate, {})) >= 3 for rate in rates)
        ]
        if enough[:2] == list(PAIR):
            seeds = {
                rate: sorted(set.intersection(*(set(runs[name][rate]) for name in enough)))
                for rate in rates
            }
            found[key] = {
                name: {
                    rate: {seed: runs[name][rate][seed] for seed in seeds[rate]} for rate in rates
                }
                for name in enough
            }
    return dict(sorted(found.items(), key=lambda item: (list(DATA).index(item[0][0]), -item[0][1])))


def show(lines: list[dict], folder: Path) -> None:
    """Write the figure and the table."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "learning rate"
    from matplotlib import pyplot

    groups = complete(lines)
    height = math.ceil(len(groups) / 2)
    figure, axes = pyplot.subplots(height, 2, figsize=(11, 4.2 * height), squeeze=False)
    for axis in axes.flat[len(groups) :]:
        axis.axis("off")
    for axis, key in zip(axes.flat, groups, strict=False):
        _draw(axis, groups[key])
        axis.set_title(f"{TITLES[key[0]]}, {key[1]} epochs", fontsize=10)
    figure.tight_layout()
    figure.savefig(folder / "learning_rate.svg", metadata={"Date": None})
    figure, axes = pyplot.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    with_adam = [data for data in DATA if PAPER_RATE in rates_of(data)]
    for axis, data in zip(axes.flat, with_adam, strict=False):
        _draw_difference(
            axis, {epochs: groups[data, epochs] for epochs in EPOCHS if (data, epochs) in groups}
        )
        axis.set_title(
            TITLES[data].partition(" (")[0].replace(", first 10,000 examples", ""), fontsize=12
        )
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(
        *axes.flat[0].get_legend_handles_labels(), loc="center", fontsize=12, frameon=False
    )
    figure.savefig(folder / "in_short.svg", metadata={"Date": None})
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 3.8), sharey=True)
    for axis, rate in zip(axes, (1e-4, 5e-4), strict=True):
        for method, runs in next(iter(groups.values())).items():
            share = 100 * np.array(_share(runs[rate]))
            axis.plot(
                (np.arange(len(share)) + 0.5) / len(share),
                share,
                color=COLOURS[method],
                label=method,
            )
        axis.set(
            xlabel="share of the steps",
            ylabel="from right rows, %",
            title=f"learning rate {rate:g}",
        )
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "gradient_share.svg", metadata={"Date": None})
    (folder / "README.md").write_text(page(lines), encoding="utf-8")


def _draw_difference(
    axis: Any, settings: dict[int, dict[str, dict[float, dict[int, dict]]]]
) -> None:
    """The difference of AS-Softmax to softmax against learning rate, with its 95% interval, by
    number of epochs.
    """
    axis.axhline(0, color="#444444", linewidth=1)
    axis.axvline(
        PAPER_RATE, color="#999999", linestyle=":", linewidth=1.5, label="the paper's rate"
    )
    for epochs, methods in settings.items():
        base, own = (methods[name] for name in PAIR)
        rates = np.array(list(base))
        means, halves, _ = np.array([paired(own[rate], base[rate]) for rate in rates]).T
        about = {"color": EPOCHS[epochs], "label": f"{epochs} epochs"}
        beside = rates * (
            0.97 if epochs == min(EPOCHS) else 1.03
        )  # one interval would hide the other
        axis.errorbar(beside, means, halves, marker="o", markersize=4, capsize=3, **about)
        best = list(rates).index(best_rate(base))
        style = {
            "s": 170,
            "color": EPOCHS[epochs],
            "zorder": 3,
            "label": f"softmax's best rate, {epochs} epochs",
        }
        axis.scatter(beside[best], means[best], marker="*", **style)
    axis.set(xscale="log", xlabel="learning rate", ylabel="difference to softmax, points")
    low, high = axis.get_ylim()
    axis.set_ylim(max(low, -10), min(high, 16))
    axis.set_xticks(rates, [f"{rate:.0e}".replace("e-0", "e-") for rate in rates])
    axis.minorticks_off()


def _draw(axis: Any, methods: dict[str, dict[float, dict[int, dict]]]) -> None:
    """Score against learning rate, a line a method with the band of its 95% interval; the paper's
    rate is marked.
    """
    rates = list(methods["softmax"])
    for method, runs in methods.items():
        found = [interval([100 * run["test"] for run in runs[rate].values()]) for rate in rates]
        means, halves = (np.array(part) for part in zip(*found, strict=True))
        axis.plot(rates, means, marker="o", markersize=4, color=COLOURS[method], label=method)
        low, high = np.clip([means - halves, means + halves], 0, 100)
        axis.fill_between(rates, low, high, color=COLOURS[method], alpha=0.12, linewidth=0)
    if PAPER_RATE in rates:
        axis.axvline(PAPER_RATE, color="#999999", linestyle=":", linewidth=1)
        axis.text(
            PAPER_RATE * 1.05,
            0.02,
            "the paper's rate",
            transform=axis.get_xaxis_transform(),
            fontsize=8,
        )
    axis.set(xscale="log", xlabel="learning rate", ylabel="test score, %")
    axis.set_xticks(rates, [_short(rate) for rate in rates])
    axis.tick_params(labelsize=8)
    axis.minorticks_off()
    axis.legend(fontsize=8)


def _short(rate: float) -> str:
    return f"{rate:g}" if rate >= 1e-3 else f"{rate:.0e}".replace("e-0", "e-")


def _share(runs: dict[int, dict]) -> list[float]:
    """The share of the gradient from right rows, by part of the steps, over the seeds."""
    found = [
        run["right_share_of_gradient"]
        for run in runs.values()
        if any(run["right_share_of_gradient"])
    ]
    return np.mean(found, axis=0).tolist() if found else []


def _why(groups: dict) -> str:
    """What part of the gradient comes from rows that are right."""
    (data, epochs), methods = next(iter(groups.items()))
    text = (HERE / "cause.md").read_text(encoding="utf-8").rstrip() + f"\n\n{cause(groups)}\n"
    text += f"\n{TITLES[data]}, {epochs} epochs, right rows' share of the gradient's norm in percent:\n\n"
    text += (
        "| method | learning rate | first quarter of the steps | second | third | last |\n| --- |"
    )
    text += " ---: |" * 5 + "\n"
    for method in PAIR:
        for rate, runs in methods[method].items():
            quarters = 100 * np.array(_share(runs)).reshape(4, -1).mean(1)
            text += (
                f"| {method} | {rate:g} | "
                + " | ".join(f"{part:.0f}" for part in quarters)
                + " |\n"
            )
    return text


def cause(groups: dict) -> str:
    """Whether AS-Softmax leads where the share of right rows falls, and whether it leads with SGD:
    in words.
    """
    found = {}
    for (data, epochs), methods in groups.items():
        pairs = []
        for own, base in zip(
            methods["as_softmax 0.1"].values(), methods["softmax"].values(), strict=True
        ):
            if (share := _share(own)) and (of_base := _share(base)):
                pairs.append((paired(own, base)[0], np.mean(of_base) - np.mean(share)))
        if len(pairs) == len(RATES):
            found[f"{TITLES[data]}, {epochs} epochs"] = float(
                stats.spearmanr(*zip(*pairs, strict=True)).statistic
            )
    listed = "; ".join(f"{value:+.2f} ({name})" for name, value in found.items())
    base, own = (groups.get(("clinc150_20_sgd", 6), {}).get(method, {}) for method in PAIR)
    leads = ahead(own, base)
    at = ", ".join(f"{rate:g} ({lead:+.2f})" for rate, lead in leads.items()) or "no rate"
    positive = sum(value > 0 for value in found.values())
    against = (2 * positive <= len(found)) + bool(leads)
    return (
        "If this were the cause, AS-Softmax would lead by more at rates where the share of right "
        "rows falls further "
        "below softmax's, and the rank correlation (Spearman) of both over the six rates would be "
        "positive. It is "
        f"{listed}: positive on {positive} of {len(found)}; alone each decides little. With SGD, "
        "on one data set, "
        f"AS-Softmax is ahead at {at}. "
        f"{('Both fit', 'One of the two speaks against', 'Both speak against')[against]} this "
        "cause."
    )


def paired(first: dict[int, dict], second: dict[int, dict]) -> tuple[float, float, int]:
    """The mean difference in points over the seeds that both have, half its interval, and the
    number of seeds.
    """
    seeds = sorted(first.keys() & second.keys())
    return (
        *interval([100 * (first[seed]["test"] - second[seed]["test"]) for seed in seeds]),
        len(seeds),
    )


def best_rate(rates: dict[float, dict[int, dict]]) -> float:
    """The rate of the best mean validation score, over the seeds that all rates have."""
    common = set.intersection(*(set(seeds) for seeds in rates.values()))

    def score(rate: float) -> float:
        return float(np.mean([rates[rate][seed]["validation"] for seed in common]))

    return max(rates, key=score)


def _number(mean: float, half: float, sign: str = "") -> str:
    return f"{mean:{sign}.2f}" + ("" if math.isnan(half) else f" ± {half:.2f}")


def page(lines: list[dict]) -> str:
    """The whole page of the runs."""
    groups = complete(lines)
    return _scores(groups) + _live_rows(grouped(lines)) + _why(groups)


def _live_rows(groups: dict) -> str:
    """Training the live rows alone against softmax of as many epochs, of fewer, and of the same
    time.
    """
    text = (HERE / "live_rows.md").read_text(encoding="utf-8")
    text += "| data | live rows | softmax | its time | fewer epochs | its time | difference in that time | seeds |\n"
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    for data, epochs, fewer in LIVE_DATA:
        arms = [(epochs, LIVE), (epochs, "softmax"), (fewer, "softmax")]
        runs = [
            groups.get((data, of), {}).get(method, {}).get(LIVE_RATE, {}) for of, method in arms
        ]
        timed = [{seed for seed, run in own.items() if run.get("cpu_seconds")} for own in runs]
        if not (seeds := sorted(set.intersection(*timed))):
            continue
        live, many, few = (np.array([100 * own[seed]["test"] for seed in seeds]) for own in runs)
        of_live, of_many, of_few = (
            np.mean([own[seed]["cpu_seconds"] for seed in seeds]) for own in runs
        )
        same_time = few + (many - few) * (of_live - of_few) / (of_many - of_few)
        cells = [f"{TITLES[data]}, {epochs} epochs", f"{live.mean():.2f}", f"{many.mean():.2f}"]
        cells += [
            f"{of_many / of_live:.2f}",
            f"{few.mean():.2f} ({fewer})",
            f"{of_few / of_live:.2f}",
        ]
        text += f"| {' | '.join(cells)} | {_number(*interval((live - same_time).tolist()), '+')} | {len(seeds)} |\n"
    return text


def _scores(groups: dict) -> str:
    text = (
        (HERE / "introduction.md").read_text(encoding="utf-8").rstrip() + "\n\n" + overview(groups)
    )
    for (data, epochs), methods in groups.items():
        base = methods["softmax"]
        text += f"\n## {TITLES[data]}, {epochs} epochs\n\nTest score in percent, mean over the seeds:\n\n"
        text += (
            "| learning rate | "
            + " | ".join(methods)
            + " | seeds |\n|"
            + " --- |" * (len(methods) + 2)
            + "\n"
        )
        for rate in base:
            cells = [
                _number(*interval([100 * run["test"] for run in own[rate].values()]))
                for own in methods.values()
            ]
            text += f"| {rate:g} | " + " | ".join(cells) + f" | {len(base[rate])} |\n"
        text += "\nDifference to softmax in points, paired by seed:\n\n"
        text += (
            "| method | "
            + " | ".join(f"{rate:g}" for rate in base)
            + " | each at its best rate |\n|"
        )
        text += " --- |" * (len(base) + 2) + "\n"
        for method, own in list(methods.items())[1:]:
            cells = [_number(*paired(own[rate], base[rate])[:2], sign="+") for rate in base]
            at, of = best_rate(own), best_rate(base)
            best = _number(*paired(own[at], base[of])[:2], sign="+")
            text += f"| {method} | " + " | ".join(cells) + f" | {best} ({at:g} against {of:g}) |\n"
    return text


def in_short(groups: dict) -> str:
    """At how many rates AS-Softmax is ahead of softmax and behind it, by setting: a part of the
    first page.
    """
    pairs = [
        [methods[name] for name in PAIR]
        for methods in groups.values()
        if PAPER_RATE in methods["softmax"]
    ]
    leads, lags = ([ahead(*pair[::step]) for pair in pairs] for step in (-1, 1))
    below = all(
        max(found, default=0) < min(best_rate(own), best_rate(base))
        for found, (base, own) in zip(leads, pairs, strict=True)
    )
    best = [paired(own[best_rate(own)], base[best_rate(base)])[:2] for base, own in pairs]
    tests = sum(len(base) for base, _ in pairs)

    def said(*counts: int) -> str:
        return "ahead in {} and behind in {}".format(*(count or "none" for count in counts))

    return (
        f"With a margin of 0.1, at six learning rates in each of {len(pairs)} settings (a data set "
        "and a number of "
        f"epochs), AS-Softmax is ahead of softmax {sum(map(len, leads))} times"
        f"{', always below the best rate,' * below} and behind {sum(map(len, lags))} times; "
        "without any difference "
        f"{0.025 * tests:.1f} of each would be expected. At the paper's rate, "
        f"{_short(PAPER_RATE)}, it is "
        f"{said(*(sum(PAPER_RATE in found for found in of) for of in (leads, lags)))}. With each "
        "method at its best "
        f"rate it is {said(*(sum(sign * mean > half for mean, half in best) for sign in (1, -1)))}."
    )


def overview(groups: dict) -> str:
    """A line for each setting and method: at which rates it leads softmax, and what is left at the
    best of each.
    """
    text = (
        in_short(groups) + "\n\n| data | method | ahead at | behind at | each at its best rate |\n"
    )
    text += "|" + " --- |" * 5 + "\n"
    at_best = []
    for (data, epochs), methods in groups.items():
        base = methods["softmax"]
        for method, own in list(methods.items())[1:]:
            at_best.append(paired(own[best_rate(own)], base[best_rate(base)])[:2])
            cells = [f"{TITLES[data]}, {epochs} epochs", method]
            for first, second in ((own, base), (base, own)):
                found = [
                    f"{rate:g} ({_sum(own[rate], base[rate])})" for rate in ahead(first, second)
                ]
                cells.append(", ".join(found))
            text += f"| {' | '.join(cells)} | {_sum(own[best_rate(own)], base[best_rate(base)], True)} |\n"
    above, below = (sum(sign * mean > half for mean, half in at_best) for sign in (1, -1))
    largest = sum(
        best_rate(methods["softmax"]) == max(methods["softmax"]) for methods in groups.values()
    )
    return (
        f"{text}\nWith each method at its best rate, the interval is above 0 in {above} of "
        f"{len(at_best)} lines and "
        f"below 0 in {below}. Without any difference {0.025 * len(at_best):.1f} of each would be "
        "expected. In "
        f"{largest} of {len(groups)} settings softmax's best rate is the largest, so its best may "
        "lie beyond.\n"
    )


def _sum(own: dict[int, dict], base: dict[int, dict], half: bool = False) -> str:
    """Softmax's score and the difference to it in points, with half of its interval if asked."""
    mean, width, _ = paired(own, base)
    score = np.mean([100 * run["test"] for run in base.values()])
    return (
        f"{score:.2f} {'-' if mean < 0 else '+'} {_number(abs(mean), width if half else math.nan)}"
    )


def ahead(
    first: dict[float, dict[int, dict]], second: dict[float, dict[int, dict]]
) -> dict[float, float]:
    """The rates at which the interval of the difference lies above 0, and the mean differences
    there.
    """
    found = {
        rate: paired(first[rate], second[rate]) for rate in sorted(first.keys() & second.keys())
    }
    return {
        rate: mean for rate, (mean, half, _) in found.items() if mean - half > 0
    }  # not with a half of NaN


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["run", "show"])
    parser.add_argument(
        "--encoder", type=Path, help="a folder with model.safetensors and a tokenizer"
    )
    parser.add_argument("--runs", type=Path, default=HERE / "runs.jsonl")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--only", choices=list(DATA))
    arguments = parser.parse_args()
    if arguments.action == "show":
        show(read(arguments.runs), HERE)
    elif arguments.encoder is None:
        parser.error("run needs --encoder")
    else:
        run(arguments.encoder, arguments.runs, arguments.minutes, arguments.only)


if __name__ == "__main__":
    main()
