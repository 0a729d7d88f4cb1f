"""``runs.csv``, a row for each run: comparisons and sweeps write it; reports read it, and tables of
other origin.
"""

from __future__ import annotations

import csv
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from as_lightning.bench.run.result import Result, whole_file
from as_lightning.bench.run.settings import nearest
from as_lightning.functional.argument_checks import check_choice, check_number
from as_lightning.report.findings import findings
from as_lightning.report.record import BASELINES, ComparisonRecord
from as_lightning.statistics.example_spread import ExampleSpread
from as_lightning.statistics.pairing import TEST_SHARE

RUNS_TABLE = "runs.csv"
JSON = (".jsonl", ".ndjson", ".json")
# names of columns, without the prefixes of trackers; a column with the name of its role goes before
# the others
ROLES = {
    "method": ("candidate", "optimizer", "model", "loss", "algorithm"),
    "seed": ("random_seed", "random_state", "run", "split", "fold", "repeat"),
    "score": ("accuracy", "acc", "test_accuracy", "test_acc", "test_score", "f1", "test_f1"),
    "group": ("dataset", "data_set", "task"),
    "seconds": ("train_seconds",),
}
JOINED = ("method", "group", "seed")  # roles that several columns may fill together
WIDE = {"method", "score"}  # roles without a column of their own where each candidate has one
# more of a score is better where its name has a word of the first list, and beside it only words of
# both lists, none twice, and numbers after it: not so 1-acc, train_acc-val_acc, or best_score,
# which may be a monitored loss
MORE_IS_BETTER = (
    "acc(uracy)?|f[1-9]|(macro|micro|weighted)f1|fbeta|precision|recall|sensitivity|specificity|t[np]r"
    "|(pr|roc)?au(ro|pr)?c|m?ap|m?iou|jaccard|dice|kappa|mcc|matthews|r2|top|hits?|mrr|ndcg|em|match|correct"
    "|success|wins?|(hit|win|success) rate|reward|return|(sacre)?bleu|rouge "
    "?(l(sum)?)?|meteor|chrf|cider|psnr|ssim"
    "|corr(coef|elation)?|spearmanr?|pearsonr?"
)
OF_ANY_SCORE = (
    "val(id(ation)?)?|test(ing)?|eval(uation)?|avg|average|mean|max|best|final|overall|macro|micro|weighted"
    "|balanced|binary|multiclass|multilabel|cohen|exact|roc|pr|at|k|score|coef(ficient)?|dataloader idx"
)
UNITS = {
    "share": "shares (0 to 1)",
    "percent": "percents (0 to 100)",
    "raw": "points of its own unit",
}
WRITTEN = (
    "candidate",
    "phase",
    "metric",
    "epochs",
)  # columns that mark a table of `write_runs`
PREFIX = re.compile(r"^(params|metrics|tags|config|summary)[./]")
# columns that W&B and MLflow write beside the settings and metrics of a run
TRACKED = re.compile(
    "name|agent|state|notes|user|tags|created|runtime|sweep|group|job_type|id|start_time|end_time|duration|run_id"
    "|source_type|source_name|status|experiment_id|artifact_uri"
)
ENDED = (
    "finished",
    "completed",
    "complete",
    "success",
    "succeeded",
    "successful",
    "done",
)  # states of an ended run
# rows below the runs of a sheet
SUMMARY = "mean|avg|average|median|std|stdev|sd|sem|min|max|sum|total|overall"
REMARK = r"(\W*|\W*\(.*|\W*±.*)"  # as in "mean:", "mean (5)" and "mean ± std"
NO_RUN = {
    "group": SUMMARY,
    "index": rf"({SUMMARY}|ø){REMARK}|(?-i:All)",
}  # pandas calls its margins All
NO_RUN["seed"] = rf"({SUMMARY}|all|best|worst|ø){REMARK}|train(ing)?|val(id(ation)?)?|dev|test|eval"
LEFT_OUT = "Left out, since"  # the start of a sentence on rows that are in no verdict
GIVEN = "Read from a table, which does not say whether the candidates were tuned alike: no advice."

