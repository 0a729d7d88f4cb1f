"""From findings to advice in words. The rule is a pure function; ``docs/compare.md`` explains it."""

from __future__ import annotations

from as_lightning.benchmark.report.evidence import MOST_SEEDS, SURE_MARGINS, detectable, is_sure, seeds_to_see
from as_lightning.benchmark.report.findings import Arm, Findings
from as_lightning.benchmark.report.old_verdicts import POINT, points
from as_lightning.benchmark.report.table_cells import epochs_in_words, short

UNFOLDED = 6  # sentences that a page shows without folding
WORSE_CALIBRATED = 0.02  # a difference of calibration errors that is worth a sentence


def advice(findings: Findings) -> list[str]:
    """What to do, and what the comparison shows, as plain sentences.

    1. The recommendation. The candidate is, if arms are *better* than the baseline's full budget, the one with the
       largest difference. If not: the cheapest arm that is shown to be not worse and whose time ratio's interval lies
       below 1; a method is preferred to the baseline's own cheapest budget only where its interval lies below the
       baseline's. The candidate is recommended if the comparison is large enough
       (:func:`~as_lightning.benchmark.report.evidence.is_sure`). Otherwise, and where there is no candidate: the
       baseline at its full budget.
    2. One sentence for each other method, at its full budget.
    3. Calibration, where a method is worse calibrated than the baseline by more than 0.02.
    4. The difference that the comparison can see, and with how many seeds it would see smaller ones.
    5. The notes of the comparison: failed runs, what was not tuned.
    """
    sentences = [_recommendation(findings)]
    for method in findings.methods:
        if method != findings.baseline:
            sentences += _about(findings, findings.of(method)[0])
    return [*sentences, *_limits(findings), *findings.notes]


def folded_advice(findings: Findings) -> list[str]:
    """The sentences that a page folds away: of methods that are not recommended, and notes but of failed runs.

    None where there are few.
    """
    chosen = recommended(findings)
    shown = {_recommendation(findings), *_limits(findings), *_calibration(findings, findings.of(chosen.method)[0])}
    shown |= {note for note in findings.notes if "failed" in note}
    sentences = advice(findings)
    return [sentence for sentence in sentences if sentence not in shown] if len(sentences) > UNFOLDED else []


def recommended(findings: Findings) -> Arm:
    """The arm that the advice recommends."""
    arm = _candidate(findings)
    return arm if arm is not None and is_sure(findings, arm) else findings.reference


def why_no_advice(findings: Findings) -> str:
    """Why nothing can be recommended: the reference is missing, or no arm has a verdict; empty where one can."""
    reference, others = findings.reference, [arm for arm in findings.arms if arm is not findings.reference]
    if not reference.seeds:
        full = f"{reference.method}, {epochs_in_words(reference.epochs)}"
        return f"{full}, which all are compared with, has no finished run"
    if others and all(arm.verdict is not None and arm.verdict.word == "no verdict" for arm in others):
        return "; ".join(sorted({arm.verdict.reason for arm in others if arm.verdict is not None}))
    return ""


def _candidate(findings: Findings) -> Arm | None:
    """The arm that would be recommended by its verdict alone; None where that is the baseline at its full budget."""
    compared = [arm for arm in findings.arms if arm.verdict is not None]
    better = [arm for arm in compared if arm.verdict is not None and arm.verdict.word == "better"]
    if better:
        return max(better, key=lambda arm: arm.verdict.difference or 0.0 if arm.verdict else 0.0)
    cheaper = [
        arm
        for arm in compared
        if arm.verdict is not None
        and arm.verdict.not_worse
        and arm.time is not None
        and arm.time.high is not None
        and arm.time.high < 1.0
    ]
    if not cheaper:
        return None

    def seconds(arm: Arm) -> float:
        assert arm.time is not None
        return arm.time.ratio

    cheapest = min(cheaper, key=seconds)
    own = min((arm for arm in cheaper if arm.method == findings.baseline), key=seconds, default=None)
    if own is None or cheapest.time is None or own.time is None or cheapest.time.clearly_below(own.time):
        return cheapest
    return own


def _recommendation(findings: Findings) -> str:
    arm, reference = _candidate(findings), findings.reference
    full = f"{reference.method}, {epochs_in_words(reference.epochs)}"
    if why_no_advice(findings):
        return f"No advice: {why_no_advice(findings)}."
    if arm is None:
        return f"Stay with {full}: nothing here is better, and nothing cheaper is shown to be as good."
    chosen = f"{arm.method}{_settings(arm)}, {epochs_in_words(arm.epochs)}"
    if not is_sure(findings, arm):
        return (
            f"Stay with {full}, for now: {chosen}, looks {_in_what(findings, arm, '')}, but this comparison is too "
            "small to rely on it."
        )
    if arm.method == findings.baseline:
        instead = f"{epochs_in_words(arm.epochs)} in place of {reference.epochs:g}"
        return f"Train {arm.method}{_settings(arm)} for {instead}: {_in_what(findings, arm, '')}."
    return f"Use {chosen}: {_in_what(findings, arm, full)}."


def _in_what(findings: Findings, arm: Arm, full: str) -> str:
    """In what an arm is better than the baseline at its full budget, or as good; ``full`` names that, or is empty."""
    assert arm.verdict is not None
    if arm.verdict.word == "better":
        return f"better{f' than {full}' * bool(full)}, by {_difference(arm)}{_in_time(arm)}"
    shown = (
        f"equal within {findings.margin / POINT:g} points"
        if arm.verdict.word == "equal"
        else f"not worse by {findings.margin / POINT:g} points or more"
    )
    return f"as good{f' as {full}' * bool(full)} ({shown}){_in_time(arm)}"


