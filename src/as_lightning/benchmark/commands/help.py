"""`--help` and `--version` of the commands: quick, since nothing of the app is loaded for them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from as_lightning import __version__
from as_lightning.benchmark.packages import config_dir

WIDTH = 120
COLUMN = 21  # the longest name of a method

TRAIN = """\
Train one model and test it, or with -m one for every combination of settings.

  as-lightning experiment=digits
  as-lightning -m experiment=clinc150 method=softmax,as_softmax,as_speed seed=0,1,2
  as-lightning experiment=text_file data.path=reviews.csv name=reviews
"""
OWN_MODULE = """\
Your own module, also from the working directory
  module._target_=my_package.LitModel data._target_=my_package.MyData
  module.replaces=criterion  the attribute that training_step calls as loss(logits, target)
  module.monitor=val/acc     the logged validation metric to compare; module.mode=min if less of it is better
"""
OPTIONS = """\
  --cfg job              print all settings and their values, with what the command changes
  --hydra-help           more options, those of Hydra
  -sc install=bash       shell completion: eval "$({command} -sc install=bash)"
  --version              the version of as-lightning
"""
MULTIRUN = "  -m, --multirun         a run for each combination of settings given with commas, and a report"
COMPARE = """\
Does it help? Tune every method equally, compare at equal time, and get the answer in words.

  as-lightning-compare experiment=digits
  as-lightning-compare experiment=clinc150 budgets=0.25,0.5,1 max_hours=2
  as-lightning-compare experiment=text_file data.path=reviews.csv methods=softmax,as_softmax
"""
REPORT = """\
Write the report of a sweep or of a comparison anew, or one report of several sweeps.

  as-lightning-report comparisons/digits
  as-lightning-report multirun/digits multirun/chords --output both
  as-lightning-report multirun/digits --where trainer.max_epochs=6 --baseline softmax

  PATH ...               folders with result.json or runs.jsonl files below them, or the folder of one comparison
  --output FOLDER        where the report goes; by default 'report' in the first path
  --baseline METHOD      what is compared with; by default softmax, or multilabel_softmax with several labels
  --where SETTING=VALUE  take only the runs with this value of the setting
  --version              the version of as-lightning
"""


def first_comment(path: Path) -> str:
    """The first comment line of a configuration; empty where it has none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line[1:].strip() for line in lines if line[:1] == "#" and not line.startswith("# @package")), "")


def names(group: str) -> list[str]:
    """What can be chosen of a group: not the files that others take their settings from."""
    return sorted(path.stem for path in (config_dir() / group).glob("*.yaml") if not path.stem.endswith("base"))


def described(group: str) -> str:
    """The names of a group, a line each, with the first comment line of its file."""
    folder = config_dir() / group
    return "\n".join(f"  {name:<{COLUMN}}  {first_comment(folder / f'{name}.yaml')}" for name in names(group))


def comparison_settings() -> str:
    """The settings of `compare.yaml` itself, as they stand there with their comments."""
    text = (config_dir() / "compare.yaml").read_text(encoding="utf-8")
    return textwrap.indent(text[text.index("methods:") : text.index("search:")], "  ")


def help_text(command: str) -> str:
    """What `COMMAND --help` prints."""
    if command == "as-lightning-report":
        return REPORT
    experiments = f"Experiments (experiment=NAME)\n{described('experiment')}"
    methods, options = described("method"), OPTIONS.format(command=command)
    if command == "as-lightning-compare":
        own = f"Settings of the comparison, beside those of as-lightning\n{comparison_settings()}\n{OWN_MODULE}"
        return f"{COMPARE}\n{own}\nOptions\n{options}\n{experiments}\n\nMethods (methods=NAME,NAME)\n{methods}\n"
    others = "\n".join(
        textwrap.fill(f"{title} ({group}=NAME): {', '.join(names(group))}", WIDTH, subsequent_indent="  ")
        for group, title in (("data", "Data"), ("model", "Models"), ("logger", "Loggers"))
    )
    single = "Any setting: trainer.max_epochs=5 optimizer.lr=0.003 method.delta=0.2 data.batch_size=64 seed=1"
    groups = f"{experiments}\n\nMethods (method=NAME)\n{methods}"
    return f"{TRAIN}\n{groups}\n\n{others}\n{single}\n\nOptions\n{MULTIRUN}\n{options}"


def answered(command: str, arguments: Sequence[str]) -> bool:
    """Print the help or the version, if the command was asked for one of them alone."""
    if "--version" in arguments:
        print(f"as-lightning {__version__}")
    elif {"-h", "--help"} & set(arguments):
        print(help_text(command), end="")
    else:
        return False
    return True