OF_VERDICT = (
    "difference",
    "low",
    "high",
    "new_low",
    "new_high",
    "detectable",
    "look",
    "skewed",
    "reason",
)
SHOWN = ["name", "candidate", "difference", "low", "high", "verdict", "pairs", "reason"]
MIN_GROUPS = 3  # the fewest groups whose means allow a verdict


def write_runs(records: Sequence[ComparisonRecord], path: str | Path) -> Path:
    """Write a table of runs: each run's experiment, candidate and seed, score, time, settings
    (JSON) and metrics.

    Failed runs have a row too, as the intervals depend on them. The intervals also depend on
    ``looks``, the numbers of seeds at which the comparison might have stopped, and on ``floor``,
    the smallest standard deviation of a difference to the baseline (see `ExampleSpread`), in
    points.
    """
    rows = []
    paired_by_seed = [
        record for record in records if record.pairs == "seed"
    ]  # a mean over groups is no run
    for record, run in (
        (of, run) for of in paired_by_seed for run in [*of.results, *_failed_runs(of)]
    ):
        looks, spread = record.design.looks, record.spreads.get(run.candidate)
        row = {
            "group": record.name,
            "candidate": run.candidate,
            "seed": run.seed,
        }
        row |= {
            "epochs": run.epochs or len(run.epoch_seconds) or None,
            "phase": run.phase or "final",
        }
        row |= {
            "metric": run.score,
            "score": run.metrics.get(run.score),
            "seconds": run.train_seconds,
        }
        row |= {
            "looks": " ".join(map(str, looks)) if len(looks) > 1 else "",
            "floor": spread and spread.floor,
        }
        row |= {
            "parameters": run.parameters,
            "settings": json.dumps(dict(run.settings), default=str),
        }
        rows.append(row | _beside(row, run.metrics))
    with whole_file(Path(path)) as partial:
        pd.DataFrame(rows).to_csv(partial, index=False)
    return Path(path)


def _beside(row: Mapping[str, Any], metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics; one whose name the row already has is called ``metric_NAME``."""
    return {f"metric_{name}" if name in row else name: value for name, value in metrics.items()}


def _failed_runs(record: ComparisonRecord) -> list[Result]:
    """A result without a score for each missing run of a paired comparison."""
    unknown: dict[str, Any] = {
        "metrics": {},
        "train_seconds": math.nan,
        "epochs": None,
        "epoch_seconds": [],
    }
    unknown |= {"settings": {}, "parameters": None}
    missing = () if record.unpaired else record.missing
    return [replace(record.results[0], candidate=c, seed=seed, **unknown) for c, seed in missing]


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table in CSV, TSV, JSON or JSON lines; a ValueError names the file and the line.

    The cells of CSV stay text, so that a candidate may be named ``None``. The index has the number
    of each row's line, or of its place in a JSON list.
    """
    path, rows, line = Path(path), {}, 1
    try:
        text = path.read_text(encoding="utf-8-sig")
        if not text.strip():
            raise ValueError("the file is empty")
        if path.suffix.lower() not in JSON:
            delimiter = max(",;\t", key=text.partition("\n")[0].count)
            lines = text.splitlines(keepends=True)
            reader = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            for row in reader:
                line = reader.line_num
                if None in row or None in row.values():
                    raise ValueError(
                        f"expected {len(reader.fieldnames or ())} cells, as in the first line"
                    )
                rows[line] = row
            return pd.DataFrame.from_dict(rows, orient="index", columns=reader.fieldnames)
        if text.lstrip().startswith("["):
            rows = dict(enumerate(json.loads(text), 1))
        else:
            for line, content in enumerate(text.splitlines(), 1):
                rows |= {line: json.loads(content)} if content.strip() else {}
        return pd.json_normalize(list(rows.values())).set_axis(list(rows), axis=0)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no table of runs: expected CSV, TSV, JSON or JSON lines in UTF-8"
        ) from error
    except (ValueError, csv.Error, AttributeError, NotImplementedError) as error:
        raise ValueError(f"{path}, line {line}, is no table of runs: {error}") from error


