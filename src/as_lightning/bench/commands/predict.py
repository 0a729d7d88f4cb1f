"""The command `as-lightning-predict`: the classes that a finished run gives to new data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from omegaconf import OmegaConf, open_dict

from as_lightning.bench.commands.mistakes import in_words, is_mistake
from as_lightning.bench.run.result import RESULT_FILE, Result, own_file
from as_lightning.bench.run.settings import SettingError, nearest

TAKEN = ("data.path", "data.text_column", "data_dir", "output")
USAGE = """Write the classes that a run of as-lightning gives to new data, by its best checkpoint.

  as-lightning-predict RUN_FOLDER data.path=new.csv [data.text_column=text] [output=labels.csv]

It writes new.predictions.csv in the working directory. data.path is a table with a column of
texts, a text file with a sentence a line for a run that tags, or a folder of images or clips. A
table has the form of the run's own: its header or columns, separator, quotation marks and
encoding. The run's own data are read again, since its classes and its tokens come from them: call
the command where the run was made, with the same data_dir.
"""


def predict(folder: Path, words: list[str]) -> Path:
    """Write the predictions of the run in a folder for the data that the words name."""
    for word in words:
        name, value, _ = word.partition("=")
        if not value:
            raise SettingError(f"expected words as data.path={word}, got {word}")
        if name not in TAKEN:
            raise SettingError(f"there is no {name}: {nearest(name, TAKEN)}")
    given = OmegaConf.from_dotlist(words)
    path = Path(str(OmegaConf.select(given, "data.path")))
    checkpoint = folder / "checkpoints" / "best.ckpt"
    for file in (path, checkpoint):
        if not file.exists():
            raise SettingError(f"there is no {file}: give RUN_FOLDER and data.path=...")
    result = Result.read(own_file(folder / RESULT_FILE))  # it names the classes that are built
    config = OmegaConf.create(result.config)
    with open_dict(config):
        config.data_dir = given.get("data_dir", os.environ.get("AS_LIGHTNING_DATA", "data"))
        config.data.data_dir = config.data_dir
        config.output_dir = str(folder)
    from as_lightning.bench.run.new_data import new_predictions  # here: torch takes long to load
    from as_lightning.bench.run.predictions import write_table

    column = OmegaConf.select(given, "data.text_column")
    table = new_predictions(config, result, checkpoint, path, column)
    # not beside the path, which may lie in the run's own data
    default = Path(path.resolve().name).with_suffix(".predictions.csv")
    output = Path(str(given.get("output", default)))
    write_table(table, output)
    return output


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return
    try:
        print(f"wrote {predict(Path(words[0]), words[1:])}")
    except Exception as error:
        if not is_mistake(error):
            raise
        sys.exit(f"as-lightning-predict: {in_words(error)}")
