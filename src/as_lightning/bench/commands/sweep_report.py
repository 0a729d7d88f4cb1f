"""What the runs of a sweep show: their table, and the verdicts on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.statistics.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from as_lightning.statistics.judge import Answer, Question

BASELINES = ("softmax", "multilabel_softmax")  # the default baselines
ABOUT = ["dataset", "candidate", "seed", "train_seconds"]  # columns beside the scores


class ReportCallback(Callback):
    """Writes the table of a sweep, ``runs.csv``, and prints its verdicts, when all runs have ended.

    After a failed run Hydra does not call it: ``as-lightning-report FOLDER`` prints the same.
    Launchers pass this callback to their jobs, which run in other processes and on other machines:
    each job adds a line with its folder to a file.
    """

    folders = Path()

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        # resolved here for all jobs, also with a sweep.dir of one's own: see `shared_settings`
        str(config.hydra.sweep.subdir)
        folder = Path(config.hydra.sweep.dir).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self.folders = folder / ".folders"
        self.folders.write_text("", encoding="utf-8")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode == RunMode.MULTIRUN:
            with self.folders.open("a", encoding="utf-8") as file:
                file.write(f"{config.hydra.sweep.dir}\t{config.hydra.sweep.subdir}\n")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        # here: refusals need not wait for torch and pandas
        from as_lightning.bench.run.summary import tensorboard_lines
        from as_lightning.statistics.answer import screen
        from as_lightning.statistics.judge import Question

        lines = self.folders.read_text(encoding="utf-8").splitlines()
        self.folders.unlink()
        places = [line.split("\t") for line in sorted(set(lines))]
        sweeps = list(dict.fromkeys(Path(sweep) for sweep, _ in places))
        table = sweep_table([Result.read(Path(*place) / RESULT_FILE) for place in places])
        safe = table.map(lambda cell: printable(cell, "csv") if isinstance(cell, str) else cell)
        safe.to_csv(sweeps[0] / "runs.csv", index=False)
        try:
            answers, refused = sweep_answers(table, Question())
            print("\n".join([screen(answers), *refused]))
        except ValueError as error:
            print(f"{safe.to_string(index=False)}\nNo verdict: {printable(error)}")
        print(f"table: {sweeps[0] / 'runs.csv'}")
        for sweep in sweeps:
            for line in tensorboard_lines(sweep):
                print(f"tensorboard: {line}")


def sweep_table(results: Sequence[Result]) -> pd.DataFrame:
    """Return a row for each run with test metrics: data set, candidate, seed, seconds and score.

    A candidate is a method and its settings that vary; runs that differ in anything else are of
    another data set, as ``digits, trainer.max_epochs=1``. The same run twice counts
    once, by its mean.
    """
    import pandas as pd

    from as_lightning.bench.run.identity import RunIdentity

    if any(run.phase for run in results):
        raise ValueError(
            "these are runs of a comparison, which has not ended: give a folder with design.json"
        )
    rows, settings = [], []
    for run in filter(lambda run: run.metrics, results):
        about = (run.name, run.candidate, run.seed, run.train_seconds)
        rows.append(dict(zip(ABOUT, about, strict=True)) | {run.score: run.metrics[run.score]})
        identity = RunIdentity.of(run.config, run.inputs)
        inputs = {name if "." in name else f"inputs.{name}": of for name, of in run.inputs.items()}
        settings.append({**identity.config, **inputs})
    if not rows:
        raise ValueError("no run has test metrics: make the runs with test=true")
    table = pd.DataFrame(rows)
    read = pd.DataFrame(settings, dtype=object).fillna("null")
    read = read.drop(columns=["seed", "name"], errors="ignore")
    read = read[sorted(read, key=lambda key: (len(key), key))]
    own = read.columns.str.startswith("method.")
    for keys, columns in ((ABOUT[:1], read.columns[~own]), (ABOUT[:2], read.columns[own])):
        for _, of_one in table.groupby(keys, sort=False):
            titles = of_one[keys[-1]]
            for column in columns:
                longer = titles + f", {column.removeprefix('method.')}=" + read[column]
                if longer.nunique() > titles.nunique():
                    titles = longer.dropna()
            table.loc[of_one.index, keys[-1]] = titles
    runs = table.groupby(ABOUT[:3], sort=False, as_index=False)
    return runs.agg(lambda of_run: of_run.mean(skipna=False))


def sweep_answers(table: pd.DataFrame, question: Question) -> tuple[list[Answer], list[str]]:
    """Return the answer on each data set of a sweep, and a sentence on each without one.

    The baseline is softmax, or else the first method. Without any answer a ValueError says why.
    """
    from as_lightning.statistics.judge import answers_of
    from as_lightning.statistics.runs import Runs

    answers, refused = [], []
    for dataset, of_one in table.groupby("dataset", sort=False):
        score = str(of_one.drop(columns=ABOUT).notna().any().idxmax())
        names = list(of_one["candidate"].unique())
        defaults = [name for name in names if name.partition(",")[0] in BASELINES]
        asked = question
        if not question.baseline and question.target is None:
            asked = replace(question, baseline=[*defaults, *names][0])
        try:
            answers += answers_of(Runs(of_one.rename(columns={score: "score"}), score), asked)
        except ValueError as error:
            refused.append(f"{dataset}: {printable(error)}")
            first = error
    if not answers:
        raise first
    return answers, refused