def verdicts(
    frame: pd.DataFrame,
    *,
    baseline: str | None = None,
    columns: Mapping[str, str] | None = None,
    equal_within: float = 0.5,
    mode: Literal["max", "min"] | None = None,
    unit: Literal["auto", "share", "percent", "raw"] = "auto",
    splits: Literal["fixed", "repeated"] = "fixed",
    test_share: float = TEST_SHARE,
) -> pd.DataFrame:
    r"""Judge results that you already have: each candidate against the baseline.

    Runs of the same seed are paired. Without a common seed a candidate and the baseline are
    independent samples (Welch's t-test, its degrees of freedom rounded down). Repeated random
    splits of the same examples share most of what they train on: with ``splits="repeated"`` the
    mean of $n$ differences has the variance $(1/n + \rho) s^2$, with $\rho$ the ratio of test to
    training examples.

    Args:
        frame: a row for each run, with candidate, seed and score; or for each seed, with a column
            for each candidate.
        baseline: the candidate to compare with; without it ``softmax``, ``multilabel_softmax`` or
            ``baseline``.
        columns: the column of the ``method``, ``seed``, ``score``, ``group`` (data set) or
            ``seconds``, where its name does not say it. Several columns, with commas, name a
            method, a seed or a group together.
        equal_within: the difference that counts as equal, in points.
        mode: ``"max"`` if more of the score is better, or ``"min"``; not needed for an accuracy and
            the like.
        unit: ``"share"`` for scores of 0 to 1 (a point is 0.01), ``"percent"`` for 0 to 100,
            ``"raw"`` for others (a point is 1); ``"auto"`` chooses one of the first two, and
            refuses scores of neither.
        splits: ``"repeated"`` if each seed is another random split of the same examples.
        test_share: the share of the examples in such a test split; 0.2, as of five folds, makes
            $\rho$ 0.25.

    Returns:
        A row for each candidate but the baseline: ``candidate``, ``difference`` with ``low`` and
        ``high`` (points, more is better), ``word``, ``pairs`` (0: independent samples), ``reason``
        (why there is no word). Several groups have a column ``group``; from three groups on, the
        last rows are about the means of the groups' differences.

    Raises:
        ValueError: for what cannot be read or would mislead; it names the row.

    Warns:
        UserWarning: about rows that are left out: runs that have not finished, empty cells, groups
            without baseline.

    Source: Nadeau and Bengio, "Inference for the Generalization Error", Machine Learning 52, 2003.

    Examples:
        >>> scores = {"seed": [0, 1, 2], "sgd": [90.1, 90.4, 89.9], "adamw": [93.2, 93.3, 93.1]}
        >>> verdicts(pd.DataFrame(scores), baseline="sgd")[["candidate", "word", "pairs"]].values.tolist()
        [['adamw', 'better', 3]]
    """
    options: dict[str, Any] = {"equal_within": equal_within, "mode": mode}
    options["unit"] = check_choice("unit", unit, ("auto", *UNITS))
    options["splits"] = check_choice("splits", splits, ("fixed", "repeated"))
    records, notes = table_records(frame, "", baseline, columns, test_share=test_share, **options)
    for note in notes:
        if note.startswith(LEFT_OUT):
            warnings.warn(note, stacklevel=2)
    return verdict_table(records)


def numbers(records: Sequence[ComparisonRecord]) -> pd.DataFrame:
    """All numbers of comparisons, a row for each arm."""
    rows: list[dict[str, Any]] = []
    for record, row in ((of, row) for of in records for row in findings(of).rows):
        entry = {
            "name": record.name,
            "candidate": row.arm,
            "epochs": row.epochs,
        }
        entry |= {f"setting_{name}": value for name, value in row.settings.items()}
        entry |= {"seeds": row.seeds, "mean": row.mean, "std": row.std, "seconds": row.seconds}
        entry |= {"verdict": getattr(row.verdict, "word", None)}
        entry |= {name: getattr(row.verdict, name, None) for name in OF_VERDICT}
        entry |= {"pairs": 0 if row.arm in record.unpaired else getattr(row.verdict, "seeds", None)}
        entry |= {f"time_{name}": value for name, value in row.time._asdict().items()}
        rows.append(entry | _beside(entry, row.metrics))
    return pd.DataFrame(rows)


