"""The figure of scores by margin."""

from __future__ import annotations

from collections.abc import Callable

from as_lightning.benchmark.report.figures import report_figures, score_against_delta
from as_lightning.benchmark.run.result import Result

Make = Callable[..., Result]


def with_delta(result: Make, delta: float, seed: int, score: float) -> Result:
    config = {"method": {"name": "as_softmax", "delta": delta}}
    return result(f"as_softmax (delta={delta:g})", seed, score, config=config)


def test_three_margins_make_a_figure_whose_text_has_their_means_and_the_baseline(result: Make) -> None:
    runs = [with_delta(result, delta, seed, delta / 2 + seed / 100) for delta in (0.2, 0.1, 0.4) for seed in (0, 2)]
    figure = score_against_delta("set", [*runs, result("softmax", 0, 0.75)])
    assert figure is not None
    assert figure.alt == (
        "Test accuracy against the margin delta on set: as_softmax at 0.1: 0.060; as_softmax at 0.2: 0.110; "
        "as_softmax at 0.4: 0.210; softmax: 0.750."
    )
    assert figure.light.startswith(b"\x89PNG")


def test_fewer_than_three_margins_make_no_such_figure(result: Make) -> None:
    runs = [with_delta(result, delta, 0, 0.5) for delta in (0.1, 0.2)]
    assert score_against_delta("set", runs) is None
    assert "set-delta" not in [figure.name for figure in report_figures("set", runs)]
