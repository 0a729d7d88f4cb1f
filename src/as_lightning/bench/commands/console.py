"""The console scripts: they load the app only when called."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module

from as_lightning import __version__
from as_lightning.bench.packages import with_way_out


def _run(command: str, module: str) -> None:
    """Run the command of a module, or print the version, since its imports take long."""
    # an encoding may lack characters; other processes read the variable
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # a stream without a position
                stream.reconfigure(errors="replace")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    os.environ["PYTHONIOENCODING"] = f"{encoding}:replace"
    if "--version" in sys.argv[1:]:
        print(f"as-lightning {__version__}")
        sys.exit()
    try:
        try:
            import_module(f"as_lightning.bench.commands.{module}").main()
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        if "HYDRA_FULL_ERROR" in os.environ:
            raise
        sys.exit(f"{command}: {with_way_out(error)}")
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


train = partial(_run, "as-lightning", "train")
compare = partial(_run, "as-lightning-compare", "compare")
report = partial(_run, "as-lightning-report", "report")
predict = partial(_run, "as-lightning-predict", "predict")
