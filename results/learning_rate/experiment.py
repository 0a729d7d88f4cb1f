"""Score against learning rate when the last two layers of a pretrained encoder are trained, method by method.

    python results/learning_rate/experiment.py run --encoder FOLDER [--minutes 60] [--only clinc150_20]
    python results/learning_rate/experiment.py show

``run`` goes through the plan in its order and writes a line for each run; runs that are there are not run again.
``show`` writes the figure and the table of the runs that there are.
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
LIVE, LIVE_RATE = "live rows 0.5", 5e-4
LIVE_DATA = (("clinc150_20", 6, 4), ("clinc150", 2, 1))  # with the epochs of softmax, and fewer
LIVE_SETTINGS = ("method=softmax", "method._target_=live_rows.LiveRowsClassifier", "+method.delta=0.5")
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
# data and epochs of the figure on the first page
IN_SHORT = (("clinc150", 2), ("sst5", 2), ("wnut17", 2), ("goemotions", 2))
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


def plan() -> Iterator[Job]:
    """All runs, in an order in which what is there at any time is a result."""
    first, others = list(METHODS)[:2], list(METHODS)[2:]
    live = [
        (data, of, methods, range(5), [LIVE_RATE])
        for data, epochs, fewer in LIVE_DATA
        for of, methods in ((epochs, ["softmax", LIVE]), (fewer, ["softmax"]))
    ]
    blocks = [
        *live,
        ("clinc150_20", 6, first, range(3), RATES),
        ("clinc150_20_sgd", 6, first, range(5), SGD_RATES),
        ("clinc150_20", 6, others, [0], RATES),
        ("sst5", 2, first, range(3), RATES),
        *((data, 2, first, range(3), RATES) for data in ("wnut17", "goemotions", "clinc150", "clinc150_20")),
        ("clinc150_20", 6, others, range(1, 3), RATES),
        *((data, 2, others, range(3), RATES) for data in ("clinc150_20", "wnut17", "clinc150", "sst5", "goemotions")),
        *((data, 6, first, range(3), RATES) for data in ("sst5", "wnut17", "clinc150", "goemotions")),
        *(
            (data, epochs, [*first, *others], range(5), SGD_RATES if data.endswith("sgd") else RATES)
            for data in DATA
            for epochs in (2, 6)
        ),
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

    from as_lightning.benchmark.packages import config_dir
    from as_lightning.benchmark.run.train import train

    until = time.monotonic() + 60 * minutes
    done = {Job(*(line[name] for name in Job._fields)) for line in read(runs)}
    for job in plan():
        if time.monotonic() > until:
            break
        if job in done or only not in (None, job.data):
            continue
        with tempfile.TemporaryDirectory() as folder, initialize_config_dir(str(config_dir()), version_base="1.3"):
            result = train(compose("train", overrides=overrides(job, encoder, folder)))
        line = {
            **job._asdict(),
            "test": result.metrics[result.score],
            "validation": result.evaluations[-1]["score"],
            "validation_loss": result.evaluations[-1]["loss"],
            "masked_by_epoch": [
                round(epoch["masked_samples"] / max(epoch["samples"], 1), 4) for epoch in result.masking
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
    return [json.loads(line) for line in runs.read_text(encoding="utf-8").splitlines()] if runs.exists() else []


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95% interval (Student's t); nan for one value."""
    half = math.nan
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return float(np.mean(values)), half


def grouped(lines: list[dict]) -> dict[tuple[str, int], dict[str, dict[float, dict[int, dict]]]]:
    """Runs by data set and epochs, method, rate and seed."""
    groups: dict = {}
    for line in lines:
        methods = groups.setdefault((line["data"], line["epochs"]), {})
        methods.setdefault(line["method"], {}).setdefault(line["rate"], {})[line["seed"]] = line
    return groups


def of_the_same_seeds(groups: dict) -> dict:
    """The runs without those of softmax whose seed AS-Softmax lacks at that rate: they are there for the live rows."""
    for methods in groups.values():
        own, base = methods.get("as_softmax 0.1", {}), methods.get("softmax", {})
        for rate in own.keys() & base.keys():
            base[rate] = {seed: run for seed, run in base[rate].items() if seed in own[rate]}
    return groups


