"""The written report of a comparison, in Markdown, and in HTML that needs nothing else."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from harness.run_findings import stored

from as_lightning.bench.commands.report import main
from as_lightning.report.page import print_comparison, write_report
from as_lightning.report.record import ComparisonRecord, Trial
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


def check_tables(markdown: str) -> None:
    """Every table has as many cells in each line."""
    tables = re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE)
    assert tables
    for table in tables:
        lines = table.splitlines()
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, table
        assert len(lines) > 2


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
            machine = {"processor": HOSTILE}
            run = result(method, seed, score, seconds=9.0 * budget, **about, machine=machine)
            made.add(run, method, score)
    for method in made.candidates:
        made.tuning[method] = [Trial({"lr": lr}, 0.7 + lr) for lr in (0.01, 0.03, 0.1)]
    made.examples = [
        {"example": f"{HOSTILE} {number}", "target": "tree", "it predicts": "house"}
        for number in range(20)
    ]
    made.failures, made.commands = (
        [f"{HOSTILE}, seed 7: ValueError"],
        ["as-lightning-compare ```\n<script>"],
    )
    return made


def in_order(text, *parts):
    places = [text.index(part) for part in parts]
    return places == sorted(places)


@pytest.mark.parametrize("untuned", ["", "One setting for all, not tuned: no advice."])
def test_the_page_opens_with_the_table_then_the_advice_then_the_figure_and_the_rest_is_folded(
    record, tmp_path, untuned
):
    record.untuned = untuned
    html, markdown = (path.read_text() for path in write_report(record, tmp_path))
    legend, after = "Differences are to", ("<details", "Trials", "Settings and metrics")
    if untuned:
        assert in_order(html, untuned, "<table>", legend, "<figure", *after)
        assert in_order(markdown, untuned, "|", legend, "![", *after)
        assert "advised" not in html + markdown
    else:
        assert in_order(html, "<table>", legend, 'class="advice"', "<figure", *after)
        assert in_order(markdown, "|", legend, "**", "![", *after)


def test_the_page_is_one_file_for_phones_and_the_dark_with_a_figure(record, tmp_path):
    html = write_report(record, tmp_path).html.read_text()
    page = Page(html)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "@media (prefers-color-scheme: dark)" in html
    assert "currentColor" in html
    assert not any({"href", "src", "xlink:href"} & found.keys() for _, found in page.elements)
    assert [tag for tag, _ in page.elements].count("figure") == 1
    drawing = ElementTree.parse(tmp_path / "figures" / "differences.svg").getroot()
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}circle")) == 2


def test_a_hostile_name_writes_no_file_elsewhere_and_no_html(record, tmp_path, capsys):
    folder = tmp_path / "deep" / "report"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "mine.svg").write_text("precious")
    record.name = f"../../escaped/{HOSTILE}"
    paths = write_report(record, folder)
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


def test_a_comparison_shows_its_trials_failures_and_the_examples_on_which_predictions_differ(
    record, tmp_path, capsys
):
    paths = write_report(record, tmp_path)
    text = " ".join(Page(paths.html.read_text()).text.split())
    assert text.count("onerror=alert(1)>|[red]x[/red] $y_1$ 1") >= 11  # examples 1 and 10 to 19
    assert text.count("tree") == text.count("house") == 20
    assert text.count("lr 0.03") == 3  # a trial of each candidate
    assert f"{HOSTILE}, seed 7: ValueError" in text
    assert "in points (a point is 0.01; more is better)" in text
    record.same_as, record.settings = {HOSTILE: "softmax"}, {HOSTILE: {}, "softmax": {}}
    print_comparison(record)
    printed = capsys.readouterr().out
    for said in (printed, write_report(record, tmp_path).markdown.read_text()):
        assert "tuning chose softmax" in said
    assert "undecided" not in printed.partition("Stay")[0]


@pytest.mark.parametrize(("name", "scale", "points"), [("accuracy", 100, 1), ("my_loss", 1, 1)])
def test_a_score_is_in_points_by_its_name_and_is_never_taken_for_a_share_by_its_values(
    record, name, scale, points
):
    share = record.verdicts()[0].difference
    record.score = name
    for row in record.rows:
        row["score"] *= scale
    assert record.points == points
    assert record.verdicts()[0].difference == pytest.approx(share * scale / 100)


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
        made = result(method, seed, 0.8 + number**1.5 / 100, phase="final", **about)
        runs[f"{method}/seed={seed}"] = made
        record.add(made, method, made.metrics[made.score])
    for place, made in runs.items():
        stored(made, folder / place)
    record.write(folder)
    write_report(record, folder / "report")
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


def test_a_comparison_is_reported_by_its_own_design(comparison, refused):
    for argument in (["--baseline", "as_softmax"], ["--lower-is-better"]):
        assert f"{comparison} is a comparison" in refused(comparison, *argument)
    (comparison / "design.json").unlink()
    assert "these are runs of a comparison" in refused(comparison)
    assert "missing" in refused(comparison / "missing")


def test_a_gate_on_a_comparison_ends_with_its_status(comparison):
    main([str(comparison), "--fail-if", "not-better"])
    record = ComparisonRecord.read(comparison)
    replace(record, mode="min").write(comparison)
    with pytest.raises(SystemExit) as end:
        main([str(comparison), "--fail-if", "worse"])
    assert end.value.code == 1
