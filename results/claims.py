"""Write the table of ``docs/claims.md``: each claim of the paper beside the nearest thing that our
records show.

    python results/claims.py

The paper's numbers stand here; ours are computed from ``runs.csv`` of the comparisons in
``results/``.
"""

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scipy import stats

from as_lightning.report.findings import Row, TimeRatio, findings
from as_lightning.report.record import ComparisonRecord

RESULTS = Path(__file__).resolve().parent
sys.path.insert(0, str(RESULTS / "learning_rate"))
sys.path.insert(0, str(RESULTS / "where_it_pays"))
from experiment import PAPER_RATE, best_rate, complete, paired, read  # noqa: E402
from map import Cell, advised, cells, of_lead, over_data_sets  # noqa: E402
from margin_time import best_margins  # noqa: E402
from written import written  # noqa: E402

PAGE = RESULTS.parent / "docs" / "claims.md"
REPRODUCED, AT_ITS_RATE = "reproduced under other conditions", "reproduced at the paper's rate only"
NOT, UNTESTED = "not reproduced under other conditions", "not tested"
FINE_TUNED = "fine-tuned, one rate (2e-5) for all methods"
ROBERTA = "`{} model.name=roberta-base`; needs a GPU and at least five seeds"
DATA = "needs its data set"
Test = tuple[str, str, str]  # our nearest test, our number, the verdict
HEAD = (
    "| claim | the paper's numbers | its condition | our nearest test | our number | verdict |\n|"
    + " --- |" * 6
    + "\n"
)


@functools.cache
def rows_of(folder: str, score: str | None = None) -> dict[str, Row]:
    """What a comparison has found of each method, by a test metric; without ``multilabel_``."""
    record = ComparisonRecord.read(RESULTS / folder)
    if score is not None:
        rows = [row | {"score": row[score]} for row in record.rows if score in row]
        record = replace(record, score=score, rows=rows)
    return {row.arm.removeprefix("multilabel_"): row for row in findings(record).rows}


def is_softmax(row: Row) -> bool:
    """Whether tuning has chosen a margin of 1: the method's runs are those of softmax."""
    return row.settings.get("delta") == 1.0


def points(mean: float, half: float) -> str:
    """A difference in points with its 95% interval."""
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def untested(why: str) -> Test:
    """What no test of ours is near to."""
    return "–", why, UNTESTED


def data_sets(folder: str) -> list[str]:
    """The data sets with a comparison in a folder of that name."""
    return [path.parts[-3] for path in sorted(RESULTS.glob(f"*/{folder}/design.json"))]


def compared(folder: str, what: str, scores: Sequence[str | None] = (None,)) -> Test:
    """A comparison in which each method is tuned: its intervals and words, and *reproduced* where
    all are better.
    """
    cells: list[str] = []
    names = {"as_softmax": "AS-Softmax", "as_speed": "AS-Speed"}
    words = {names[method]: REPRODUCED for method in rows_of(folder) if method in names}
    for score in scores:
        for name in words:
            row = rows_of(folder, score)[name.lower().replace("-", "_")]
            verdict = row.verdict
            assert verdict is not None
            found = f"{verdict.difference:+.2f} [{verdict.low:+.2f}, {verdict.high:+.2f}], {verdict.word}"
            found = "tuning chose softmax" if is_softmax(row) else found
            cells.append(f"{name}{'' if score is None else f', {score}'}: {found}")
            if verdict.word != "better":
                words[name] = NOT
    each = [
        word if len(set(words.values())) == 1 else f"{name} {word}" for name, word in words.items()
    ]
    how = "MiniLM, its last two layers" if "/fine_tuned" in folder else "from scratch"
    how = "MiniLM, all layers, on a GPU" if folder.endswith("_whole") else how
    test = f"[{what}](../results/{folder}/report/report.md), {how}, each method tuned"
    return test, "; ".join(cells), "; ".join(dict.fromkeys(each))