def _about(findings: Findings, arm: Arm) -> list[str]:
    """What is said of a method at its full budget, beside the recommendation."""
    verdict, reference = arm.verdict, findings.reference
    assert verdict is not None
    at = f"{arm.method}, {epochs_in_words(arm.epochs)},"
    said = []
    if verdict.word == "better" and arm not in (recommended(findings), _candidate(findings)):
        said.append(f"{at} is better than {reference.method} by {_difference(arm)}{_in_time(arm)}.")
    elif verdict.word == "worse":
        said.append(f"{at} is worse than {reference.method} by {_difference(arm, turned=True)}{_in_time(arm)}.")
    elif verdict.word == "equal" and arm is not recommended(findings):
        said.append(f"{at} makes no difference above {_bound(arm)} points{_in_time(arm)}.")
    elif verdict.word == "inconclusive":
        said.append(f"{at} may be {_between(arm)}{_in_time(arm)}: this comparison cannot tell.")
    elif verdict.word == "no verdict":
        said.append(f"{at} cannot be judged: {verdict.reason}.")
    reached = findings.time_to_score(arm.method)
    if reached is None and verdict.word != "no verdict":
        said.append(f"{arm.method} is not shown to reach the score of {reference.method} at any budget.")
    return [*said, *_calibration(findings, arm)]


def _calibration(findings: Findings, arm: Arm) -> list[str]:
    own, base = arm.metrics.get("calibration_error"), findings.reference.metrics.get("calibration_error")
    if own is None or base is None or not own - base > WORSE_CALIBRATED:  # NaN: not known
        return []
    said = f"The probabilities of {arm.method} are worse calibrated ({own:.2f} against {base:.2f})"
    scaled = arm.metrics.get("calibration_error_scaled")
    base_scaled = findings.reference.metrics.get("calibration_error_scaled")
    if scaled is None or base_scaled is None:
        return [f"{said}."]
    if arm.has_own_probabilities:
        change = "the softmax of its logits at one temperature, fitted on validation, has"
    else:
        change = "one temperature, fitted on validation, brings them to"
    return [f"{said}; {change} {scaled:.3f} against {base_scaled:.3f}."]


def _limits(findings: Findings) -> list[str]:
    """What the comparison can see; what to run to see more, where a method at its full budget is not decided."""
    visible = detectable(findings)
    if visible is None:
        return []
    samples = "" if findings.test_samples is None else f" and {findings.test_samples} {findings.split} samples"
    said = [
        f"With {findings.reference.seeds} seeds{samples} this comparison sees differences of {points(visible)} points "
        "or more, with 80% probability. Smaller differences may exist."
    ]
    full = [arm.verdict for arm in findings.arms if arm.budget == findings.reference.budget]
    candidate = _candidate(findings)
    decided = all(verdict is None or verdict.word != "inconclusive" for verdict in full)
    if decided and (candidate is None or is_sure(findings, candidate)):
        return said
    target = SURE_MARGINS * findings.margin if visible > SURE_MARGINS * findings.margin else findings.margin
    seeds = seeds_to_see(findings, target)
    if seeds is None:
        more = (
            f"To see differences of {points(target)} points would take more than {MOST_SEEDS} seeds: compare fewer "
            "methods and budgets, or use a larger test split."
        )
    elif seeds > findings.reference.seeds:
        more = f"To see differences of {points(target)} points, run the comparison again with seeds={seeds}."
    else:
        return said
    return [f"{said[0]} {more}"]


def _settings(arm: Arm) -> str:
    """The tuned settings of a method, the learning rate left out."""
    own = [
        f"{name} {f'{value:.2g}' if isinstance(value, float) else short(value)}" for name, value in arm.settings.items()
    ]
    own = [text for text in own if not text.startswith("lr ")]
    return f" ({', '.join(own)})" if own else ""


def _difference(arm: Arm, turned: bool = False) -> str:
    verdict = arm.verdict
    assert verdict is not None
    assert verdict.difference is not None
    assert verdict.low is not None
    assert verdict.high is not None
    if turned:
        return f"{points(-verdict.difference)} points [{points(-verdict.high)}, {points(-verdict.low)}]"
    return f"{points(verdict.difference)} points [{points(verdict.low)}, {points(verdict.high)}]"


def _between(arm: Arm) -> str:
    """The 95% interval of the difference, as the verdict table has it."""
    verdict = arm.verdict
    assert verdict is not None
    assert verdict.low is not None
    assert verdict.high is not None
    if verdict.high <= 0.0:
        return f"{points(-verdict.high)} to {points(-verdict.low)} points worse"
    if verdict.low >= 0.0:
        return f"{points(verdict.low)} to {points(verdict.high)} points better"
    return f"up to {points(-verdict.low)} points worse or up to {points(verdict.high)} points better"


def _bound(arm: Arm) -> str:
    """The size that the difference of an equal method does not exceed: at most the margin."""
    verdict = arm.verdict
    assert verdict is not None
    assert verdict.bound is not None
    return points(min(verdict.bound, verdict.margin))


def _in_time(arm: Arm) -> str:
    return "" if arm.time is None else f", in {arm.time.ratio:.2f} of the time"
