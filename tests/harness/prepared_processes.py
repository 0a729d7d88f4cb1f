"""Processes that have loaded torch and Lightning, which takes longer than most of their tests:
forked from a server.
"""

import gc
import multiprocessing
import os
import sys
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

# without the packages of the app, as in some tests of the core, those of the app are skipped
LOADED = (
    *(
        __name__,
        "harness.killed_run",
        "as_lightning.callbacks",
        "as_lightning.mixin",
        "as_lightning.compat",
    ),
    *(
        "as_lightning.comparison.api",
        "as_lightning.bench.commands.sweep_report",
        "torch.utils.tensorboard",
    ),
)

# torch renews the thread pool of a forked process at its first use, without a lock: where
# autograd's threads are the first, one of them finds no pool and aborts the process ("Invalid
# thread pool!")
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(torch.get_num_threads()))
# each run of the app collects garbage: not among all the modules
os.register_at_fork(after_in_child=gc.freeze)


class Finished(NamedTuple):
    """What a command has left; the names are those of ``subprocess.CompletedProcess``."""

    returncode: int
    stdout: str
    stderr: str


def context():
    """What starts processes that have loaded the library."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(list(LOADED))
    # the server imports by this variable, not by this process's path
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("OMP_NUM_THREADS", "1")
        forkserver.ensure_running()
    return made


def exit_status(function, *arguments):
    """Call a function in a process of its own, and give its exit status: 0, or -9 where it was
    killed.
    """
    process = context().Process(target=function, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def start(main, argv, stdout, stderr, folder=None, **environment):
    """Start ``main``, found by its module and name, in a process of its own; ``environment`` adds
    to this one's.
    """
    streams, variables = {1: str(stdout), 2: str(stderr)}, dict(os.environ | environment)
    process = context().Process(
        target=_call, args=(main, list(argv), streams, str(folder or Path.cwd()), variables)
    )
    process.start()
    return process


def run(main, *argv, folder, **environment):
    """Call ``main`` in a process of its own, wait for it and give what it has printed."""
    with tempfile.TemporaryDirectory() as files:
        stdout, stderr = Path(files, "stdout"), Path(files, "stderr")
        process = start(main, argv, stdout, stderr, folder, **environment)
        process.join()
        assert process.exitcode is not None
        return Finished(process.exitcode, stdout.read_text(), stderr.read_text())


def _call(main, argv, streams, folder, variables):
    for number, file in streams.items():
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv = argv
    main()