def tuned_rates(data: str, epochs: int, what: str) -> Test:
    """The runs of results/learning_rate on a data set."""
    methods = complete(read(RESULTS / "learning_rate/runs.jsonl"))[data, epochs]
    own, base = methods["as_softmax 0.1"], methods["softmax"]
    at, of = best_rate(own), best_rate(base)
    best, at_paper = paired(own[at], base[of])[:2], paired(own[PAPER_RATE], base[PAPER_RATE])[:2]
    seeds = min(map(len, own.values()))
    cells = f"at {PAPER_RATE:g}: {points(*at_paper)}; each at its best ({at:g}, {of:g}): {points(*best)}; {seeds} seeds"
    word = NOT
    if at_paper[0] - at_paper[1] > 0:
        word = REPRODUCED if best[0] - best[1] > 0 else AT_ITS_RATE
    test = f"[{what}](../results/learning_rate/README.md), MiniLM, its last two layers, {epochs} epochs"
    return test, f"AS-Softmax {cells}", word


def correlations(folder: str, phase: str, what: str) -> Test:
    """Pearson's correlation of validation loss and score over the evaluations of each run."""
    record = ComparisonRecord.read(RESULTS / folder)
    runs = record.runs[record.runs["phase"] == phase]
    by_candidate = runs.groupby("candidate")["loss_accuracy_correlation"]
    ranges = by_candidate.agg(["mean", "min", "max"])
    cells = [
        f"{row.Index}: {row.mean:+.2f} (from {row.min:+.2f} to {row.max:+.2f})"
        for row in ranges.itertuples()
    ]
    by_method = dict(list(by_candidate))
    own, base = by_method["as_softmax"], by_method["softmax"]
    low, high = stats.ttest_ind(own, base, equal_var=False).confidence_interval()
    cells.append(
        f"as_softmax minus softmax: {own.mean() - base.mean():+.2f} [{low:+.2f}, {high:+.2f}]"
    )
    (evaluations,) = set(runs["epochs"].round().astype(int))  # one an epoch
    test = f"{len(runs)} runs on {what}, {evaluations} evaluations each"
    return test, "; ".join(cells), REPRODUCED if high < 0 else NOT


def times() -> Test:
    """Training time of AS-Speed relative to softmax in all comparisons in which it was not tuned to
    be softmax.
    """
    found: dict[str, TimeRatio] = {}
    for folder, how in (
        ("comparison", ""),
        ("fine_tuned", " (fine-tuned)"),
        ("fine_tuned_whole", " (all layers, on a GPU)"),
    ):
        rows = {name: rows_of(f"{name}/{folder}")["as_speed"] for name in data_sets(folder)}
        found |= {f"{name}{how}": row.time for name, row in rows.items() if not is_softmax(row)}
    cells = "; ".join(
        f"{name} {time.ratio:.2f} [{time.low:.2f}, {time.high:.2f}]" for name, time in found.items()
    )
    reproduced = all(time.ratio < 1 / 1.1 for time in found.values())
    test = f"{len(found)} comparisons, one process each; in the others tuning chose softmax"
    return test, f"time relative to softmax: {cells}", REPRODUCED if reproduced else NOT


def on_two_processes(name: str, network: str) -> Test:
    """Time and score of AS-Speed, and of windows of 4 batches, where each step reduces the
    gradients.
    """
    rows = rows_of(f"accumulation/{name}")
    cells = "; ".join(
        f"{name} {row.time.ratio:.2f} [{row.time.low:.2f}, {row.time.high:.2f}] of softmax's time, "
        f"{row.verdict.difference:+.2f} [{row.verdict.low:+.2f}, {row.verdict.high:+.2f}] points, "
        f"{row.verdict.word}"
        if row.verdict and not is_softmax(row)
        else f"{name}: tuning chose softmax"
        for name, row in rows.items()
        if name != "softmax"
    )
    test = (
        f"[two processes](../results/accumulation/{name}/report/report.md), {network}, each tuned"
    )
    return test, cells, REPRODUCED if rows["as_speed"].time.ratio < 1 / 1.1 else NOT


def variants() -> Test:
    """In how many comparisons with other losses AS-Softmax has the best mean difference
    to softmax.
    """
    best, kinds = (
        {},
        (("comparison", "other_losses", ""), ("fine_tuned", "fine_tuned_other", " (fine-tuned)")),
    )
    compared_with: set[str] = set()
    for name, of, others, how in ((name, *kind) for kind in kinds for name in data_sets(kind[1])):
        beside, own = rows_of(f"{name}/{others}"), rows_of(f"{name}/{of}")
        leads = {
            method: row.verdict.difference if row.verdict else 0.0
            for method, row in (beside | own).items()
        }
        best[name + how] = max(leads, key=lambda method: (leads[method], method == "softmax"))
        compared_with |= {row.arm for row in beside.values() if row.verdict}
    count = sum(method.endswith(("as_softmax", "as_speed")) for method in best.values())
    cells = "; ".join(f"{name}: {method}" for name, method in best.items())
    number = (
        f"the best mean difference has {cells}; AS-Softmax or AS-Speed on {count} of {len(best)}"
    )
    test = f"{len(best)} comparisons with {', '.join(sorted(compared_with))}, each method tuned"
    return test, number, REPRODUCED if count == len(best) else NOT


