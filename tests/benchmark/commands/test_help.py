"""``--help`` and ``--version``: what they show, and that nothing of the app is loaded for them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from as_lightning import __version__
from as_lightning.benchmark.commands.help import described, first_comment, help_text, names
from as_lightning.benchmark.packages import config_dir

COMMANDS = ["as-lightning", "as-lightning-compare", "as-lightning-report"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_starts_with_one_sentence_and_three_examples_and_fits_the_width_of_a_page(command):
    sentence, empty, *examples = help_text(command).splitlines()[:6]
    assert sentence.endswith(".")
    assert empty == examples[3] == ""
    assert all(example.startswith(f"  {command} ") for example in examples[:3])
    assert max(map(len, help_text(command).splitlines())) <= 125


@pytest.mark.parametrize("group", ["experiment", "method"])
def test_every_file_of_a_group_has_a_line_with_its_first_comment(group):
    lines = described(group).splitlines()
    files = sorted((config_dir() / group).glob("*.yaml"))
    assert [line.split()[0] for line in lines] == [path.stem for path in files]
    for path, line in zip(files, lines, strict=True):
        assert first_comment(path)
        assert line.endswith(first_comment(path))


def test_help_names_all_data_models_and_loggers_that_can_be_chosen():
    text = " ".join(help_text("as-lightning").split())
    for group in ("data", "model", "logger"):
        assert ", ".join(names(group)) in text
    assert "text_base" not in text


def test_help_of_the_comparison_has_its_settings():
    text = help_text("as-lightning-compare")
    settings = yaml.safe_load((config_dir() / "compare.yaml").read_text(encoding="utf-8"))
    plan = list(settings)[list(settings).index("methods") : list(settings).index("search")]
    assert {"methods", "budgets", "trials", "seeds", "equal_within"} <= set(plan)
    assert all(f"\n  {setting}: " in text for setting in plan)
    assert "Methods (methods=NAME,NAME)" in text
    assert "Methods (method=NAME)" in help_text("as-lightning")


def test_every_command_has_a_help_of_its_own_with_all_its_arguments():
    scripts = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^(as-lightning\S*) = "', scripts, re.MULTILINE) == COMMANDS
    text = help_text("as-lightning-report")
    assert all(f"\n  {argument} " in text for argument in ("PATH ...", "--output FOLDER", "--where SETTING=VALUE"))


@pytest.mark.parametrize("argument", ["--help", "-h", "--version"])
def test_the_answer_loads_neither_torch_nor_hydra(argument):
    program = (
        f"import sys; sys.argv = ['as-lightning', '{argument}']\n"
        "from as_lightning.benchmark.commands.console import train\n"
        "train()\n"
        "assert not {'torch', 'hydra', 'lightning', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (f"as-lightning {__version__}\n" if argument == "--version" else help_text("as-lightning"))
