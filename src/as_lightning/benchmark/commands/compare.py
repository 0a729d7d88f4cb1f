"""The command `as-lightning-compare`: Hydra's main with the comparison's sweeper."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml
from omegaconf import DictConfig

from as_lightning.benchmark.commands.jobs import run_command
from as_lightning.benchmark.run.settings import SettingError, override_value


def run_job(config: DictConfig) -> None:
    """One run of a comparison, in a job of a launcher."""
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.compare.configured import launched_job

    launched_job(config)


def as_hydra_reads(word: str) -> str:
    """A word of the command. A knob may be one of the compared methods alone: each method takes what it has. Hydra's
    grammar has no ``=`` inside a list, as candidates need it; they may also be those of a YAML file.

    >>> as_hydra_reads("candidates={wide: [model.width=256]}"), as_hydra_reads("method.delta=0.5")
    ('++candidates={wide:["model.width=256"]}', '++method.delta=0.5')
    """
    key, _, value = word.partition("=")
    key = key.lstrip("+")
    if key == "candidates" or (key.startswith("candidates.") and value[:1] in ("{", "[")):
        try:
            file = key == "candidates" and value.endswith((".yaml", ".yml"))
            found = yaml.safe_load(Path(value).read_text(encoding="utf-8") if file else value)
        except (yaml.YAMLError, OSError, UnicodeError):
            found = None
        if (found and isinstance(found, dict)) or (found is not None and key != "candidates"):
            return f"++{key}={override_value(found)}"
        expected = "'candidates={name: [setting=value, \"setting=[a, b]\", ...]}', in quotes, or a YAML file of these"
        raise SettingError(f"expected {expected}, got {word}")
    return f"++{word}" if word.startswith("method.") else word


def main() -> None:
    """The console script `as-lightning-compare`."""
    # a module of one's own lies where the command is given; other processes of a launcher find it there too
    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    try:
        sys.argv[1:] = [as_hydra_reads(word) for word in sys.argv[1:]]
    except SettingError as error:
        sys.exit(f"as-lightning-compare: {error}")
    if not sys.argv[1:]:  # all defaults are a comparison of the digits, which nobody has asked for
        sys.argv.append("--help")
    if not any(word.startswith("-") for word in sys.argv[1:]):
        sys.argv.append("--multirun")  # else Hydra says of a misspelt setting that methods=a,b is ambiguous
    run_command("compare", run_job)
