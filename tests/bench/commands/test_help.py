"""``--help`` and ``--version``: what they show, and that neither torch nor pandas is loaded for
them.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import as_lightning
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.settings import names

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "as-lightning": "train",
    "as-lightning-compare": "compare",
    "as-lightning-report": "report",
    "as-lightning-predict": "predict",
}
PROGRAM = """
import atexit, sys
from as_lightning.bench.commands.console import {function}
atexit.register(lambda: print([name for name in ("torch", "pandas") if name in sys.modules]))
sys.argv = {argv}
{function}()
"""


@functools.cache
def printed(command: str, *arguments: str) -> str:
    """What the command prints."""
    program = PROGRAM.format(argv=[command, *arguments], function=COMMANDS[command])
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
    return done.stdout.removesuffix("[]\n")


@pytest.mark.parametrize("command", ["as-lightning", "as-lightning-compare"])
def test_help_starts_with_one_sentence_and_three_examples_and_has_a_line_for_each_experiment_and_method(
    command,
):
    sentence, empty, *examples = printed(command, "--help").splitlines()[:6]
    assert sentence.endswith(".")
    assert empty == examples[3] == ""
    assert all(example.startswith(f"  {command} ") for example in examples[:3])
    for group in ("experiment", "method"):
        for name in names(group):
            text = (config_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
            comment = re.search("^# (?!@package)(.+)", text, re.MULTILINE)
            assert f"\n  {name:<21}  {comment[1]}\n" in printed(command, "--help")


def test_the_help_of_each_command_names_what_can_be_chosen_and_set():
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^(as-lightning\S*) = "', scripts, re.MULTILINE) == list(COMMANDS)
    train, compare, report, _ = (printed(command, "--help") for command in COMMANDS)
    for group in ("data", "model", "logger"):
        (line,) = re.findall(rf"^{group}: (.*)$", train, re.MULTILINE)
        assert set(names(group)) <= set(line.split(", "))
    settings = list(yaml.safe_load((config_dir() / "compare.yaml").read_text(encoding="utf-8")))
    plan = settings[settings.index("methods") : settings.index("search")]
    assert {"methods", "half_epochs", "trials", "seeds", "equal_within"} <= set(plan)
    assert all(f"\n  {setting}: " in compare for setting in plan)
    assert printed("as-lightning-compare") == compare  # a comparison of nothing
    for argument in ("PATH", "--seed COLUMN", "--baseline NAME"):
        assert f"\n  {argument}" in report
    assert printed("as-lightning", "--version") == f"as-lightning {as_lightning.__version__}\n"


TAB = """
complete -p {command}
COMP_LINE='{command} experiment=di' COMP_CWORD=1
COMP_POINT=${{#COMP_LINE}}
hydra_bash_completion
echo "completed: ${{COMPREPLY[*]}}"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("command", ["as-lightning", "as-lightning-compare"])
def test_the_documented_line_installs_the_completion_of_the_command(command, tmp_path, monkeypatch):
    line = f'eval "$({command} -sc install=bash)"'
    assert f"`{line}`" in (ROOT / "docs/running.md").read_text(encoding="utf-8")
    function = COMMANDS[command]
    program = f"#!{sys.executable}\nfrom as_lightning.bench.commands.console import {function}\n{function}()\n"
    (tmp_path / command).write_text(program, encoding="utf-8")
    (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    source = str(Path(as_lightning.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", source, prepend=os.pathsep)
    bash = ["bash", "--norc", "-c", line + TAB.format(command=command)]
    done = subprocess.run(bash, cwd=tmp_path, capture_output=True, text=True, check=True)
    rule, completed = done.stdout.splitlines()
    assert rule.startswith("complete ")
    assert rule.endswith(f"-F hydra_bash_completion {command}")
    assert (completed, done.stderr) == ("completed: experiment=digits", "")
