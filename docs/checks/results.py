"""The pages of results are what the scripts in ``results/`` write from the committed runs, and
count what they say.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from torch import nn

from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.settings import checked_settings

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
COMMITTED = [
    path
    for folder in ("performance", "accumulation")
    for path in sorted(RESULTS.glob(f"{folder}/*.json"))
]
PEERS = "linear_cross_entropy_peers"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    for folder in (
        "speed",
        "results",
        "results/accumulation",
        "results/learning_rate",
        "results/where_it_pays",
    ):
        monkeypatch.syspath_prepend(str(ROOT / folder))

    def load(name: str) -> ModuleType:
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize("tokens", [False, True])
def test_the_share_of_right_rows_is_that_of_their_own_gradients(script, tokens):
    watch = script("gradient_share").GradientShare()
    torch.manual_seed(0)
    module = nn.Module()
    module.head = nn.Linear(5, 4)
    hidden = torch.randn(6, 3, 5) if tokens else torch.randn(12, 5)
    with torch.no_grad():
        target = module.head(hidden).argmax(-1)
    target.view(-1)[::3] = (target.view(-1)[::3] + 1) % 4
    if tokens:
        target[2, 1] = -100
    watch.on_train_start(SimpleNamespace(num_training_batches=1, max_epochs=1), module)
    watch.on_train_batch_start(None, module, (hidden, target), 0)
    logits = module.head(hidden)
    F.cross_entropy(logits.flatten(0, -2), target.flatten()).backward()
    watch.on_train_batch_end()
    module.head(hidden)  # a validation's: not counted
    watch.on_train_end(None, module)

    norms, right = [], []
    rows = hidden.flatten(0, -2)[target.flatten() >= 0]
    labels = target.flatten()[target.flatten() >= 0]
    for row, label in zip(rows, labels, strict=True):
        output = module.head(row)
        gradients = torch.autograd.grad(
            F.cross_entropy(output, label), list(module.head.parameters())
        )
        norms.append(torch.cat([gradient.flatten() for gradient in gradients]).norm())
        right.append(bool(output.argmax() == label))
    norms, right = torch.stack(norms), torch.tensor(right)
    assert watch.shares[0] == pytest.approx(float(norms[right].sum() / norms.sum()), abs=1e-4)
    assert watch.right[0] == pytest.approx(float(right.float().mean()), abs=1e-4)


def test_every_data_set_and_method_of_the_plan_has_a_configuration(script, tmp_path):
    experiment = script("experiment")
    script("gradient_share")
    jobs = {(job.data, job.method): job for job in experiment.plan()}
    assert {data for data, _ in jobs} == set(experiment.DATA) == set(experiment.TITLES)
    for (data, method), job in jobs.items():
        if data == "clinc150_20" or method == "as_speed 0.1":
            with initialize_config_dir(str(config_dir()), version_base="1.3"):
                config = compose(
                    "train", overrides=experiment.overrides(job, Path("encoder"), str(tmp_path))
                )
            config, foreign = checked_settings(config)
            assert set(foreign) <= {"delta"}  # which softmax lacks
            assert config.method.get("delta") == (
                None if method == "softmax" else float(method.split()[-1])
            )


def test_the_page_of_learning_rates_is_written_from_its_records(script):
    experiment = script("experiment")
    lines = experiment.read(ROOT / "results/learning_rate/runs.jsonl")
    assert len(lines) == len(
        {tuple(line[name] for name in experiment.Job._fields) for line in lines}
    )
    assert (ROOT / "results/learning_rate/README.md").read_text(
        encoding="utf-8"
    ) == experiment.page(lines)


def test_what_the_pages_say_of_learning_rates_is_what_the_runs_say(script):
    experiment = script("experiment")
    groups = experiment.complete(experiment.read(experiment.HERE / "runs.jsonl"))
    said = experiment.in_short(groups)
    assert said in " ".join((ROOT / "docs/claims.md").read_text(encoding="utf-8").split())
    assert "always below the best rate" in said  # as docs/claims.md says elsewhere too
    assert experiment.ahead(*(groups["clinc150_20_sgd", 6][name] for name in experiment.PAIR[::-1]))


def test_the_sentence_on_learning_rates_counts_leads_and_best_rates_by_setting(script):
    experiment = script("experiment")

    def group(*differences: float) -> dict:
        """Softmax is best at 5e-4; AS-Softmax differs by so much at each rate."""
        methods: dict = {"softmax": {}, "as_softmax 0.1": {}}
        for rate, difference in zip(sorted(experiment.RATES), differences, strict=True):
            base = 0.5 if rate == 5e-4 else 0.4
            for method, score in (("softmax", base), ("as_softmax 0.1", base + difference)):
                methods[method][rate] = {
                    seed: {"test": score + 1e-3 * seed * (1 + score), "validation": score}
                    for seed in range(3)
                }
        return methods

    low, none, high = (
        group(0, 0.01, 0, 0, 0, 0),
        group(0, 0, 0, 0, 0, 0),
        group(0, 0, 0, 0, 0, 0.02),
    )
    worse = group(0, 0, 0, 0, -0.01, 0)
    assert experiment.in_short(
        {("clinc150_20", 6): low, ("clinc150_20", 2): low, ("sst5", 2): none}
    ) == (
        "With a margin of 0.1, at six learning rates in each of 3 settings (a data set and a "
        "number of epochs), "
        "AS-Softmax is ahead of softmax 2 times, always below the best rate, and behind 0 times; "
        "without any "
        "difference 0.5 of each would be expected. At the paper's rate, 2e-5, it is ahead in none "
        "and behind in none. "
        "With each method at its best rate it is ahead in none and behind in none."
    )
    said = experiment.in_short({("sst5", 2): high, ("wnut17", 2): worse})
    assert "AS-Softmax is ahead of softmax 1 times and behind 1 times" in said
    assert said.endswith("it is ahead in none and behind in 1.")
    of_paper = experiment.in_short(
        {("sst5", 2): group(0.01, 0, 0, 0, 0, 0), ("wnut17", 2): group(-0.01, 0, 0, 0, 0, 0)}
    )
    assert "ahead of softmax 1 times, always below the best rate, and behind 1 times" in of_paper
    assert "At the paper's rate, 2e-5, it is ahead in 1 and behind in 1." in of_paper
    page = experiment.overview({("sst5", 2): none, ("wnut17", 2): worse})
    assert (
        "above 0 in 0 of 2 lines and below 0 in 1. Without any difference 0.1 of each would be "
        "expected." in page
    )
    assert "In 0 of 2 settings softmax's best rate is the largest" in page
    assert "| 0.0005 (50.15 - 1.00) | 50.15 - 1.00 ± 0.00 |" in page


def test_what_lacks_seeds_is_left_out_and_all_methods_are_shown_with_the_same_seeds(script):
    experiment = script("experiment")

    def lines(
        method: str, seeds: int, rates: tuple[float, ...] = experiment.RATES, data: str = "sst5"
    ) -> list[dict]:
        about = {"data": data, "epochs": 2, "method": method}
        return [about | {"rate": rate, "seed": seed} for rate in rates for seed in range(seeds)]

    both = lines("softmax", 5) + lines("as_softmax 0.1", 4)
    found = experiment.complete([*both, *lines("as_softmax 0.3", 3), *lines("as_softmax 0.5", 2)])
    seeds = {name: [*runs[2e-5]] for name, runs in found["sst5", 2].items()}
    assert seeds == {name: [0, 1, 2] for name in ("softmax", "as_softmax 0.1", "as_softmax 0.3")}
    assert not experiment.complete(
        [*lines("softmax", 3), *lines("as_softmax 0.1", 3, experiment.RATES[:5])]
    )
    assert not experiment.complete([*lines("softmax", 3), *lines("as_softmax 0.3", 3)])
    sgd = lines("softmax", 3, experiment.SGD_RATES, "clinc150_20_sgd")
    sgd += lines("as_softmax 0.1", 3, (*experiment.SGD_RATES, 0.3), "clinc150_20_sgd")
    assert [*experiment.complete([*sgd, *both])] == [("clinc150_20_sgd", 2), ("sst5", 2)]


def test_the_cause_is_judged_by_whether_leads_go_with_falling_shares(script):
    experiment = script("experiment")

    def group(leads: list[float], falls: list[float]) -> dict:
        methods: dict = {"softmax": {}, "as_softmax 0.1": {}}
        for rate, lead, fall in zip(experiment.RATES, leads, falls, strict=True):
            for method, score, share in (
                ("softmax", 0.4, 0.9),
                ("as_softmax 0.1", 0.4 + lead, 0.9 - fall),
            ):
                methods[method][rate] = {
                    seed: {"test": score + 1e-3 * seed, "right_share_of_gradient": [share] * 20}
                    for seed in range(3)
                }
        return methods

    falls = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]
    rising, falling = group(falls, falls), group(falls[::-1], falls)
    sgd = {method: {0.003: rates[experiment.RATES[0]]} for method, rates in rising.items()}
    groups = {("sst5", 2): rising, ("clinc150", 2): falling, ("clinc150_20_sgd", 6): sgd}
    said = experiment.cause(groups)
    assert (
        "+1.00 (SST-5, 2 epochs); -1.00 (CLINC150, whole (150 intents), 2 epochs): positive on 1 "
        "of 2; alone" in said
    )
    assert said.endswith(
        "With SGD, on one data set, AS-Softmax is ahead at 0.003 (+1.00). Both speak against this "
        "cause."
    )
    assert experiment.cause({("sst5", 2): rising}).endswith(
        "is ahead at no rate. Both fit this cause."
    )


def test_the_ledger_of_claims_is_written_from_the_records(script):
    assert (ROOT / "docs/claims.md").read_text(encoding="utf-8") == script("claims").page()


def test_a_table_that_a_page_shows_of_training_steps_is_the_committed_one():
    table = (
        (ROOT / "results/performance/finetuning.md").read_text(encoding="utf-8").split("\n", 2)[2]
    )
    assert table in (ROOT / "docs/finetuning.md").read_text(encoding="utf-8")


def test_live_rows_are_compared_with_softmax_interpolated_to_their_time(script):
    experiment = script("experiment")
    first = {"data": "clinc150", "rate": experiment.LIVE_RATE}
    arms = (2, experiment.LIVE, 0.9, 75), (2, "softmax", 0.92, 100), (1, "softmax", 0.84, 50)
    lines = [
        first
        | {
            "epochs": epochs,
            "method": method,
            "seed": seed,
            "test": test + 0.01 * seed,
            "cpu_seconds": seconds,
        }
        for epochs, method, test, seconds in arms
        for seed in range(3)
    ]
    row = experiment._live_rows(experiment.grouped(lines)).splitlines()[-1]
    assert row.endswith("epochs | 91.00 | 93.00 | 1.33 | 85.00 (1) | 0.67 | +2.00 ± 0.00 | 3 |")


def test_the_summary_is_that_of_the_committed_reports(
    script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pattern in ("report.md", "design.json", "runs.csv"):
        for file in RESULTS.rglob(pattern):
            copy = tmp_path / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copy(RESULTS / "README.md", tmp_path / "results")
    summary = script("summary")
    monkeypatch.setattr(summary, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(summary, "README", tmp_path / "README.md")
    summary.main()
    for page in ("README.md", "results/README.md"):
        assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / page).read_text(
            encoding="utf-8"
        )


def test_the_table_of_wide_heads_is_that_of_its_runs(script) -> None:
    page = script("wide_heads").page(RESULTS / "python_code" / "heads")
    assert page == (RESULTS / "python_code" / "README.md").read_text(encoding="utf-8")


def test_the_map_of_losses_and_its_pages_are_those_of_its_cells(script) -> None:
    for path, text in (
        page
        for name in ("map", "margin_time", "prior", "probe")
        for page in script(name).pages().items()
    ):
        # another version of matplotlib places a figure's texts otherwise
        shown = [
            re.findall(r">([^<>]+)</text>", page) if path.suffix == ".svg" else page
            for page in (text, path.read_text(encoding="utf-8"))
        ]
        assert shown[0], path
        assert shown[0] == shown[1], path


@pytest.mark.parametrize("numbers", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_table_is_what_its_script_writes_of_its_numbers(script, numbers: Path) -> None:
    report = json.loads(numbers.read_text(encoding="utf-8"))
    written = script(Path(shlex.split(report["command"])[1]).stem).table(report)
    assert numbers.with_suffix(".md").read_text(encoding="utf-8") == written


def test_each_measured_case_of_the_peers_is_counted_once_in_their_summary(script) -> None:
    peers = script(PEERS)
    cases = json.loads((ROOT / f"results/performance/{PEERS}.json").read_text(encoding="utf-8"))[
        "cases"
    ]
    lines = peers.in_short(cases, [peers.CHUNKED])
    assert sum(int(line.partition(" cases)")[0].rpartition("(")[2]) for line in lines) == len(cases)


def test_the_regret_of_a_method_is_to_the_best_of_all_grids_that_it_contains() -> None:
    rows = json.loads((RESULTS / "statistics" / "regret.json").read_text(encoding="utf-8"))
    (softmax,) = [row for row in rows if row["method"] == "softmax"]
    for row in rows:  # all of which contain softmax
        assert row["reference"] == max(row["score"], softmax["score"])
        assert row["regret"] > 0