def show(lines: list[dict], folder: Path) -> None:
    """Write the figure and the table."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "learning rate"
    from matplotlib import pyplot

    groups = of_the_same_seeds(grouped(lines))
    order = _order(groups)
    figure, axes = pyplot.subplots(
        math.ceil(len(order) / 2), min(len(order), 2), figsize=(11, 4.2 * math.ceil(len(order) / 2)), squeeze=False
    )
    for axis in axes.flat[len(order) :]:
        axis.axis("off")
    for axis, key in zip(axes.flat, order, strict=False):
        _draw(axis, groups[key], [method for method in METHODS if method in groups[key]], 8)
        axis.set_title(f"{TITLES[key[0]]}, {key[1]} epochs", fontsize=10)
    figure.tight_layout()
    figure.savefig(folder / "learning_rate.svg", metadata={"Date": None})
    figure, axes = pyplot.subplots(len(IN_SHORT) // 2, 2, figsize=(9, 1.9 * len(IN_SHORT)), layout="constrained")
    for axis, key in zip(axes.flat, IN_SHORT, strict=True):
        _draw(axis, groups[key], list(METHODS)[:2], 12)
        axis.set_title(f"{TITLES[key[0]].partition(' (')[0]}, {key[1]} epochs", fontsize=12)
    figure.savefig(folder / "in_short.svg", metadata={"Date": None})
    shares = [key for key in order if any(_share(runs) for runs in groups[key].get("softmax", {}).values())]
    if shares:
        figure, axes = pyplot.subplots(1, 2, figsize=(11, 3.8), sharey=True)
        for axis, rate in zip(axes, (1e-4, 5e-4), strict=True):
            for method in METHODS:
                share = _share(groups[shares[0]].get(method, {}).get(rate, {}))
                if share:
                    steps = (np.arange(len(share)) + 0.5) / len(share)
                    axis.plot(steps, 100 * np.array(share), color=COLOURS[method], label=method)
            axis.set(xlabel="share of the steps", ylabel="from right rows, %", title=f"learning rate {rate:g}")
            axis.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(folder / "gradient_share.svg", metadata={"Date": None})
    (folder / "README.md").write_text(page(lines), encoding="utf-8")


def _draw(axis: Any, runs: dict[str, dict[float, dict[int, dict]]], methods: list[str], size: int) -> None:
    """Score against learning rate, a line a method with the band of its 95% interval; the paper's rate is marked.

    Methods with fewer seeds than softmax are left out: their lines would be of other seeds.
    """
    seeds = {method: min(map(len, runs[method].values())) for method in methods}
    methods = [method for method in methods if seeds[method] >= seeds.get("softmax", 0)]
    for method in methods:
        rates = sorted(runs[method])
        found = [interval([100 * run["test"] for run in runs[method][rate].values()]) for rate in rates]
        means, halves = (np.array(part) for part in zip(*found, strict=True))
        axis.plot(rates, means, marker="o", markersize=4, color=COLOURS[method], label=method)
        if not np.isnan(halves).any():
            low, high = np.clip([means - halves, means + halves], 0, 100)
            axis.fill_between(rates, low, high, color=COLOURS[method], alpha=0.12, linewidth=0)
    if PAPER_RATE in {rate for method in methods for rate in runs[method]}:
        axis.axvline(PAPER_RATE, color="#999999", linestyle=":", linewidth=1)
        axis.text(PAPER_RATE * 1.05, 0.02, "the paper's rate", transform=axis.get_xaxis_transform(), fontsize=size)
    rates = sorted({rate for method in methods for rate in runs[method]})
    axis.set(xscale="log")
    axis.set_xlabel("learning rate", fontsize=size + 2)
    axis.set_ylabel("test score, %", fontsize=size + 2)
    axis.set_xticks(rates, [_short(rate) for rate in rates])
    axis.tick_params(labelsize=size)
    axis.minorticks_off()
    axis.legend(fontsize=size)


def _short(rate: float) -> str:
    return f"{rate:g}" if rate >= 1e-3 else f"{rate:.0e}".replace("e-0", "e-")


def _share(runs: dict[int, dict]) -> list[float]:
    """The share of the gradient from right rows, by part of the steps, over the seeds."""
    found = [run["right_share_of_gradient"] for run in runs.values() if any(run["right_share_of_gradient"])]
    return np.mean(found, axis=0).tolist() if found else []


def _why(groups: dict, order: list[tuple[str, int]]) -> str:
    """What part of the gradient comes from rows that are right."""
    text = (HERE / "cause.md").read_text(encoding="utf-8").rstrip() + f"\n\n{cause(groups)}\n"
    tables: dict[tuple[str, int], dict[tuple[str, float], float]] = {}
    for key in order:
        rows = [
            (method, rate, share)
            for method in list(METHODS)[:2]
            for rate in sorted(groups[key].get(method, {}))
            if (share := _share(groups[key][method][rate]))
        ]
        if rows:
            text += f"\n{TITLES[key[0]]}, {key[1]} epochs, right rows' share of the gradient's norm in percent:\n\n"
            text += "| method | learning rate | first quarter of the steps | second | third | last |\n"
            text += "| --- |" + " ---: |" * 5 + "\n"
            tables[key] = {
                (method, rate): 100 * float(np.mean(share[-len(share) // 4 :])) for method, rate, share in rows
            }
            for method, rate, share in rows:
                quarters = np.array(share).reshape(4, -1).mean(1)
                text += f"| {method} | {rate:g} | " + " | ".join(f"{100 * part:.0f}" for part in quarters) + " |\n"
            leads = ahead(groups[key].get("as_softmax 0.1", {}), groups[key].get("softmax", {}))
            for rate in leads:
                plain, masked = tables[key]["softmax", rate], tables[key]["as_softmax 0.1", rate]
                text += f"\nAt {rate:g} AS-Softmax leads by {leads[rate]:.2f}. In the last quarter right rows give "
                text += f"{plain:.0f}% of the gradient of softmax and {masked:.0f}% of that of AS-Softmax.\n"
    return text


def cause(groups: dict) -> str:
    """Whether AS-Softmax leads where the share of right rows falls, and whether it leads with SGD: in words."""
    found = {}
    for (data, epochs), methods in complete(groups).items():
        pairs = []
        for own, base in ((methods["as_softmax 0.1"][rate], methods["softmax"][rate]) for rate in RATES):
            if (share := _share(own)) and (of_base := _share(base)):
                pairs.append((paired(own, base)[0], np.mean(of_base) - np.mean(share)))
        if len(pairs) == len(RATES):
            found[f"{TITLES[data]}, {epochs} epochs"] = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    listed = "; ".join(f"{value:+.2f} ({name})" for name, value in found.items())
    methods = groups.get(("clinc150_20_sgd", 6), {})
    leads = ahead(methods.get("as_softmax 0.1", {}), methods.get("softmax", {}))
    at = ", ".join(f"{rate:g} ({lead:+.2f})" for rate, lead in leads.items()) or "no rate"
    positive = sum(value > 0 for value in found.values())
    against = (2 * positive <= len(found)) + bool(leads)
    return (
        "If this were the cause, AS-Softmax would lead by more at rates where the share of right rows falls further "
        "below softmax's, and the rank correlation (Spearman) of both over the six rates would be positive. It is "
        f"{listed}: positive on {positive} of {len(found)}. With SGD AS-Softmax is ahead at {at}. "
        f"{('Both fit', 'One of the two speaks against', 'Both speak against')[against]} this cause."
    )


def paired(first: dict[int, dict], second: dict[int, dict]) -> tuple[float, float, int]:
    """The mean difference in points over the seeds that both have, half its interval, and the number of seeds."""
    seeds = sorted(first.keys() & second.keys())
    return (*interval([100 * (first[seed]["test"] - second[seed]["test"]) for seed in seeds]), len(seeds))


def best_rate(rates: dict[float, dict[int, dict]]) -> float:
    """The rate of the best mean validation score, over the seeds that all rates have."""
    common = set.intersection(*(set(seeds) for seeds in rates.values()))

    def score(rate: float) -> float:
        return float(np.mean([rates[rate][seed]["validation"] for seed in common or rates[rate]]))

    return max(rates, key=score)


def _number(mean: float, half: float, sign: str = "") -> str:
    return f"{mean:{sign}.2f}" + ("" if math.isnan(half) else f" ± {half:.2f}")


def page(lines: list[dict]) -> str:
    """The whole page of the runs."""
    groups = of_the_same_seeds(grouped(lines))
    order = _order(groups)
    return _scores(groups, order) + _live_rows(grouped(lines)) + _why(groups, order)


def _order(groups: dict) -> list[tuple[str, int]]:
    """The data sets and epochs with several learning rates."""
    keys = [key for key, methods in groups.items() if len({rate for own in methods.values() for rate in own}) > 1]
    return sorted(keys, key=lambda key: (list(DATA).index(key[0]), -key[1]))


def _live_rows(groups: dict) -> str:
    """Training the live rows alone against softmax of as many epochs, of fewer, and of the same time."""
    text = (HERE / "live_rows.md").read_text(encoding="utf-8")
    text += "| data | live rows | softmax | its time | fewer epochs | its time | difference in that time | seeds |\n"
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    for data, epochs, fewer in LIVE_DATA:
        arms = [(epochs, LIVE), (epochs, "softmax"), (fewer, "softmax")]
        runs = [groups.get((data, of), {}).get(method, {}).get(LIVE_RATE, {}) for of, method in arms]
        timed = [{seed for seed, run in own.items() if run.get("cpu_seconds")} for own in runs]
        if not (seeds := sorted(set.intersection(*timed))):
            continue
        live, many, few = (np.array([100 * own[seed]["test"] for seed in seeds]) for own in runs)
        of_live, of_many, of_few = (np.mean([own[seed]["cpu_seconds"] for seed in seeds]) for own in runs)
        same_time = few + (many - few) * (of_live - of_few) / (of_many - of_few)
        cells = [f"{TITLES[data]}, {epochs} epochs", f"{live.mean():.2f}", f"{many.mean():.2f}"]
        cells += [f"{of_many / of_live:.2f}", f"{few.mean():.2f} ({fewer})", f"{of_few / of_live:.2f}"]
        text += f"| {' | '.join(cells)} | {_number(*interval((live - same_time).tolist()), '+')} | {len(seeds)} |\n"
    return text


def _scores(groups: dict, order: list[tuple[str, int]]) -> str:
    text = (HERE / "introduction.md").read_text(encoding="utf-8").rstrip() + "\n\n" + overview(groups)
    for key in order:
        methods = [name for name in METHODS if name in groups[key]]
        rates = sorted({rate for method in methods for rate in groups[key][method]})
        text += f"\n## {TITLES[key[0]]}, {key[1]} epochs\n\nTest score in percent, mean over the seeds:\n\n"
        text += "| learning rate | " + " | ".join(methods) + " | seeds |\n|" + " --- |" * (len(methods) + 2) + "\n"
        for rate in rates:
            cells = [
                _number(*interval([100 * run["test"] for run in groups[key][method][rate].values()]))
                if rate in groups[key][method]
                else ""
                for method in methods
            ]
            seeds = sorted({len(groups[key][method][rate]) for method in methods if rate in groups[key][method]})
            text += f"| {rate:g} | " + " | ".join(cells) + f" | {', '.join(map(str, seeds))} |\n"
        if "softmax" not in methods or len(methods) < 2 or len(rates) < 2:
            continue
        base = groups[key]["softmax"]
        text += "\nDifference to softmax in points, paired by seed:\n\n"
        text += "| method | " + " | ".join(f"{rate:g}" for rate in rates) + " | each at its best rate |\n|"
        text += " --- |" * (len(rates) + 2) + "\n"
        for method in methods[1:]:
            own = groups[key][method]
            cells = [
                _number(*paired(own[rate], base[rate])[:2], sign="+") if rate in own and rate in base else ""
                for rate in rates
            ]
            at, of = best_rate(own), best_rate(base)
            mean, half, _ = paired(own[at], base[of])
            text += f"| {method} | " + " | ".join(cells) + f" | {_number(mean, half, '+')} ({at:g} against {of:g}) |\n"
        text += "".join(f"\n{_words(method, groups[key][method], base)}\n" for method in methods[1:])
    return text


def _words(method: str, own: dict[float, dict[int, dict]], base: dict[float, dict[int, dict]]) -> str:
    """At which rates a method leads, and what is left at each method's best rate."""
    if not decidable(own, base):
        return f"`{method}` has one seed, which decides nothing."
    ahead_at, behind_at = ahead(own, base), ahead(base, own)
    several = [rate for rate in sorted(own.keys() & base.keys()) if len(own[rate].keys() & base[rate].keys()) > 1]
    unclear = [rate for rate in several if rate not in ahead_at and rate not in behind_at]
    parts = [
        f"is {word} softmax at {', '.join(f'{rate:g} ({sign * lead:+.2f})' for rate, lead in leads.items())}"
        for word, sign, leads in (("ahead of", 1, ahead_at), ("behind", -1, behind_at))
        if leads
    ]
    if unclear:
        parts.append(f"cannot be told from softmax at {', '.join(f'{rate:g}' for rate in unclear)}")
    mean, half, _ = paired(own[best_rate(own)], base[best_rate(base)])
    word = "ahead" if mean - half > 0 else "behind" if mean + half < 0 else "not told apart"
    return f"`{method}` {'; it '.join(parts)}. With the best rate of each it is {word} ({_number(mean, half, '+')})."


