"""``as-lightning-report`` on a table of scores: what it prints, its exit status, and its cost."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pandas as pd
import pytest

from as_lightning.bench.commands.report import main
from as_lightning.statistics.printable import printable

HOSTILE = "x\x1b]0;owned\x07\x1b[2J<img src=x>|_y_ $\\alpha$ & 50%"
SCORES = {
    "main": (90.1, 90.4, 89.9, 90.2, 90.0),
    "better": (93.2, 93.3, 93.1, 93.4, 93.0),
    "worse": (80.3, 80.1, 80.4, 80.0, 80.6),
    "open": (90.3, 90.1, 90.4, 90.0, 90.6),
    "constant": (91.1, 91.4, 90.9, 91.2, 91.0),
}


@pytest.fixture
def report(tmp_path, capsys):
    """The command's status, what it prints and what it says, for some candidates of `SCORES`."""

    def call(*arguments: str, scores=SCORES, names=None, rename=None):
        rows = [
            (name, seed, score)
            for name in names or scores
            for seed, score in enumerate(scores[name])
        ]
        frame = pd.DataFrame(rows, columns=["candidate", "seed", "accuracy"])
        path = tmp_path / "scores.csv"
        frame.rename(columns=rename or {}).to_csv(path, index=False)
        status = 0
        try:
            main([str(path), *arguments])
        except SystemExit as end:
            status = end.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("names", "gate", "status"),
    [
        (["better", "worse"], [], 0),
        (["better", "worse"], ["--fail-if", "worse"], 1),
        (["better", "open"], ["--fail-if", "worse"], 0),
        (["better"], ["--fail-if", "not-better"], 0),
        (["better", "open"], ["--fail-if", "not-better"], 1),
        (["better", "constant"], [], 0),
        (["constant"], [], 2),
        (["better", "constant"], ["--fail-if", "worse"], 2),
        (["worse", "constant"], ["--fail-if", "worse"], 1),
        (["better", "worse"], ["--fail-if", "not-better", "--only", "better"], 0),
    ],
)
def test_the_exit_status_is_that_of_the_gate(report, names, gate, status):
    assert report("--baseline", "main", *gate, names=["main", *names])[0] == status


def test_the_verdicts_come_first_on_one_screen_with_whiskers_on_one_scale(report):
    status, out, _ = report("--baseline", "main", names=["main", "better", "open"])
    lines = out.splitlines()
    assert status == 0
    assert len(lines) <= 16
    assert max(map(len, lines)) <= 80
    assert lines[0] == "accuracy, higher is better, points; equal within 0.5"
    rows = {line.split()[0]: line for line in lines[1:4]}
    assert list(rows) == ["main", "better", "open"]
    assert rows["better"].split()[1:6] == ["better", "93.20", "±", "0.16", "+3.08"]
    # the zero of all rows is in one place, and a better candidate's interval is right of it
    zero = rows["better"].index("|")
    assert zero < rows["better"].index("-", zero) < rows["better"].index("o", zero)
    text = " ".join(out.split())
    assert "more seeds of open and of main would decide a difference of 0.50" in text
    assert "Noise floor" in text
    assert " -0.00" not in text


def test_digits_fit_the_spread(report):
    small = {
        "a": [0.01231 + seed * 1e-5 for seed in range(5)],
        "b": [0.01198 + seed * 2e-5 for seed in range(5)],
    }
    asked = ["--baseline", "a", "--score", "mse", "--equal-within", "0.0001"]
    status, out, _ = report(*asked, scores=small, rename={"accuracy": "mse"})
    assert status == 0
    assert "mse, lower is better (a + is lower), raw; equal within 0.0001" in out
    assert "+0.000310 +0.0002" in out


def test_what_is_missing_is_asked_for_with_the_command_completed(report):
    status, out, err = report("--equal-within", "1", rename={"candidate": "opt", "accuracy": "top"})
    assert (status, out) == (3, "")
    assert "the columns are: opt, seed, top" in err
    command = err[err.index("As in: ") :].split()
    assert command[4:6] == ["--equal-within", "1"]
    assert command[-2:] == ["--candidate", "COLUMN"]
    asked = ["--candidate", "opt"]
    status, out, err = report(*asked, rename={"candidate": "opt", "accuracy": "top"})
    assert err.rstrip().endswith("--candidate opt --score COLUMN")
    status, _, err = report("--baseline", "main", "--score", "top", rename={"accuracy": "top"})
    assert status == 3
    assert err.rstrip().endswith("--higher-is-better")
    status, _, err = report("--basline", "main")
    assert status == 3
    assert "--baseline NAME" in err  # all options


def test_json_says_what_to_do_next(report):
    status, out, _ = report("--baseline", "main", "--format", "json", names=["main", "open"])
    found = json.loads(out)
    assert (status, found["action"], found["candidate"]) == (0, "more_seeds", "open")
    assert found["next_seeds"] > 0
    (answer,) = found["answers"]
    (row,) = answer["candidates"]
    assert row["word"] == "not worse"
    assert row["mean"] - answer["baseline_mean"] == pytest.approx(row["difference"])


