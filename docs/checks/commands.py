"""The commands in README and docs are right: Hydra composes them, make has the targets, options are
known.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from as_lightning.bench.commands.compare import as_hydra_reads
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.settings import checked_settings
from as_lightning.comparison.configured import Command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:\.venv/bin/)?(make|as-lightning(?:-[a-z-]+)?)(?=\s|$)")
UNFINISHED = re.compile(r"\.\.\.|<TAB>| -sc ")
MISTAKES = ("as-lightning digits",)  # shown with the error that they give
FENCE = re.compile(r"^ *```(\w*)")


def commands_of(text: str) -> list[str]:
    """The commands in a page's code: lines of blocks (joined where they end in a backslash) and
    spans in a sentence.

    In a ``console`` block a command follows ``$``; the other lines are output.

    A span needs an argument: `as-lightning` alone is a name. Spans with an ellipsis or a key, and
    those that a shell is to read, are no commands.
    """
    commands: list[str] = []
    prose: list[str] = []
    in_fence, in_console = False, False
    lines = iter(text.splitlines())
    for line in lines:
        if fence := FENCE.match(line):
            in_fence = not in_fence
            in_console = in_fence and fence[1] == "console"
        elif in_console and not line.startswith("$ "):
            continue
        elif in_fence or line.startswith("    "):
            while line.endswith("\\"):
                line = line[:-1] + next(lines)
            line = line.removeprefix("$ ").strip()
            if COMMAND.match(line):
                commands.append(line)
        else:
            prose.append(line)
    spans = re.findall(r"`([^`]+)`", " ".join(prose))
    commands += [
        span
        for span in spans
        if COMMAND.match(span) and " " in span and not UNFINISHED.search(span)
    ]
    return [command for command in commands if command not in MISTAKES]


def words_of(command: str) -> list[str]:
    """The command's words: a comment or a pipe ends it."""
    words = shlex.split(command.removeprefix(".venv/bin/"), comments=True)
    return words[: words.index("|")] if "|" in words else words


def documented_commands() -> dict[str, list[str]]:
    """Each command, with the pages that print it."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for command in commands_of(page.read_text(encoding="utf-8")):
            pages = found.setdefault(shlex.join(words_of(command)), [])
            if page.relative_to(ROOT).as_posix() not in pages:
                pages.append(page.relative_to(ROOT).as_posix())
    return found


COMMANDS = documented_commands()
SCRIPTS = dict(
    re.findall(
        r'^(as-lightning\S*) = "(\S+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )
)
HYDRA_APPS = ("as-lightning", "as-lightning-compare")

# what a page's reader would have written: the module and the data of the command that compares
# one's own
MY_PACKAGE = """
from harness.own_modules import Points, WithCriterion as LitModel
from torch.nn import CrossEntropyLoss as Focal

class MyData(Points):
    def __init__(self, root):
        super().__init__()
"""


def called(*programs: str) -> pytest.MarkDecorator:
    """The documented calls of these programs, each once."""
    return pytest.mark.parametrize(
        "command", [command for command in COMMANDS if words_of(command)[0] in programs]
    )


def loader() -> ConfigLoaderImpl:
    return ConfigLoaderImpl(create_config_search_path(str(config_dir())))


def jobs(overrides: list[str]) -> Iterator[list[str]]:
    """Jobs of a sweep that have every value of every swept setting but the seed; a seed changes no
    configuration.
    """
    fixed, swept = [], []
    for override in OverridesParser.create().parse_overrides(overrides):
        if not override.is_sweep_override():
            fixed.append(str(override.input_line))
            continue
        values = list(override.sweep_string_iterator())
        key = str(override.input_line).partition("=")[0]
        swept.append([f"{key}={value}" for value in (values[:1] if key == "seed" else values)])
    for values in zip_longest(*swept):
        yield fixed + [value or choices[-1] for value, choices in zip(values, swept, strict=True)]
    if not swept:
        yield fixed


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    block = "```\nas-lightning a=1 \\\n    b=2  # c\npip install .\n```\n"
    page = f"Call `make setup`, then `as-lightning`.\n{block}    make docs\n"
    assert [words_of(command) for command in commands_of(page)] == [
        ["as-lightning", "a=1", "b=2"],
        ["make", "docs"],
        ["make", "setup"],
    ]


def test_every_program_that_is_called_exists() -> None:
    assert {words_of(command)[0] for command in COMMANDS} <= {*SCRIPTS, "make"}


@called("make")
def test_make_has_the_target(command: str) -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(words_of(command)[1:]) <= set(targets), COMMANDS[command]


@called("as-lightning")
def test_every_job_of_a_documented_call_has_a_configuration(command: str) -> None:
    options = get_args_parser().parse_args(words_of(command)[1:])
    of_jobs = jobs(options.overrides) if options.multirun else [options.overrides]
    for overrides in of_jobs:
        job = loader().load_configuration("train", overrides, run_mode=RunMode.RUN)
        checked_settings(job)  # a setting that nothing reads raises


@called("as-lightning-compare")
def test_a_documented_comparison_is_planned(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_package.py").write_text(MY_PACKAGE, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "my_package", raising=False)  # another test's
    monkeypatch.syspath_prepend(tmp_path)
    overrides = (
        get_args_parser()
        .parse_args([as_hydra_reads(word) for word in words_of(command)[1:]])
        .overrides
    )
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        composer = loader()
        config = composer.load_configuration("compare", overrides, run_mode=RunMode.MULTIRUN)
        Command(config, BasicLauncher(), composer, overrides)


@called(*(script for script in SCRIPTS if script not in HYDRA_APPS))
def test_the_arguments_of_a_documented_call_are_understood(command, tmp_path, monkeypatch, capsys):
    """In an empty folder the call ends because files are missing (status 1), not because of its
    arguments (2).
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words_of(command))
    module, function = SCRIPTS[words_of(command)[0]].split(":")
    with pytest.raises(SystemExit) as end:
        getattr(importlib.import_module(module), function)()
    assert end.value.code not in (0, 2), (capsys.readouterr().err, COMMANDS[command])
