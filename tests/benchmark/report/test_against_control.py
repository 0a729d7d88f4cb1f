"""Skipping by a criterion beside skipping at random."""

from __future__ import annotations

from collections.abc import Callable

from as_lightning.benchmark.published.compared_data_sets import against_control, control_sentence
from as_lightning.benchmark.results import Result


def test_a_method_that_leaves_out_nothing_is_not_compared_with_chance(result: Callable[..., Result]) -> None:
    def runs(method: str, awake: int, score: float) -> list[Result]:
        return [
            result(
                method,
                seed,
                score + 0.001 * seed**2 * awake,
                skipping=[{"awake": awake, "samples": 100}],
                config={"comparison": {"budget": 1.0, "epochs": 4, "settings": {}}},
            )
            for seed in range(3)
        ]

    results = [*runs("softmax_skip", 60, 0.9), *runs("as_skip", 100, 0.8), *runs("random_skip", 60, 0.7)]
    (found,) = against_control(results)
    assert set(found.methods) == {"random_skip", "softmax_skip"}
    assert "of 1 comparisons" in control_sentence([found])
    assert against_control([run for run in results if run.method != "softmax_skip"]) == []
