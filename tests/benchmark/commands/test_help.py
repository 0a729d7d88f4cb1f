"""``--help`` and ``--version``: what they show, and that neither torch nor pandas is loaded for them."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from as_lightning import __version__
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.run.settings import names

COMMANDS = {"as-lightning": "train", "as-lightning-compare": "compare", "as-lightning-report": "report"}
PROGRAM = """
import atexit, sys
from as_lightning.benchmark.commands.console import {function}
atexit.register(lambda: print([name for name in ("torch", "pandas") if name in sys.modules]))
sys.argv = {argv}
{function}()
"""


@functools.cache
def printed(command: str, *arguments: str) -> str:
    """What the command prints."""
    program = PROGRAM.format(argv=[command, *arguments], function=COMMANDS[command])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
    return done.stdout.removesuffix("[]\n")


@pytest.mark.parametrize("command", ["as-lightning", "as-lightning-compare"])
def test_help_starts_with_one_sentence_and_three_examples_and_has_a_line_for_each_experiment_and_method(command):
    sentence, empty, *examples = printed(command, "--help").splitlines()[:6]
    assert sentence.endswith(".")
    assert empty == examples[3] == ""
    assert all(example.startswith(f"  {command} ") for example in examples[:3])
    for group in ("experiment", "method"):
        for path in (config_dir() / group).glob("*.yaml"):
            comment = re.search("^# (?!@package)(.+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert comment is not None
            assert f"\n  {path.stem:<21}  {comment[1]}\n" in printed(command, "--help")


def test_help_names_all_data_models_and_loggers_that_can_be_chosen():
    for group in ("data", "model", "logger"):
        (line,) = re.findall(rf"^{group}: (.*)$", printed("as-lightning", "--help"), re.MULTILINE)
        assert set(names(group)) <= set(line.split(", "))


def test_help_of_the_comparison_has_its_settings():
    settings = yaml.safe_load((config_dir() / "compare.yaml").read_text(encoding="utf-8"))
    plan = list(settings)[list(settings).index("methods") : list(settings).index("search")]
    assert {"methods", "budgets", "trials", "seeds", "equal_within"} <= set(plan)
    assert all(f"\n  {setting}: " in printed("as-lightning-compare", "--help") for setting in plan)


def test_every_command_has_a_help_and_that_of_the_report_has_all_its_arguments():
    scripts = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^(as-lightning\S*) = "', scripts, re.MULTILINE) == list(COMMANDS)
    text = printed("as-lightning-report", "--help")
    assert all(f"\n  {argument}" in text for argument in ("PATH", "--output FOLDER", "--baseline METHOD"))


def test_the_version_is_ours():
    assert printed("as-lightning", "--version") == f"as-lightning {__version__}\n"


def test_a_comparison_of_nothing_is_answered_with_the_help():
    assert printed("as-lightning-compare") == printed("as-lightning-compare", "--help")
