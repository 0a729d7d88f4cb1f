"""The written report: Markdown, CSV, and a page that needs nothing else."""

from __future__ import annotations

import base64
import errno
import os
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from as_lightning.benchmark.commands.report import main
from as_lightning.benchmark.report.report import FailedRun, print_comparison, write_report


class Page(HTMLParser):
    """Collects images, links and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[dict[str, str]] = []
        self.references: list[str] = []
        self.meta: list[dict[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "img":
            self.images.append(found)
        if tag == "meta":
            self.meta.append(found)
        self.references += [found[name] for name in ("href", "src") if name in found]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def results(result):
    masking = [
        {"epoch": epoch, "masked_samples": 10 * epoch, "samples": 100, "masked_classes": 0, "classes": 900}
        for epoch in range(4)
    ]
    windows = [[0, 0, 1, 0, 32], [0, 1, 1, 8, 32], [0, 2, 2, 40, 64]]
    found = []
    for seed, accuracy in enumerate((0.80, 0.81, 0.83)):
        found.append(result("softmax", seed, accuracy))
        lead = 0.019 + 0.001 * seed
        found.append(result("as_speed", seed, accuracy + lead, seconds=8.0, masking=masking, accumulation=windows))
        found.append(result("softmax", seed, accuracy - 0.3, name="other"))
    return found


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    """The report of these results, for the tests that only read it."""
    return write_report(results, tmp_path_factory.mktemp("report"), commands=["as-lightning -m x"])


def test_the_page_is_one_file_with_figures_that_say_what_they_show(report):
    page = Page(report.html.read_text())
    assert page.references
    assert all(reference.startswith("data:image/png;base64,") for reference in page.references)
    assert len(page.images) == 6  # four of one experiment; the other masks nothing
    assert all(len(image["alt"]) > 40 for image in page.images)
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.meta


def test_the_words_come_first_and_the_details_are_folded(report):
    html, markdown = report.html.read_text(), report.markdown.read_text()
    words = "set: as_speed is better than softmax by 2.0 points"
    assert words in Page(html).text
    assert html.index(words) < html.index("<table") < html.index("<details>") < html.index("p (Holm)")
    assert markdown.index(words) < markdown.index("## Test scores")


def test_a_page_and_its_figures_have_a_dark_form(report):
    html = report.html.read_text()
    assert "@media (prefers-color-scheme: dark)" in html
    assert html.count('media="(prefers-color-scheme: dark)"><img') == len(Page(html).images)


def test_the_figures_are_pictures_with_something_on_them(report):
    page = Page(report.html.read_text())
    for image in page.images:
        picture = Image.open(BytesIO(base64.b64decode(image["src"].split(",", 1)[1]))).convert("RGB")
        assert picture.width > 400
        assert len(picture.getcolors(1_000_000)) > 50


def test_markdown_tables_have_a_cell_for_every_column_and_the_best_in_bold(report):
    markdown = report.markdown.read_text()
    assert "as-lightning -m x" in markdown
    for table in re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE):
        lines = table.splitlines()
        assert len({line.count("|") for line in lines}) == 1, table
        assert len(lines) > 2
    assert re.search(r"\| as_speed \| \*\*83\.33 ± 1\.63\*\* \(better\) \| – \|", markdown)
    assert re.search(r"\| softmax \| 81\.33 ± 1\.53 \(baseline\) \| \*\*51\.33 ± 1\.53\*\* \(baseline\) \|", markdown)
    for figure in re.findall(r"\]\((figures/.*?)\)", markdown):
        assert (report.markdown.parent / figure).stat().st_size > 1000


def test_the_csv_holds_the_same_numbers(report):
    rows = pd.read_csv(report.csv).set_index(["name", "method"])
    assert rows.loc[("set", "as_speed"), "difference"] == pytest.approx(0.02)
    assert rows.loc[("set", "as_speed"), "train"] == pytest.approx(0.8)
    assert rows.loc[("set", "as_speed"), "final_masking_ratio"] == pytest.approx(0.3)


def test_the_command_merges_folders_and_prints_the_table(results, tmp_path, capsys):
    for index, result in enumerate(results):
        folder = tmp_path / result.name / str(index)
        folder.mkdir(parents=True)
        result.write(folder)
    main([str(tmp_path / "set"), str(tmp_path / "other"), "--output", str(tmp_path / "merged")])
    printed = capsys.readouterr().out
    assert "better" in printed
    assert (tmp_path / "merged" / "report.html").exists()


def test_figures_are_the_same_bytes_for_the_same_results(report, results, tmp_path):
    again = write_report(results, tmp_path, commands=["as-lightning -m x"])
    assert again.html.read_bytes() == report.html.read_bytes()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "missing", "missing does not exist"),
        (lambda folder: folder, "no result.json below"),
    ],
)
def test_a_folder_without_results_ends_with_a_message_and_no_traceback(tmp_path, capsys, make, message):
    with pytest.raises(SystemExit) as exit_:
        main([str(make(tmp_path))])
    assert exit_.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "result.json is not a result of as-lightning: expected format 2, got None"),
        ("[]", "result.json is not a result of as-lightning: "),
        ('{"format": 2, "na', "result.json is not a result of as-lightning: "),
        ('{"format": 2, "name": "x", "method": "m", "score": "s", "seed": "one"}', "expected seed to be an integer"),
    ],
    ids=["empty", "a list", "cut short", "a seed that is text"],
)
def test_a_file_that_is_no_result_ends_with_its_path_and_no_traceback(tmp_path, capsys, content, message):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(SystemExit) as exit_:
        main([str(tmp_path)])
    assert exit_.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(f"as-lightning-report: {tmp_path}")
    assert message in said


def test_a_report_says_equal_and_inconclusive_as_a_tuned_comparison_does(result, tmp_path, capsys):
    leads = {"softmax": (0.0, 0.0, 0.0), "same": (0.001, 0.0011, 0.0009), "unclear": (0.02, -0.015, 0.005)}
    results = [
        result(method, seed, 0.8 - 0.01 * seed + lead)
        for method, differences in leads.items()
        for seed, lead in enumerate(differences)
    ]
    report = write_report(results, tmp_path)
    markdown, html = report.markdown.read_text(), report.html.read_text()
    assert "set: equal to softmax within 0.5 points: same." in markdown
    assert "set: inconclusive against softmax (neither a difference nor equality is shown): unclear." in markdown
    assert re.search(r"^\| same \| .* \(equal within 0\.5 points\) \|$", markdown, flags=re.MULTILINE)
    assert re.search(r"\| inconclusive: a difference below \d+\.\d points could not have been seen \|", markdown)
    assert 'class="equal">equal within 0.5 points<' in html
    assert 'class="inconclusive">inconclusive<' in html
    assert pd.read_csv(report.csv)["verdict"].tolist() == ["baseline", "equal", "inconclusive"]
    print_comparison(results)
    printed = capsys.readouterr().out
    assert "equal within 0.5 points" in printed
    assert "inconclusive" in printed


def test_an_experiment_is_reported_by_its_score_and_its_baseline(result, tmp_path):
    labels = {"name": "labels", "score_name": "f1_micro"}
    results = [result("softmax", seed, 0.8) for seed in range(3)]
    results += [result(method, seed, 0.5, **labels) for method in ("bce", "multilabel_softmax") for seed in range(3)]
    report = write_report(results, tmp_path)
    markdown, page = report.markdown.read_text(), Page(report.html.read_text())
    assert markdown.startswith("# Comparison with softmax or multilabel_softmax\n")
    assert "| method | set, accuracy | labels, micro F1 |" in markdown
    assert "| micro F1, % | difference to multilabel_softmax, points" in markdown
    assert "| accuracy, % | difference to softmax, points" in markdown
    assert any("Validation micro F1 against training time on labels" in image["alt"] for image in page.images)
    assert "difference to multilabel_softmax" in page.text


def test_what_became_of_wrong_labels_is_reported_where_there_were_some(result, tmp_path):
    noise = {"accuracy": 0.6, "memorised": 0.253, "recovered": 0.5}
    results = [result("softmax", seed, 0.8, name="clean") for seed in range(3)]
    results += [result("softmax", seed, 0.6, name="noisy", metrics=noise) for seed in range(3)]
    report = write_report(results, tmp_path)
    _, clean, noisy = re.split(r"^## (?:clean|noisy)$", report.markdown.read_text(), flags=re.MULTILINE)
    assert "wrong labels" not in clean
    assert "| wrong labels memorised, % | wrong labels recovered, % |" in noisy
    assert re.search(r"\| 25\.30 \| 50\.00 \|$", noisy, flags=re.MULTILINE)
    for section in (clean, noisy):
        lines = [line for line in section.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1
    page = report.html.read_text()
    assert page.count("memorised") == page.count("recovered") == 1


def test_a_hostile_name_writes_no_file_elsewhere_and_no_html(result, tmp_path):
    hostile = "../../escaped/<img src=x onerror=alert(1)>|x"
    results = [result(method, seed, 0.8, name=hostile) for method in ("softmax", "<b>|m`[a](b)") for seed in range(3)]
    folder = tmp_path / "deep" / "report"
    report = write_report(results, folder, commands=["as-lightning ```\n<script>"])
    assert {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()} == {
        ("deep", "report")
    }
    markdown, page = report.markdown.read_text(), report.html.read_text()
    for text in (markdown, page):
        assert "<img src=x" not in text
        assert "<b>" not in text
    for table in re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert markdown.count("```") == 2


def test_names_that_become_the_same_file_name_have_a_figure_each(result, tmp_path):
    results = [result("softmax", seed, 0.8, name=name) for name in ("a/b", "a?b") for seed in range(3)]
    write_report(results, tmp_path)
    assert len(list((tmp_path / "figures").iterdir())) == 4


def test_runs_without_validation_or_training_time_are_reported(result, tmp_path):
    results = [result(method, seed, 0.8, seconds=0.0, evaluations=[]) for method in ("softmax", "m") for seed in (0, 1)]
    markdown = write_report(results, tmp_path).markdown.read_text()
    assert "| m | 2 | 80.00 ± 0.00 | +0.00 | – | no verdict: 2 seeds in common, at least 3 are needed |" in markdown
    assert "(no verdict)" in markdown


def test_a_sweep_of_runs_that_were_not_tested_ends_with_a_report_that_says_so(result, tmp_path):
    report = write_report([result("softmax", seed, 0.8, metrics={}) for seed in range(7)], tmp_path)
    note = "7 runs without test metrics, as made with test=false, are left out: softmax, seed 0; "
    assert note in report.markdown.read_text()
    assert note in Page(report.html.read_text()).text
    assert "and 2 more" in report.markdown.read_text()


def test_failed_runs_are_listed_with_their_errors(result, tmp_path):
    failed = [FailedRun("method=m,seed=0", "ValueError: delta must be in [0, 1], got 7 | 8")]
    report = write_report([result("softmax", 0, 0.8)], tmp_path, failed=failed)
    assert r"| method=m,seed=0 | ValueError: delta must be in \[0, 1\], got 7 \| 8 |" in report.markdown.read_text()
    assert "delta must be in [0, 1], got 7 | 8" in Page(report.html.read_text()).text


def test_the_report_lists_all_commands_that_made_its_runs(result, tmp_path):
    results = [result("softmax", seed, 0.8, command=f"as-lightning -m seed={seed}") for seed in (0, 1)]
    markdown = write_report(results, tmp_path).markdown.read_text()
    assert "as-lightning -m seed=0\nas-lightning -m seed=1\n" in markdown


REASONS = {
    "a file": "file/figures: Not a directory",
    "below a file": "file/x",
    "a device without space": "No space left on device",
    "a read-only folder": "/sys/kernel/report: ",
}


@pytest.mark.parametrize("kind", REASONS)
def test_an_output_that_cannot_be_written_ends_with_a_message(result, tmp_path, capsys, kind):
    (tmp_path / "run").mkdir()
    result("softmax", 0, 0.8).write(tmp_path / "run")
    (tmp_path / "file").write_text("")
    output = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "x",
        "a device without space": tmp_path / "full",
        "a read-only folder": Path("/sys/kernel/report"),  # the administrator cannot make a folder there either
    }[kind]
    if kind == "a device without space":
        output.mkdir()
        (output / "report.md").symlink_to("/dev/full")
    if kind == "a read-only folder" and not output.parent.is_dir():
        pytest.skip("needs Linux's /sys")
    with pytest.raises(SystemExit) as exit_:
        main([str(tmp_path / "run"), "--output", str(output)])
    assert exit_.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("as-lightning-report: ")
    assert REASONS[kind] in said
    assert said.endswith(": give another folder with --output\n")
    assert "Traceback" not in said


def test_a_report_that_has_become_read_only_is_named_with_the_true_error(result, tmp_path, capsys, monkeypatch):
    result("softmax", 0, 0.8).write(tmp_path)
    main([str(tmp_path)])

    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    said = capsys.readouterr().err
    assert said.startswith(f"as-lightning-report: cannot write to {tmp_path / 'report'} (")
    assert "Permission denied" in said


def test_results_that_cannot_be_read_are_no_matter_of_the_output(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "missing")])
    said = capsys.readouterr().err
    assert said.startswith(f"as-lightning-report: {tmp_path / 'missing'} does not exist")
    assert "--output" not in said
