"""What the pages say of the cost of skipping is what the committed measurements say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PERFORMANCE = ROOT / "results" / "performance"


def words(page: str) -> str:
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def test_the_pages_on_skipping_name_the_costs_of_a_step_that_miss_the_aim() -> None:
    report = json.loads((PERFORMANCE / "skipping.json").read_text(encoding="utf-8"))
    own_mask, own_margin, backward = (
        report["step"]["median"][f"{side}_ratio"] for side in ("own_mask", "own_margin", "skip_backward")
    )
    assert own_mask <= 1.01 < min(own_margin, backward)
    assert (
        f"The aim is at most 1.01 times the step. With the loss's mask a step takes {own_mask:.4f} times the time. A "
        f"margin of its own takes {own_margin:.4f} times, and `skip_backward` {backward:.4f} times; both miss the aim."
    ) in words("skipping.md")
    assert f"a step of 10 ms takes {own_margin:.4f} times the time, which misses the aim of 1.01" in words(
        "methods/softmax_skip.md"
    )
    assert f"a step of 10 ms take [{backward:.4f} times](../../results/performance/skipping.md)" in words(
        "methods/as_skip_backward.md"
    )


def test_the_pages_on_skipping_name_the_epoch_of_skip_backward_that_misses_the_aim() -> None:
    report = json.loads((PERFORMANCE / "skip_backward.json").read_text(encoding="utf-8"))
    runs = {place: found["methods"]["as_skip_backward"] for place, found in report["experiments"].items()}
    slowest = {place: max(epoch["time"]["ratio"] for epoch in run["epochs"]) for place, run in runs.items()}
    assert [place for place, ratio in slowest.items() if ratio > 1.03] == ["sst5"]
    for page, baseline in (("skipping.md", "AS-Softmax"), ("methods/as_skip_backward.md", "as_softmax")):
        assert (
            f"takes {runs['sst5']['whole']['ratio']:.2f} times the time of {baseline}, and {slowest['sst5']:.2f} times "
            "in the slowest epoch, which misses the aim of 1.03"
        ) in words(page)


def test_the_note_on_the_cost_of_skipping_says_which_side_misses_the_aim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "speed"))
    rounds = [
        {"own_mask_ratio": 1.0, "own_margin_ratio": 1.02, "skip_backward_ratio": 1.005},
        {"own_mask_ratio": 1.01, "own_margin_ratio": 1.004, "skip_backward_ratio": 1.006},
    ]
    lines = importlib.import_module("skipping").aim_lines(rounds, rounds[0])
    assert [line for line in lines if line.startswith("- ")] == [
        "- the loss's mask: 1.0000 meets the aim; above it in 0 of 2 rounds.",
        "- a margin of its own: 1.0200 misses the aim; above it in 1 of 2 rounds.",
        "- `skip_backward`: 1.0050 meets the aim; above it in 0 of 2 rounds.",
    ]
    aim_lines = importlib.import_module("skip_backward").aim_lines
    assert aim_lines([1.0, 1.04, 0.9, 1.05])[1].endswith("It is missed in epoch 2 (1.04), 4 (1.05).")
    assert aim_lines([1.0])[1].endswith("No epoch misses it.")