def in_short(groups: dict) -> str:
    """On how many data sets AS-Softmax is ahead of softmax, and at which rates: a sentence for the first page."""
    tested, ahead_on, at_paper, below = set(), set(), set(), True
    best_on: dict[bool, set[str]] = {True: set(), False: set()}
    for (data, _), methods in complete(groups).items():
        tested.add(data)
        own, base = methods["as_softmax 0.1"], methods["softmax"]
        if leads := ahead(own, base):
            ahead_on.add(data)
            if PAPER_RATE in leads:
                at_paper.add(data)
            below &= max(leads) < min(best_rate(own), best_rate(base))
        mean, half, _ = paired(own[best_rate(own)], base[best_rate(base)])
        if abs(mean) > half:
            best_on[mean > 0].add(data)
    count = ("none", "one", "two", "three", "four", "five")
    only = ", but only at learning rates below the best one" if below else ""
    found = (ahead_on, tested, at_paper, best_on[True], best_on[False])
    first, tried, paper, best, worse = (count[len(data_sets)] for data_sets in found)
    return (
        f"With a margin of 0.1, AS-Softmax is ahead of softmax on {first} of {tried} data sets{only}. At the paper's "
        f"rate, {_short(PAPER_RATE)}, it is ahead on {paper}. With each method at its best rate, it is ahead on {best} "
        f"and behind on {worse}."
    )