def verdict_table(records: Sequence[ComparisonRecord]) -> pd.DataFrame:
    """The verdicts of comparisons, a row for each, as `verdicts` returns them."""
    table = numbers(records)[SHOWN].rename(columns={"name": "group", "verdict": "word"})
    constant_columns = [name for name in ("group",) if table[name].nunique() == 1]
    table = table[table["word"].notna()].drop(columns=constant_columns).reset_index(drop=True)
    return table.astype({"difference": float, "low": float, "high": float, "pairs": int})


def table_records(
    frame: pd.DataFrame,
    name: str,
    baseline: str | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    mode: str | None = None,
    unit: str = "auto",
    **facts: Any,
) -> tuple[list[ComparisonRecord], list[str]]:
    """A comparison for each group of a table and, from three groups on, one of their means; and
    notes on what was read.

    For the arguments see `verdicts`; ``name`` is the name of the comparison where the table has no
    groups.
    """
    runs, score, notes = _runs(frame, dict(columns or {}))
    baseline = None if baseline is None else str(baseline)  # names of columns may be numbers
    methods = list(runs["method"].unique())
    if baseline is not None and baseline not in methods:
        raise ValueError(f"no run is of the candidate {baseline}: {nearest(baseline, methods)}")
    base = baseline or next(
        (default for default in (*BASELINES, "baseline") if default in methods), None
    )
    if base is None or runs["method"].nunique() == 1:
        request = f"name what the others are compared with, as in --baseline {methods[0]}"
        reason = "there is one candidate alone" if base else request
        raise ValueError(f"nothing is compared: {reason}; there are: {', '.join(methods)}")
    groups = [
        group
        for group, group_runs in runs.groupby("group", sort=False)
        if base in set(group_runs["method"])
    ]
    if runs.groupby(["group", "method"]).size().max() == 1 and len(groups) < MIN_GROUPS:
        raise ValueError(
            "each candidate has one score, of which nobody knows the spread: give at least 3 runs "
            "of each"
        )
    if left_out := [str(group) for group in runs["group"].unique() if group not in groups]:
        notes.append(f"{LEFT_OUT} there is no run of {base}: {', '.join(left_out)}.")
    check_number(
        "test_share",
        facts.get("test_share", TEST_SHARE),
        lambda s: 0 < s < 1,
        "a share above 0 and below 1",
    )
    mode = checked_mode(mode, score)
    unit = _checked_unit(runs["score"].dropna(), unit, mode)
    facts = {"splits": "", **facts, "untuned": GIVEN, "split": "", "mode": mode, "unit": unit}
    notes.append(
        f"{'More' if mode == 'max' else 'Less'} of {score} is better, read as {UNITS[unit]}."
    )
    records = []
    for group in groups:
        group_runs = runs[runs["group"] == group]
        designs = list(group_runs["looks"].unique())
        if len(designs) > 1:
            raise ValueError(
                f"the runs of {group or 'the table'} are of comparisons with other looks: a table "
                "of each"
            )
        looks = [int(number) for number in designs[0].split() if number.isdecimal()]
        in_order = designs[0] == " ".join(map(str, sorted({*looks})))
        if not in_order or (looks and not 1 <= looks[0] <= group_runs["seed"].nunique()):
            wanted = "ascending numbers of seeds, the first at most those of the table, as 5 6 7"
            raise ValueError(f"looks are {wanted}, got {designs[0]!r}")
        record = ComparisonRecord.from_runs(
            _results(group_runs, str(group) or name, score), base, looks=looks, **facts
        )
        floors = group_runs.dropna(subset="floor").groupby("method")["floor"].first()
        floors = (
            floors[:0] if base in floors.index else floors
        )  # of differences to another baseline
        record.spreads = {arm: ExampleSpread(floor, 0.0) for arm, floor in floors.items()}
        if facts["splits"] == "repeated" and record.unpaired:
            raise ValueError(
                "repeated splits are compared in pairs, and not all candidates have a seed of "
                f"{base}'s"
            )
        records.append(record)
    if len(groups) >= MIN_GROUPS:
        name, facts = f"Mean of {len(groups)} groups", {**facts, "splits": "", "pairs": "data set"}
        means = [
            mean for number, record in enumerate(records) for mean in _means(record, name, number)
        ]
        records.append(ComparisonRecord.from_runs(means, base, **facts))
    return records, notes


