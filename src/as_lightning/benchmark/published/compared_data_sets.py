"""What the fair comparisons of several data sets have found, side by side, as lines of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from as_lightning.benchmark.report.across_data_sets import MIN_DATA_SETS, AcrossDataSets, across_data_sets
from as_lightning.benchmark.report.advice import advice
from as_lightning.benchmark.report.figures import score_name
from as_lightning.benchmark.report.findings import Arm, Findings, findings
from as_lightning.benchmark.report.time_to_score import TimeRatio
from as_lightning.benchmark.report.verdicts import POINT
from as_lightning.benchmark.results import Result

CONTROL = "random_skip"
SKIPPING = ("as_skip", "softmax_skip", "infobatch")


def advised(found: Findings) -> str:
    """What to do on a data set, in one sentence."""
    return f"**{found.name}**: {advice(found)[0]}"


def scores(compared: Sequence[Findings]) -> list[str]:
    """Methods as rows, data sets as columns: the score at the full budget, and the verdict."""
    return _table(compared, [f"{found.name}, {score_name(found.score)}" for found in compared], _score)


def training_times(compared: Sequence[Findings]) -> list[str]:
    """Methods as rows, data sets as columns: the training time of as many epochs, relative to the baseline's."""
    return _table(compared, [found.name for found in compared], lambda _, arm: ratio(arm.time))


def times_to_score(compared: Sequence[Findings]) -> list[str]:
    """Methods as rows, data sets as columns: the time of the cheapest budget that is shown to be not worse."""

    def cell(found: Findings, arm: Arm) -> str:
        reached = found.time_to_score(arm.method)
        return "not reached" if reached is None else ratio(reached.time)

    return _table(compared, [found.name for found in compared], cell)


def against_control(results: Sequence[Result]) -> list[Findings]:
    """The methods that skip by a criterion, beside the one that skips as many samples at random, one for each budget.

    Args:
        results: the final runs of one comparison.

    Returns:
        The largest budget first; none where the comparison has no such control.
    """
    compared = []
    for budget in sorted({run.config["comparison"]["budget"] for run in results}, reverse=True):
        group = [run for run in results if run.config["comparison"]["budget"] == budget]
        if CONTROL in {run.method for run in group}:
            compared.append(findings([run for run in group if run.method in (*SKIPPING, CONTROL)], baseline=CONTROL))
    return compared


def control_rows(compared: Sequence[Findings]) -> list[str]:
    """The rows of a table: data set, epochs, method, difference to the control, verdict, ratio of the times."""
    return [
        f"| {found.name} | {arm.epochs:g} | {arm.method} | {difference(arm)} | "
        f"{arm.verdict.in_words.partition(':')[0]} | {ratio(arm.time)} |"
        for found in compared
        for arm in found.arms
        if arm.verdict is not None
    ]


def control_sentence(compared: Sequence[Findings]) -> str:
    """How often a criterion was better or worse than chance, in one sentence."""
    words = [arm.verdict.word for found in compared for arm in found.arms if arm.verdict is not None]
    return (
        "Skipping by a criterion, compared with skipping as many samples at random "
        f"(`{CONTROL}`), is better in {words.count('better')} of {len(words)} comparisons, worse in "
        f"{words.count('worse')} and equal in {words.count('equal')}. The others are inconclusive."
    )


def over_all(compared: Sequence[Findings]) -> list[str]:
    """One line for each method that enough data sets have: the Bayesian signed-rank test against the baseline."""
    return [f"`{method}` {found.in_words}." for method, found in _across(compared).items()]


def over_all_in_short(compared: Sequence[Findings]) -> list[str]:
    """The same in one line for each number of data sets."""
    by_count: dict[int, list[str]] = {}
    for method, found in _across(compared).items():
        shares = f"{found.better:.0%} / {found.equal:.0%} / {found.worse:.0%}"
        by_count.setdefault(found.data_sets, []).append(f"`{method}` {shares}")
    return [
        f"Over {count} data sets, the probabilities of *better* / *equal within {compared[0].margin / POINT:g} "
        f"points* / *worse* than {compared[0].baseline}, with all epochs: {', '.join(methods)} (Bayesian signed-rank "
        "test)."
        for count, methods in by_count.items()
    ]


def _across(compared: Sequence[Findings]) -> dict[str, AcrossDataSets]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for found in compared:
        for method in found.methods:
            if method != found.baseline:
                pair = (found.of(method)[0].mean, found.reference.mean)
                pairs.setdefault(method.removeprefix("multilabel_"), []).append(pair)
    found_of = {}
    for method, found_pairs in pairs.items():
        if len(found_pairs) >= MIN_DATA_SETS:
            own, reference = zip(*found_pairs, strict=True)
            found_of[method] = across_data_sets(own, reference, compared[0].margin)
    return found_of


def _table(compared: Sequence[Findings], headings: Sequence[str], cell: Callable[[Findings, Arm], str]) -> list[str]:
    methods = dict.fromkeys(method for found in compared for method in found.methods)
    lines = ["| method | " + " | ".join(headings) + " |", "| --- |" + " --- |" * len(headings)]
    for method in methods:
        cells = [cell(found, found.of(method)[0]) if method in found.methods else "–" for found in compared]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def _score(found: Findings, arm: Arm) -> str:
    spread = "" if arm.std is None else f" ± {arm.std / POINT:.2f}"
    word = "reference" if arm.verdict is None else arm.verdict.in_words.partition(":")[0]
    return f"{arm.mean / POINT:.2f}{spread} ({word})"


def difference(arm: Arm) -> str:
    """The difference to the reference in points, with its 95% interval."""
    verdict = arm.verdict
    if verdict is None or verdict.difference is None:
        return "–"
    interval = (
        ""
        if verdict.low is None or verdict.high is None
        else (f" [{verdict.low / POINT:+.2f}, {verdict.high / POINT:+.2f}]")
    )
    return f"{verdict.difference / POINT:+.2f}{interval}"


def ratio(time: TimeRatio | None) -> str:
    """A ratio of training times, with its 95% interval."""
    if time is None:
        return "–"
    if time.low is None or time.high is None or time.low == time.high:
        return f"{time.ratio:.2f}"
    return f"{time.ratio:.2f} [{time.low:.2f}, {time.high:.2f}]"