def complete(groups: dict, method: str = "as_softmax 0.1") -> dict[tuple[str, int], dict]:
    """The data sets and epochs in which softmax and ``method`` have all rates, with several seeds each."""

    def seeds(methods: dict, rate: float) -> int:
        return len(methods["softmax"].get(rate, {}).keys() & methods.get(method, {}).get(rate, {}).keys())

    return {key: groups[key] for key in _order(groups) if all(seeds(groups[key], rate) > 2 for rate in RATES)}


def overview(groups: dict) -> str:
    """A line for each data set and method: at which rates it leads softmax, and what is left at the best of each."""
    text = in_short(groups) + "\n\n| data | method | ahead at | behind at | each at its best rate |\n"
    text += "|" + " --- |" * 5 + "\n"
    methods = [method for method in METHODS if method != "softmax"]
    for key, method in ((key, method) for key in _order(groups) for method in methods):
        if key not in complete(groups, method):
            continue
        own, base = groups[key][method], groups[key]["softmax"]
        cells = [f"{TITLES[key[0]]}, {key[1]} epochs", method]
        for sign, found in ((1, ahead(own, base)), (-1, ahead(base, own))):
            cells.append(", ".join(f"{rate:g} ({sign * lead:+.2f})" for rate, lead in found.items()))
        text += f"| {' | '.join(cells)} | {_number(*paired(own[best_rate(own)], base[best_rate(base)])[:2], '+')} |\n"
    return text


def decidable(first: dict[float, dict[int, dict]], second: dict[float, dict[int, dict]]) -> bool:
    """Whether both have two seeds or more at a rate."""
    return any(len(first[rate].keys() & second[rate].keys()) > 1 for rate in first.keys() & second.keys())


def ahead(first: dict[float, dict[int, dict]], second: dict[float, dict[int, dict]]) -> dict[float, float]:
    """The rates at which the interval of the difference lies above 0, and the mean differences there."""
    found = {rate: paired(first[rate], second[rate]) for rate in sorted(first.keys() & second.keys())}
    return {rate: mean for rate, (mean, half, _) in found.items() if mean - half > 0}  # not with a half of NaN


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "show"])
    parser.add_argument("--encoder", type=Path, help="a folder with model.safetensors and a tokenizer")
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