def ledger() -> list[tuple[str, str, str, Sequence[Test]]]:
    """Each claim with the paper's numbers, its condition, and our tests."""
    macro_micro = "macro 46.87 → 48.30 / 48.14, micro 68.73 → 68.99 / 68.70"
    hierarchy = "macro 80.40 → 80.94 / 81.07, micro 86.00 → 86.39 / 86.71"
    of_few, clinc = "CLINC150, 20 examples a class", "experiment=clinc150 paper=table"
    few, paper_data = tuned_rates("clinc150_20", 6, of_few), tuned_rates("sst5", 6, "SST-5")
    tuned = compared("clinc150_20_shots/fine_tuned", of_few)
    tokens = [
        *(tuned_rates("wnut17", epochs, "WNUT-17") for epochs in (6, 2)),
        compared("wnut17/fine_tuned", "WNUT-17, 3 epochs"),
        compared("wnut17/fine_tuned_longer", "WNUT-17, 6 epochs"),
    ]
    nearest = f"{DATA}; the nearest is the row above"
    macro_and_micro = ("f1_macro", "f1_micro")
    labels = [
        *(
            tuned_rates("goemotions", epochs, "GoEmotions, first 10,000 examples")
            for epochs in (6, 2)
        ),
        compared("goemotions_10k/fine_tuned", "GoEmotions, first 10,000 examples", macro_and_micro),
        compared("goemotions/comparison", "GoEmotions", macro_and_micro),
    ]
    better, own_table = "better than softmax", "its own table has ties and losses, see below"
    return [
        (
            "SST-5, BERT",
            "51.90 → 53.12 / 52.53",
            FINE_TUNED,
            [
                paper_data,
                *(
                    compared(f"sst5/{kind}", "SST-5")
                    for kind in ("fine_tuned_whole", "fine_tuned", "comparison")
                ),
            ],
        ),
        (
            "SST-5, RoBERTa",
            "55.57 → 57.29 / 57.87",
            FINE_TUNED,
            [untested(ROBERTA.format("paper=sst5"))],
        ),
        (
            "CLINC150, BERT",
            "88.60 → 89.07 / 88.78",
            FINE_TUNED,
            [
                few,
                *(tuned_rates("clinc150", epochs, "CLINC150") for epochs in (6, 2)),
                tuned,
                compared("clinc150/fine_tuned", "CLINC150"),
                compared("clinc150/comparison", "CLINC150"),
            ],
        ),
        (
            "CLINC150, RoBERTa",
            "90.76 → 90.96 / 91.25",
            FINE_TUNED,
            [untested(ROBERTA.format(clinc))],
        ),
        ("CoNLL 2003, BERT", "90.56 → 91.03 / 90.58", "fine-tuned; tokens", tokens),
        (
            "SIGHAN, BERT",
            "70.80 → 72.81 / 71.40",
            "fine-tuned; tokens, Chinese spelling",
            [untested(DATA)],
        ),
        ("Eurlex, BERT", macro_micro, "fine-tuned; several labels", labels),
        ("WOS, BERT", hierarchy, "fine-tuned; several labels in a hierarchy", [untested(nearest)]),
        (
            "WikiArt",
            better,
            "images, fine-tuned",
            [compared("cifar10_jpeg/comparison", "CIFAR-10")],
        ),
        ("Chest_falsetto", better, "audio", [compared("fsdd/comparison", "spoken digits")]),
        (
            "Loss and accuracy go together",
            "0.038 → -0.952",
            "SST-5, correlation over a run",
            [
                correlations(
                    "sst5/comparison",
                    "tuning",
                    "SST-5 from scratch, rates and margins as tuning tried them",
                ),
                correlations(
                    "wnut17/fine_tuned_longer",
                    "final",
                    "WNUT-17, MiniLM, its last two layers, tuned",
                ),
            ],
        ),
        (
            "AS-Speed trains faster",
            "1.2 times as fast",
            "several processes or one, not stated",
            [
                times(),
                on_two_processes("processes", "a small CNN on the digits"),
                on_two_processes(
                    "processes_minilm", "CLINC150, 20 examples a class, MiniLM's last two layers"
                ),
            ],
        ),
        ("Better than all variants", own_table, "SST-5 and others", [variants()]),
    ]


