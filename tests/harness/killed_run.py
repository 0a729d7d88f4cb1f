"""A run of the app, or a comparison, in a process of its own that is killed after a number of
Python calls.
"""

import os
import signal
import sys
from contextlib import contextmanager

from harness.own_modules import Points, WithCriterion
from hydra import compose, initialize_config_dir

# the run's own modules too: the process that is forked for each run has them then, and a run is a
# second
import as_lightning.bench.data.digits
import as_lightning.bench.encoders.from_scratch  # noqa: F401
from as_lightning import compare
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.runner import run_lock
from as_lightning.bench.run.train import train

CALLS_FILE = "calls.txt"


@contextmanager
def counted_calls(file, kill_after):
    """Write the number of Python calls in the block into ``file``, or be killed when ``kill_after``
    is reached.
    """
    calls = 0

    # of calls alone: no local trace function
    def count(frame, event, argument):
        nonlocal calls
        calls += 1
        if calls == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.settrace(count)
    yield
    sys.settrace(None)
    file.write_text(str(calls))


def run(overrides, folder, kill_after=None):
    """Train in ``folder``; write the number of calls there, or be killed when it is reached."""
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = compose("train", overrides=[*overrides, f"output_dir={folder}"])
    with counted_calls(folder / CALLS_FILE, kill_after):
        train(config)


def run_comparison(folder, kill_after=None):
    """Compare in ``folder``; write the number of calls there, or be killed when it is reached."""
    with counted_calls(folder.parent / CALLS_FILE, kill_after):
        compare(
            WithCriterion,
            Points(),
            monitor="val/acc",
            replaces="criterion",
            methods=["as_softmax"],
            trainer={"max_epochs": 2, "accelerator": "cpu"},
            trials=2,
            tuning_seeds=1,
            half_epochs=False,
            max_seeds=8,
            folder=folder,
            progress=False,
        )


def hold_the_lock(folder, held):
    """Hold a folder's lock until this process is killed."""
    with run_lock(folder):
        held.set()
        signal.pause()