def _means(record: ComparisonRecord, name: str, number: int) -> Iterator[Result]:
    """A result for each arm: the baseline's mean score plus the arm's mean difference in the seeds
    that both have.
    """
    scores = {
        arm: pd.Series(by_seed, dtype=float) / record.points
        for arm, by_seed in record.scores().items()
    }
    base_scores = scores[record.baseline]
    runs = {run.candidate: run for run in record.results}
    for arm, arm_scores in scores.items():
        differences = (arm_scores - base_scores).dropna()
        mean = base_scores.mean() + differences.mean() if len(differences) else arm_scores.mean()
        yield replace(
            runs[arm], name=name, seed=number, metrics={record.score: mean}, train_seconds=math.nan
        )


def _results(runs: pd.DataFrame, name: str, score: str) -> list[Result]:
    unknown: dict[str, Any] = {"versions": {}, "machine": {}, "session": ""}
    results = []
    for run in runs.to_dict("records"):
        fields = unknown | {
            "epochs": None if math.isnan(run["epochs"]) else run["epochs"],
        }
        metrics, seconds = {score: run["score"]}, run["seconds"]
        results.append(
            Result(name, run["method"], score, int(run["seed"]), metrics, seconds, **fields)
        )
    return results


def _runs(frame: pd.DataFrame, columns: dict[str, str]) -> tuple[pd.DataFrame, str, list[str]]:
    """The runs, with a column for each role; the name of the score; and sentences on what was read
    and left out.
    """
    role_names = {
        *columns.values(),
        *ROLES,
        *(name for names in ROLES.values() for name in names),
    } - {*frame}
    frame = frame.reset_index(
        [name for name in frame.index.names if name in role_names]
    )  # as after pivot and groupby
    if len(duplicates := frame.columns[frame.columns.duplicated()]):
        raise ValueError(
            f"two columns are named {duplicates[0]}: rename one of them, or leave it out"
        )
    plain = {column: re.sub(r"\W+", "_", PREFIX.sub("", str(column).lower())) for column in frame}
    named = [
        column for column in frame if plain[column] and not plain[column].startswith("unnamed_")
    ]
    for column in (column for column in frame if column not in named):
        _texts(frame.dropna(subset=column), "index", [column], empty=True)
    for number, level in enumerate(frame.index.names):
        labels = pd.DataFrame({"index": frame.index.get_level_values(number)}, frame.index)
        # of a named level pandas' margins alone are known to be no run
        _texts(
            labels if level is None else labels[labels["index"].eq("All")],
            "index",
            ["index"],
            empty=True,
        )
    requested = {
        part.lower() for names in columns.values() for part in (str(names), *str(names).split(","))
    }
    not_requested = [
        column for column in frame if not {str(column).lower(), plain[column]} & requested
    ]
    by_write_runs = set(WRITTEN) <= set(frame)
    tracked = (
        []
        if by_write_runs
        else [column for column in not_requested if TRACKED.fullmatch(plain[column])]
    )
    of_tracker = len(tracked) > 3  # an export
    named = [column for column in named if not (of_tracker and column in tracked)]
    status = next((column for column in tracked if plain[column] in ("state", "status")), None)
    frame, notes = (frame, []) if status is None else _ended(frame, status, of_tracker)
    if by_write_runs:
        frame = frame[frame["phase"] == "final"]
        if len(metrics := frame["metric"].unique()) > 1:
            raise ValueError(
                f"the runs have several metrics, {' and '.join(map(str, metrics))}: make a table "
                "of each"
            )
        columns = (
            {"method": "candidate"} | {role: role for role in ROLES if role in frame} | columns
        )
    roles = _roles(frame, {column: plain[column] for column in named}, columns)
    roles |= {name: [name] for name in ("epochs",) if by_write_runs}
    if wide := not roles.keys() & WIDE:
        frame, roles, empty, unread = _melted(frame, named, roles)
        if len(empty):
            notes.append(f"{LEFT_OUT} the cell is empty: {_rows(empty)}.")
        if unread:
            notes.append(
                f"{LEFT_OUT} no cell is a number: the columns {', '.join(map(str, unread))}."
            )
    for role in ("method", "score"):
        if role not in roles:
            present = f"there are: {', '.join(map(str, named))}"
            raise ValueError(
                f"no column is known as the {role}: name it, as in --columns {role}=NAME; {present}"
            )
    if frame.empty:
        raise ValueError("the table has no run that has finished")
    texts = {role: _texts(frame, role, roles[role]) for role in JOINED if role in roles}
    runs = pd.DataFrame({"group": "", **texts})
    runs["score"] = _numbers(frame, roles["score"][0], empty=by_write_runs)
    if (failed := runs["score"].isna()).any():
        notes.append(f"{LEFT_OUT} they have failed: {_rows(frame.index[failed])}.")
    runs["looks"] = _stripped(frame["looks"]) if by_write_runs and "looks" in frame else ""
    main_score = by_write_runs and roles["score"] == ["score"]
    value_columns = {role: role_columns[0] for role, role_columns in roles.items()}
    value_columns |= {"floor": "floor"} if main_score and "floor" in frame else {}
    for role, default in {
        "epochs": math.nan,
        "seconds": math.nan,
        "floor": math.nan,
    }.items():
        runs[role] = (
            _numbers(frame, value_columns[role], empty=True) if role in value_columns else default
        )
    if (negative := runs["seconds"] < 0).any():
        context = f"in the column {roles['seconds'][0]}, got {runs['seconds'][negative].iloc[0]:g}"
        raise ValueError(f"{_rows(frame.index[negative])}: expected seconds of 0 or more {context}")
    if "seed" in roles:
        runs["seed"] = runs["seed"].map(_seed).astype(object)
        _refuse_duplicates(runs, frame)
        if not all(isinstance(seed, int) for seed in runs["seed"]):
            runs["seed"] = runs["seed"].factorize()[0]
    else:
        runs["seed"] = range(len(runs))  # so that no runs are pairs
        notes.append("No column is known as the seed: runs are not paired.")
    name = frame["metric"].iloc[0] if main_score else roles["score"][0]
    read = [
        f"{role} from {' and '.join(map(str, of))}"
        for role, of in roles.items()
        if not (wide and role in WIDE)
    ]
    wide_source = ["a column for each candidate"] if wide else []
    return (
        runs,
        str(name),
        [*notes, f"{runs['score'].count()} runs were read: {', '.join([*wide_source, *read])}."],
    )