def of_glyphs() -> str:
    """Score and time of AS-Softmax beside softmax, with a class for each of many characters."""
    cell = Cell.read(RESULTS / "glyphs")
    seconds = cell.runs.pivot_table(index="seed", columns="candidate", values="train_seconds")
    ratio = (seconds["as_softmax"] / seconds["softmax"]).median()
    delta = cell.record.settings["as_softmax"]["delta"]
    return f"AS-Softmax at {delta:g}: {cell.shown('as_softmax')}, {ratio:.2f} of softmax's time"


def of_map(*kinds: str) -> str:
    """What AS-Softmax gains in the cells of the map that are of these kinds of condition, a data
    set counted once.
    """
    found = [cell for cell in cells() if cell.place[2] in kinds]
    found = [cell for cell in found if cell.place[2] != "natural" or cell.place[3] == "0"]
    best = advised(found) or "none is better than softmax on most data sets"
    return f"{over_data_sets(found, 'as_softmax')} data sets; the best method there: {best}"


def why() -> str:
    """What the controls say of where a lead of AS-Softmax comes from."""
    own = [cell for cell in cells() if "as_softmax" in cell.verdicts]
    better = sum(cell.verdicts["as_softmax"].word == "better" for cell in own)
    controls = [cell for cell in cells("controls") if cell.name.endswith("_decay")]
    stays = sum(cell.verdicts["as_softmax"].word == "better" for cell in controls)
    said = f"regularisation: of {len(controls)} earlier leads {stays} stays with the weight decay of both tuned; "
    said += (
        f"with it tuned everywhere AS-Softmax is better in {better or 'none'} of {len(own)} cells "
        f"(there, trained longer on fresh seeds: {of_lead(own) or 'not run'}). "
    )
    said += "The margin: softmax, `delta` 1, is among its trials. Early stopping by sample: leaving out what softmax has "
    said += "right, against [as many rows at random](../results/skipping.md#against-chance)"
    return said


def questions() -> list[tuple[str, str, str]]:
    """What the paper leaves open: our test, and our number."""
    here = "../results/where_it_pays/README.md"
    cost = json.loads((RESULTS / "performance/few_logits.json").read_text(encoding="utf-8"))["rows"]
    cost += json.loads((RESULTS / "performance/cross_entropy.json").read_text(encoding="utf-8"))[
        "rows"
    ]
    ratios = {
        row["shape"]: row["times"]["with counts"]["ratio"]
        for row in cost
        if row["masked_share"] == 0.0
    }
    times = ", ".join(f"{shape} {ratio:.2f}" for shape, ratio in ratios.items())
    return [
        ("Does it help with a long tail?", f"[the map]({here})", of_map("tail", "natural")),
        ("Does it help with wrong labels?", f"[the map]({here})", of_map("uniform", "pairs")),
        (
            "How does the score depend on the threshold?",
            f"[margins from 0.02 to 1]({here}#accuracy-and-time-by-margin)",
            best_margins(),
        ),
        ("Where would a gain come from?", f"[controls]({here}#does-a-lead-stay)", why()),
        (
            "What does the mask cost?",
            "[time of the loss](../results/performance/cross_entropy.md) relative to "
            "`F.cross_entropy`, nothing masked",
            f"rows x classes: {times}",
        ),
        (
            "More than 100,000 real classes?",
            "[110,039 characters](../results/glyphs/README.md)",
            of_glyphs(),
        ),
    ]


def page() -> str:
    """The page with the table of today's records."""
    table = HEAD
    for *claim, tests in ledger():
        for number, test in enumerate(tests):
            table += "| " + " | ".join([*(["", "", ""] if number else claim), *test]) + " |\n"
    rows = [("question", "our test", "our number"), ("---", "---", "---"), *questions()]
    asked = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return written(PAGE, "results/claims.py", table.rstrip("\n"), asked)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
