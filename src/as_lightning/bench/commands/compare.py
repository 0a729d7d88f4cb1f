"""The command `as-lightning-compare`: Hydra's main with the comparison's sweeper."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml
from omegaconf import DictConfig

from as_lightning.bench.commands.jobs import run_command
from as_lightning.bench.run.settings import SettingError, override_value


def run_job(config: DictConfig) -> None:
    """Make one run of a comparison, as the job of a launcher."""
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.comparison.configured import launched_job

    launched_job(config)


def as_hydra_reads(word: str) -> str:
    """Return a word of the command as an override of Hydra's. Candidates are parsed as YAML, or
    read from a YAML file: Hydra's grammar has no ``=`` inside a list. Methods are a list.

    >>> as_hydra_reads("candidates={wide: [model.width=64]}"), as_hydra_reads("methods=entmax,bce")
    ('++candidates={wide:["model.width=64"]}', 'methods=[entmax,bce]')
    """
    key, _, value = word.partition("=")
    key = key.lstrip("+")
    if key == "methods" and "," in value and not value.startswith("["):
        return f"methods=[{value}]"
    if key != "candidates" and not (key.startswith("candidates.") and value[:1] in ("{", "[")):
        return word
    try:
        if key == "candidates" and value.endswith((".yaml", ".yml")):
            value = Path(value).read_text(encoding="utf-8")
        parsed = yaml.safe_load(value)
    except (yaml.YAMLError, OSError, UnicodeError):
        parsed = None
    if not parsed or (key == "candidates" and not isinstance(parsed, dict)):
        raise SettingError(
            "expected 'candidates={name: [setting=value, \"setting=[a, b]\", ...]}', in quotes, or "
            f"a YAML file of these, got {word}"
        )
    return f"++{key}={override_value(parsed)}"


def main() -> None:
    # the user's module lies here, where a launcher's other processes must find it too
    sys.path.insert(0, os.getcwd())
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{os.getcwd()}{os.pathsep}{path}" if path else os.getcwd()
    try:
        sys.argv[1:] = [as_hydra_reads(word) for word in sys.argv[1:]]
    except SettingError as error:
        sys.exit(f"as-lightning-compare: {error}")
    if not sys.argv[1:]:  # the defaults would compare on the digits, which nobody has asked for
        sys.argv.append("--help")
    if not any(word.startswith("-") for word in sys.argv[1:]):
        sys.argv.append("--multirun")  # else Hydra complains of every comma
    run_command("compare", run_job)