def _ended(frame: pd.DataFrame, status: Any, of_tracker: bool) -> tuple[pd.DataFrame, list[str]]:
    """The runs whose status says that they have ended, all if it has no such word; and a note on
    the others.
    """
    ended = frame[status].astype(str).str.lower().isin(ENDED)
    if not ended.any() and frame[status].nunique() > 1:
        states = " or ".join(map(str, frame[status].unique()[:3]))
        raise ValueError(
            f"the column {status} has {states}: leave runs out that have not ended, and the column"
        )
    if ended.all() or not (of_tracker or ended.any()):
        return frame, []
    return frame[ended], [f"{LEFT_OUT} they have not finished: {_rows(frame.index[~ended])}."]


def _roles(
    frame: pd.DataFrame, plain: Mapping[Any, str], requested: dict[str, str]
) -> dict[str, list[Any]]:
    """The columns of each role: those requested, else those with a name of the role."""
    roles: dict[str, list[Any]] = {}
    for role, names in requested.items():
        if role not in ROLES:
            raise ValueError(f"{role}={names} is of no role: {nearest(role, ROLES)}")
        for name in [names] if names in frame else names.split(","):
            matches = [column for column in frame if column == name] or [
                c for c in plain if plain[c] == name.lower()
            ]
            if len(matches) != 1:
                raise ValueError(
                    f"no column is named {name}: {nearest(name, list(map(str, frame)))}"
                )
            roles.setdefault(role, []).extend(matches)
        if len(roles[role]) > 1 and role not in JOINED:
            raise ValueError(f"{role}={names} are several columns: name one of them")
    for role, synonyms in ROLES.items():
        choices = [column for column in plain if plain[column] == role] or [
            c for c in plain if plain[c] in synonyms
        ]
        if len(choices) > 1:  # a constant column tells no runs apart, and numbers are no candidates
            choices = [column for column in choices if frame[column].astype(str).nunique() > 1]
            choices = [
                c
                for c in choices
                if role != "method" or pd.to_numeric(frame[c], errors="coerce").isna().any()
            ]
        if role not in requested and choices:
            if len(choices) > 1:
                names = " or ".join(map(str, choices))
                raise ValueError(f"the {role} may be {names}: say it, as in --columns {role}=NAME")
            roles[role] = choices
    return roles