def test_several_scores_have_an_answer_each(tmp_path, capsys):
    rows = [
        (name, seed, of, 1 - of / 100)
        for name in ("main", "better")
        for seed, of in enumerate(SCORES[name])
    ]
    path = tmp_path / "two.csv"
    pd.DataFrame(rows, columns=["candidate", "seed", "accuracy", "loss"]).to_csv(path, index=False)
    main([str(path), "--baseline", "main", "--score", "accuracy,loss", "--format", "json"])
    answers = json.loads(capsys.readouterr().out)["answers"]
    words = {answer["score"]: answer["candidates"][0]["word"] for answer in answers}
    assert words == {"accuracy": "better", "loss": "better"}


@pytest.mark.parametrize("form", [None, "html", "latex", "json"])
def test_a_hostile_name_is_text_in_every_form(report, form):
    names = {"main": SCORES["main"], HOSTILE: SCORES["better"], "_x": SCORES["open"]}
    asked = [] if form is None else ["--format", form]
    status, out, _ = report("--baseline", "main", *asked, scores=names)
    assert status == 0
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "<img" not in out or form in (None, "json", "latex")
    if form == "html":
        HTMLParser().feed(out)
        svg = out[out.index("<svg") : out.index("</svg>") + 6]
        texts = [
            text.text
            for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
        ]
        assert "_x" in texts
        assert "prefers-color-scheme: dark" in out
        assert out.index("<svg") < out.index("<table")
    if form == "latex":
        assert r"\_y\_ \$\textbackslash{}alpha\$ \& 50\%" in out
        assert out.count(r"\\") == 4
    status, _, err = report("--baseline", "x", scores=names)
    assert status == 3
    assert "\x1b" not in err


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", " =1"])
def test_no_name_is_a_formula_in_a_sheet(cell):
    assert printable(cell, "csv").startswith("'")


def test_an_autonomous_loop_reads_its_own_table(tmp_path, capsys):
    lines = ["commit\tval_bpb\tmemory_gb\tstatus\tdescription"]
    for commit, scores in {
        "a1b2c3d": (0.9979, 0.9982, 0.9975, 0.9981),
        "b2c3d4e": (0.9932, 0.9935, 0.9929, 0.9934),
        "c3d4e5f": (0.0, 1.005, 1.004, 1.006),
    }.items():
        for score in scores:
            status = "crash" if score == 0 else "keep"
            lines.append(f"{commit}\t{score:.6f}\t44.{len(lines)}\t{status}\tchange {commit}")
    path = tmp_path / "results.tsv"
    path.write_text("\n".join(lines))
    gate = [str(path), "--candidate", "commit", "--baseline", "a1b2c3d", "--format", "json"]
    main([*gate, "--only", "b2c3d4e", "--fail-if", "not-better"])
    found = json.loads(capsys.readouterr().out)
    assert (found["action"], found["candidate"]) == ("keep", "b2c3d4e")
    with pytest.raises(SystemExit) as end:
        main([*gate, "--only", "c3d4e5f", "--fail-if", "not-better"])
    assert end.value.code == 1
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    (row,) = answer["candidates"]
    assert (row["word"], row["missing"], row["runs"]) == ("worse", 1, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_table_needs_neither_torch_nor_much_time_or_memory(tmp_path):
    rows = [(name, seed, SCORES[name][seed]) for name in list(SCORES)[:3] for seed in range(3)]
    path = tmp_path / "nine.csv"
    pd.DataFrame(rows, columns=["candidate", "seed", "accuracy"]).to_csv(path, index=False)
    program = f"""
import sys
sys.argv = ["as-lightning-report", {str(path)!r}, "--baseline", "main"]
from as_lightning.bench.commands.console import report
import as_lightning; as_lightning.verdicts
report()
import time
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
heavy = [name for name in ("torch", "lightning", "matplotlib", "scipy.stats", "jinja2", "rich") if name in sys.modules]
print(time.process_time(), int(peak) / 1024, heavy)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    seconds, megabytes, heavy = done.stdout.splitlines()[-1].split(maxsplit=2)
    assert heavy == "[]"
    assert float(megabytes) <= 150
    assert float(seconds) <= 3  # 0.7 on a quiet machine; the bar is 1.5


def test_a_report_without_its_packages_names_the_extra(tmp_path):
    program = f"""
import sys
sys.argv, sys.modules["pandas"] = ["x", {str(tmp_path / "scores.csv")!r}], None
from as_lightning.bench.commands.console import report
report()
"""
    (tmp_path / "scores.csv").write_text("candidate,seed,accuracy\na,0,1\n")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert 'pandas: pip install ".[report]"' in done.stderr
