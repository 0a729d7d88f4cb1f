"""The written report: one page for sweeps and comparisons, in Markdown, CSV and HTML that needs
nothing else.
"""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from harness.run_findings import stored

from as_lightning.bench.commands.report import main
from as_lightning.bench.run.predictions import Predictions
from as_lightning.report.figures import by_time, report_figures
from as_lightning.report.findings import findings
from as_lightning.report.page import print_comparison, write_report
from as_lightning.report.record import ComparisonRecord, Example, Trial
from as_lightning.report.sweep_records import sweep_records
from as_lightning.statistics.printable import printable
from as_lightning.statistics.verdicts import Design

HOSTILE = "<img src=x onerror=alert(1)>|[red]x[/red] $y_1$"


class Page(HTMLParser):
    """Collects the elements' attributes, what a page refers to, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    @property
    def figures(self) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == "figure"]


def check_tables(markdown: str) -> None:
    """Every table has as many cells in each line."""
    tables = re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE)
    assert tables
    for table in tables:
        lines = table.splitlines()
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, table
        assert len(lines) > 2


def write_sweep(results, directory, failed=()):
    records, notes = sweep_records(results)
    return write_report(records, directory, failed=failed, notes=notes)


@pytest.fixture(scope="module")
def results(result):
    masking = [
        {
            "epoch": epoch,
            "masked_samples": 10 * epoch,
            "samples": 100,
            "masked_classes": 0,
            "classes": 900,
        }
        for epoch in range(4)
    ]
    speed = {"seconds": 8.0, "masking": masking, "command": "as-lightning -m method=as_speed"}
    found = []
    for seed, accuracy in enumerate((0.80, 0.81, 0.83)):
        found.append(result("softmax", seed, accuracy, command="as-lightning -m x"))
        found.append(result("as_speed", seed, accuracy + 0.019 + 0.001 * seed, **speed))
        found.append(result("softmax", seed, accuracy - 0.3, name="other"))
    return found


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    """The report of these results, for the tests that only read it."""
    return write_sweep(results, tmp_path_factory.mktemp("report"))


@pytest.fixture
def record(result):
    """A comparison with everything that a page can show, its texts those of a stranger."""
    made = ComparisonRecord(
        "set", "accuracy", "softmax", ["softmax", HOSTILE], Design(looks=(5,)), splits="official"
    )
    made.notes = [HOSTILE]
    made.candidates.append("half")
    for method, budget, lead in (
        ("softmax", 1.0, 0.0),
        (HOSTILE, 1.0, 0.001),
        ("half", 0.5, -0.05),
    ):
        for seed in range(5):
            about: dict[str, Any] = {
                "epochs": 4 * budget,
                "settings": {"lr": 0.01, HOSTILE: HOSTILE},
            }
            score = 0.8 + 0.01 * seed + lead * (1 + 0.1 * (seed % 2))
            run = result(
                method, seed, score, seconds=9.0 * budget, **about, machine={"processor": HOSTILE}
            )
            made.results.append(run)
    for method in made.candidates:
        made.tuning[method] = [Trial({"lr": lr}, 0.7 + lr) for lr in (0.01, 0.03, 0.1)]
    made.disagreed = {HOSTILE: (0.125, 360)}
    words = ("tree", {HOSTILE: "house"})
    made.examples = [Example(f"{HOSTILE} {number}", {HOSTILE: 5}, *words) for number in range(20)]
    made.failures, made.commands = (
        [f"{HOSTILE}, seed 7: ValueError"],
        ["as-lightning-compare ```\n<script>"],
    )
    return made


def in_order(text, *parts):
    places = [text.index(part) for part in parts]
    return places == sorted(places)


def test_the_page_opens_with_the_table_then_the_advice_if_tuned_then_the_figure_and_the_rest_is_folded(
    report, record, tmp_path
):
    untuned, legend = "One setting for all, not tuned: no advice.", "Differences are to"
    after = "<details", "More figures", "Settings and metrics"
    tuned = write_report([record], tmp_path)
    html, markdown = report.html.read_text(), report.markdown.read_text()
    assert in_order(html, untuned, 'class="better"', legend, "<figure", *after)
    assert in_order(markdown, untuned, "| better |", legend, "![", *after)
    assert "Use as_speed" not in html + markdown
    assert "advised" not in html + markdown
    assert in_order(tuned.html.read_text(), "<table>", "<small>", 'class="advice"', "<details")
    assert in_order(tuned.markdown.read_text(), "|", "<small>", "**", "<details")


def test_the_page_is_one_file_for_phones_and_the_dark_with_figures_that_say_what_they_show_and_ids_that_do_not_meet(
    report,
):
    html = report.html.read_text()
    page = Page(html)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "@media (prefers-color-scheme: dark)" in html
    assert "currentColor" in html
    assert "#1d2430" not in html.partition("<body>")[2]
    references = [
        found.get(name, "#") for _, found in page.elements for name in ("href", "src", "xlink:href")
    ]
    assert all(reference.startswith("#") for reference in references)
    assert len(page.figures) == 4  # three of one experiment; the other compares and masks nothing
    assert all(len(figure["aria-label"]) > 40 for figure in page.figures)
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(set(ids)) == len(ids)
    used = set(re.findall(r'(?:url\(#|xlink:href="#)([^")]+)', html))
    assert used
    assert used <= set(ids)


def test_markdown_and_csv_hold_the_same_numbers_all_commands_and_figures_with_lines_on_them(report):
    markdown = report.markdown.read_text()
    check_tables(markdown)
    for file in re.findall(r"\]\((figures/.*?)\)", markdown):
        drawing = ElementTree.parse(report.markdown.parent / file).getroot()
        lines = drawing.findall(".//{http://www.w3.org/2000/svg}path")
        assert len(lines) > (1 if "differences" in file else 5)
    assert "as-lightning -m x\nas-lightning -m method=as_speed\n" in markdown
    assert re.search(
        r"\| as_speed \| 4 \| 83\.33 ± 1\.63 \| \+2\.00 \(.* to .*\) \| better \|", markdown
    )
    row = pd.read_csv(report.csv).set_index(["name", "candidate"]).loc[("set", "as_speed")]
    assert row["verdict"] == "better"
    assert row[
        ["difference", "time_ratio", "masked samples, last epoch"]
    ].tolist() == pytest.approx([2.0, 0.8, 0.3])


def test_the_command_merges_folders_and_prints_the_table(results, report, tmp_path, capsys):
    for index, result in enumerate(results):
        stored(result, tmp_path / result.name / str(index))
    main([str(tmp_path / "set"), str(tmp_path / "other"), "--output", str(tmp_path / "merged")])
    assert "better" in capsys.readouterr().out
    # the same bytes for the same results
    assert (tmp_path / "merged" / "report.html").read_bytes() == report.html.read_bytes()


def test_a_hostile_name_writes_no_file_elsewhere_and_no_html(record, tmp_path, capsys):
    folder = tmp_path / "deep" / "report"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "mine.svg").write_text("precious")
    record.name = f"../../escaped/{HOSTILE}"
    paths = write_report([record], folder)
    assert (folder / "figures" / "mine.svg").read_text() == "precious"
    files = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {("deep", "report")}
    html, markdown = paths.html.read_text(), paths.markdown.read_text()
    page = Page(html)
    assert not any(tag in ("img", "script") or "onerror" in found for tag, found in page.elements)
    assert page.text.count(HOSTILE) > 30
    assert "<img src=x" not in markdown
    assert "<script>" not in markdown.partition("```")[0]
    assert markdown.count("```") == 2
    check_tables(markdown)
    print_comparison(record)
    printed = "".join(
        character for character in capsys.readouterr().out if character not in "│ \n┃"
    )
    assert "[red]x[/red]" in printed


def test_a_comparison_shows_its_trials_budgets_and_the_examples_on_which_predictions_differ(
    record, tmp_path, capsys
):
    paths = write_report([record], tmp_path)
    text = " ".join(Page(paths.html.read_text()).text.split())
    assert f"{HOSTILE} and softmax differ on 12.5% of 360 test examples" in text
    assert text.count("onerror=alert(1)>|[red]x[/red] $y_1$ 1") >= 11  # examples 1 and 10 to 19
    assert text.count("tree") == text.count("house") == 20
    assert "validation accuracy against the learning rate" in text
    assert "mathdefault" not in text  # the labels of a logarithmic axis are numbers
    assert "80% probability" in text
    assert f"{HOSTILE}, seed 7: ValueError" in text
    assert pd.read_csv(paths.csv)["epochs"].tolist() == [4.0, 4.0, 2.0]
    record.same_as, record.settings = {HOSTILE: "softmax"}, {HOSTILE: {}, "softmax": {}}
    print_comparison(record)
    printed = capsys.readouterr().out
    for said in (printed, write_report([record], tmp_path).markdown.read_text()):
        assert "tuning chose softmax" in said
    assert "undecided" not in printed.partition("Stay")[0]


def test_an_experiment_is_reported_by_its_score_and_its_baseline(result, tmp_path):
    labels = {"name": "labels", "score_name": "f1_micro"}
    results = [result("softmax", seed, 0.8) for seed in range(3)]
    results += [
        result(method, seed, 0.5, **labels)
        for method in ("bce", "multilabel_softmax")
        for seed in range(3)
    ]
    baselines = [(record.name, record.baseline) for record in sweep_records(results)[0]]
    assert baselines == [("set", "softmax"), ("labels", "multilabel_softmax")]
    page = Page(write_sweep(results, tmp_path).html.read_text())
    assert any("micro F1 against training time" in figure["aria-label"] for figure in page.figures)
    text = " ".join(page.text.split())
    assert "Test micro F1 in points (a point is 0.01; more is better)" in text
    assert "Differences are to multilabel_softmax, 4 epochs" in text


@pytest.mark.parametrize("mode", ["max", "min"])
def test_an_arm_of_fewer_seeds_is_drawn_at_its_paired_difference_and_time_ratio(result, mode):
    drift = (0.80, 0.81, 0.82, 0.77, 0.75)  # of the baseline, whose later runs were also slower
    runs = [
        result("softmax", seed, value, seconds=10.0 + 10.0 * (seed > 2))
        for seed, value in enumerate(drift)
    ]
    runs += [result("m", seed, value + 0.04, seconds=20.0) for seed, value in enumerate(drift[:3])]
    record = replace(sweep_records(runs)[0][0], mode=mode)
    lines = by_time(findings(record)).set_index("candidate")
    assert lines.y.to_dict() == pytest.approx({"softmax": 79.0, "m": 83.0})
    assert lines.x.to_dict() == pytest.approx({"softmax": 14.0, "m": 28.0})


def test_runs_without_validation_or_training_time_are_reported_and_experiments_of_like_names_have_a_figure_each(
    result, tmp_path
):
    results = [
        result(method, seed, 0.8, seconds=0.0, evaluations=[])
        for method in ("softmax", "m")
        for seed in (0, 1)
    ]
    results += [
        result("softmax", seed, 0.8, name=name) for name in ("a/b", "a?b") for seed in range(3)
    ]
    markdown = write_sweep(results, tmp_path).markdown.read_text()
    assert "| – (2 seeds in common, at least 3 are needed) | 2 |" in markdown
    assert len(list((tmp_path / "figures").iterdir())) == 2


def test_the_figure_of_times_is_of_those_that_can_be_compared(record):
    assert set(by_time(findings(record))["candidate"]) == {"softmax", HOSTILE, "half"}
    record.results = [replace(run, session=run.candidate) for run in record.results]
    names = [figure.name for figure in report_figures(findings(record), 0)]
    assert names == ["differences-0", "learning-rate-0"]


@pytest.mark.parametrize("name", ["_new", "x\x1b]0;owned\x07y", "a<b>&c"])
def test_any_name_is_in_the_legends_as_text_and_the_pictures_are_xml(result, name):
    runs = [result("softmax", seed, 0.8 + seed / 100) for seed in range(3)]
    runs += [result(name, seed, 0.85 + seed / 90, seconds=12.0) for seed in range(3)]
    for figure in report_figures(findings(sweep_records(runs)[0][0]), 1):
        texts = {text.text for text in ElementTree.fromstring(figure.svg).iter() if text.text}
        assert printable(name) in texts


def test_failed_runs_and_runs_that_were_not_tested_are_listed(result, tmp_path):
    failed = ["method=m,seed=0: ValueError: delta must be in [0, 1], got 7 | 8"]
    for results in ([], [result("softmax", 0, 0.8)]):
        report = write_sweep([*results, result("m", 1, 0.8, metrics={})], tmp_path, failed)
        text, markdown = Page(report.html.read_text()).text, report.markdown.read_text()
        assert r"method=m,seed=0: ValueError: delta must be in \[0, 1\], got 7 \| 8" in markdown
        assert failed[0] in text
        assert "Without test metrics, as made with test=false, and left out: m, seed 1." in text


@pytest.fixture
def refused(capsys):
    """Call ``as-lightning-report`` with arguments that it refuses, and give the sentence."""

    def refusal(*arguments: object) -> str:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        assert end.value.code == 3
        said = capsys.readouterr().err
        assert said.startswith("as-lightning-report: ")
        assert "Traceback" not in said
        return said

    return refusal


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("missing", "there is no file and no folder"),
        (".", "no result.json below"),
        ("untested", "has test metrics: make the runs with test=true"),
    ],
)
def test_a_folder_without_results_ends_with_a_message_that_is_not_about_the_output(
    result, refused, tmp_path, folder, message
):
    if folder == "untested":
        stored(result("softmax", 0, 0.8, metrics={}), tmp_path / folder)
    said = refused(tmp_path / folder)
    assert message in said
    assert not list(tmp_path.rglob("report"))
    assert "--output" not in said


@pytest.mark.parametrize(
    "content", ["{}", "[]", '{"format": 2, "na'], ids=["empty", "a list", "cut short"]
)
def test_a_file_that_is_no_result_ends_with_its_path_and_no_traceback(refused, tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    said = refused(tmp_path)
    assert said.startswith(
        f"as-lightning-report: {tmp_path}/result.json is not a result of as-lightning: "
    )


def test_an_output_that_cannot_be_written_ends_with_a_message_and_the_old_report_stays(
    result, refused, tmp_path, full_disk
):
    stored(result("softmax", 0, 0.8), tmp_path / "run")
    (tmp_path / "file").write_text("")
    said = refused(tmp_path / "run", "--output", tmp_path / "file")
    assert f"--output {tmp_path}/file is a file: name a folder" in said
    main([str(tmp_path / "run")])
    files = {path: path.read_bytes() for path in (tmp_path / "run" / "report").rglob("*.*")}
    result("softmax", 1, 0.8).write(tmp_path / "run")
    with full_disk():
        assert "File too large" in refused(tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run" / "report").rglob("*.*")} == files


def test_runs_without_predictions_leave_the_others_to_be_compared(record):
    predictions = {}
    for arm in ("softmax", HOSTILE):
        for seed in range(5):
            guess = np.array([0, 1, seed % 2 if arm == HOSTILE else 0, 0])
            predictions[arm, seed] = Predictions(np.arange(4), guess, np.zeros(4))
    del predictions[HOSTILE, 1]  # whose file could not be read
    record.compare_predictions(predictions, {2: "the third"})
    assert record.disagreed[HOSTILE] == (pytest.approx(1 / 4 / 4), 4)
    assert record.examples == [("the third", {HOSTILE: 1}, "", {})]


def scaled(record, **times):
    """The comparison with each method's scores in another unit."""
    runs = [
        replace(
            run,
            metrics={
                "accuracy": times.get(run.candidate, times["other"]) * run.metrics["accuracy"]
            },
        )
        for run in record.results
    ]
    return replace(record, results=runs)