def _melted(
    frame: pd.DataFrame, named: Sequence[Any], roles: dict[str, list[Any]]
) -> tuple[pd.DataFrame, dict[str, Any], pd.Index, list[Any]]:
    """A table with a column for each candidate as one with a row for each run, and its roles; the
    rows of empty cells, which are no runs; and the columns of text, which are no candidates.
    """
    used = [column for role_columns in roles.values() for column in role_columns]
    unused = [column for column in named if column not in used]
    methods = [
        column for column in unused if pd.to_numeric(frame[column], errors="coerce").notna().any()
    ]
    if any(str(column).endswith("__MIN") for column in methods):
        raise ValueError(
            "this is the export of a chart, a row for each step: export the table of runs"
        )
    header_is_a_run = any(
        frame[column].eq(column).any() for column in unused if column not in methods
    )
    if header_is_a_run and pd.to_numeric(pd.Series(methods), errors="coerce").notna().all():
        raise ValueError(
            f"expected the names of the columns in the first line, got {', '.join(map(str, named))}"
        )
    if len(methods) < 2:
        return frame, roles, frame.index[:0], []
    methods += [
        column for column in unused if _stripped(frame[column]).eq("").all()
    ]  # none of their runs ended
    long = frame.melt(used, methods, "method", "score", ignore_index=False)
    filled = _stripped(long["score"]).ne("")
    unread = [column for column in unused if column not in methods]
    return (
        long[filled],
        roles | {"method": ["method"], "score": ["score"]},
        long.index[~filled],
        unread,
    )


def _stripped(cells: pd.Series) -> pd.Series:
    text = cells.astype(object).where(cells.notna(), "").astype(str).str.strip()
    return text.str.normalize("NFC")  # two forms of one character look the same


def _texts(
    frame: pd.DataFrame, role: str, columns: Sequence[Any], empty: bool = False
) -> pd.Series:
    """The joined text of a role's columns, row by row; refuses summary rows and, unless ``empty``,
    empty cells.
    """
    texts = {column: _stripped(frame[column]) for column in columns}
    for column, text in texts.items():
        if not empty and (blank := text.eq("")).any():
            raise ValueError(f"{_rows(frame.index[blank])}: nothing is in the column {column}")
        if role != "method" and (summaries := text.str.fullmatch(NO_RUN[role], case=False)).any():
            remedy = "leave the row out, or the column"
            raise ValueError(
                f"{_rows(frame.index[summaries])}: {text[summaries].iloc[0]} is no {role}: {remedy}"
            )
    first, *more = columns
    return sum((f", {column}=" + texts[column] for column in more), texts[first])


def _seed(text: str) -> int | str:
    """The seed as an integer where it is written as one, or as 3.0; else the text: 1e5 may be part
    of a digest.
    """
    match = re.fullmatch(r"([+-]?\d+)([.]0*)?", text)
    return int(match[1]) if match else text