@pytest.mark.parametrize(("scale", "points"), [(1.0, "a point is 0.01"), (100.0, "in percent")])
def test_a_metric_in_percent_has_the_verdicts_of_the_same_metric_as_a_share(
    record, tmp_path, scale, points
):
    shares, found = findings(record).rows, findings(scaled(record, other=scale)).rows
    assert [row.verdict and row.verdict.word for row in found] == [
        row.verdict and row.verdict.word for row in shares
    ]
    assert found[1].verdict.difference == pytest.approx(shares[1].verdict.difference)
    page = write_report([scaled(record, other=scale)], tmp_path).markdown.read_text()
    assert f"in points ({points}; more is better)" in page


@pytest.fixture
def comparison(result, tmp_path):
    """The folder of a finished comparison of two methods, with a run of its tuning."""
    folder = tmp_path / "comparisons" / "digits"
    record = ComparisonRecord(
        "digits", "accuracy", "softmax", ["softmax", "as_softmax"], Design(looks=(3,))
    )
    record.commands = ["as-lightning-compare experiment=digits"]
    record.settings = {method: {} for method in record.candidates}
    about = {"epochs": 4, "settings": {}}
    tuned = result("softmax", 1000, 0.8, metrics={}, phase="tuning", **about)
    runs = {"tuning/softmax/trial=0,seed=1000": tuned}
    for number, (method, seed) in enumerate(
        (method, seed) for method in record.candidates for seed in range(3)
    ):
        made = result(method, seed, 0.8 + number / 100, phase="final", **about)
        runs[f"{method}/seed={seed}"] = made
        record.add(made, method, made.metrics[made.score])
    for place, made in runs.items():
        stored(made, folder / place)
    record.write(folder)
    write_report([record], folder / "report")
    return folder


def test_the_folder_of_a_comparison_gives_its_report(comparison, capsys):
    report = comparison / "report" / "report.md"
    before = report.read_text(encoding="utf-8")
    report.unlink()
    main([str(comparison)])
    assert report.read_text(encoding="utf-8") == before
    printed = capsys.readouterr().out
    assert "differences to softmax, 4 epochs" in printed
    assert str(report) in printed


def test_a_comparison_is_reported_whole_and_alone(comparison, refused):
    for argument in (["--baseline", "as_softmax"], [comparison.parent]):
        assert f"{comparison} is a comparison, which is reported whole and alone" in refused(
            comparison, *argument
        )
    for path in (comparison.parent, comparison / "softmax"):
        assert "these are runs of comparisons: give the folder of one that has ended" in refused(
            path
        )
    assert f"{comparison} is no table, for which alone --lower-is-better" in refused(
        comparison, "--lower-is-better"
    )