def _numbers(frame: pd.DataFrame, column: Any, *, empty: bool = False) -> pd.Series:
    texts = _stripped(frame[column])
    numbers = pd.to_numeric(texts, errors="coerce")  # a date or a bool is no number by its text
    missing = texts.str.fullmatch(
        "(?i)(|#?n/?a|<na>|nan|null|none)"
    )  # as R, pandas and SQL write it
    if (invalid := ~(numbers.abs().lt(math.inf) | (empty & missing))).any():
        cell = str(frame[column][invalid].iloc[0])
        plain = cell.replace(",", ".").strip(" %")  # as 90,1 and 90.1%
        clear = re.fullmatch(r"\d+([.]\d+)?", plain) and not re.fullmatch(
            r"[1-9]\d{0,2},\d{3}", cell
        )  # as 1,090
        hint = f": write {plain}" if clear else ""
        raise ValueError(
            f"{_rows(frame.index[invalid])}: expected a number in the column {column}, got "
            f"{cell!r}{hint}"
        )
    return numbers


def _rows(labels: Sequence[Any]) -> str:
    rows = [*dict.fromkeys(map(str, labels))]
    return f"row{'s' * (len(rows) > 1)} {', '.join(rows[:5])}{', ...' * (len(rows) > 5)}"


def _refuse_duplicates(runs: pd.DataFrame, frame: pd.DataFrame) -> None:
    keys = runs[["group", "method", "seed"]]
    if not keys.duplicated().any():
        return
    duplicates = (keys == keys[keys.duplicated()].iloc[0]).all(axis=1).to_numpy()
    rows, run = frame[duplicates].astype(str), runs[duplicates].iloc[0]
    differing = ", ".join(str(column) for column in rows if rows[column].nunique() > 1) or "nothing"
    raise ValueError(
        f"{_rows(rows.index)} are of one run ({run['method']}, seed {run['seed']}), and differ in "
        f"{differing}: leave "
        "one out, or name what tells them apart, as in --columns method=COLUMN,COLUMN"
    )


def checked_mode(mode: str | None, score: str) -> str:
    """The mode as given, or ``"max"`` where the name of the score says that more is better."""
    plain = PREFIX.sub("", score)
    camel_case = (
        "|(?<=[a-z0-9])(?=[A-Z])"  # testAcc is two words, mAP is one: both splits are tried
    )
    splits = (re.split(rf"[\s_/.@:()[\]%-]+{boundary}", plain) for boundary in ("", camel_case))
    if mode is None and not any(
        _more_is_better(" ".join(words).lower().rstrip()) for words in splits
    ):
        raise ValueError(f"say whether less of {score} is better, mode min, or more, mode max")
    return check_choice("mode", "max" if mode is None else mode, ("max", "min"))


def _more_is_better(words: str) -> bool:
    better, each_once = rf"({MORE_IS_BETTER})[0-9]*", r"(?!.*\b([a-z]+\d*)\b.*\b\1\b)"
    pattern = rf"((val|test) )?score|{each_once}(dev )?(({OF_ANY_SCORE}) )*{better}( ({better}|{OF_ANY_SCORE}|[0-9]+))*"
    return re.fullmatch(pattern, words) is not None


def _checked_unit(scores: pd.Series, unit: str, mode: str) -> str:
    """The unit of scores; refuses a unit that they cannot have, and scores whose unit ``auto``
    cannot tell.
    """
    low, high = float(scores.min()), float(scores.max())
    small, large = scores[scores.abs().between(0, 1, "right")], scores[scores > 1]
    if unit == "auto":
        if low < 0 or high > 100 or (mode == "min" and high > 1):
            span = f"scores of {low:g} to {high:g} may be of any unit"
            raise ValueError(
                f"{span}: say unit percent or, with equal_within in the score's own unit, raw"
            )
        if len(small) and len(large):
            pair = f"row {small.index[0]} has the score {small.iloc[0]:g}, row {large.index[0]} {large.iloc[0]:g}"
            raise ValueError(
                f"{pair}: write all as shares (0 to 1) or all as percents; if they are, say unit "
                "percent"
            )
        return "percent" if len(large) else "share"
    limit = {"share": 1.0, "percent": 100.0}.get(unit, math.inf)
    if limit < math.inf and not scores.between(0, limit).all():
        outside = scores[~scores.between(0, limit)]
        raise ValueError(
            f"row {outside.index[0]} has the score {outside.iloc[0]:g}: a {unit} is from 0 to "
            f"{limit:g}"
        )
    return unit
