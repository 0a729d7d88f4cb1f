"""Which errors are a user's mistake, and what is said of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException, InstantiationException, OverrideParseException
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from as_lightning.bench.commands.mistakes import in_words, is_mistake
from as_lightning.bench.run.settings import SettingError, names
from as_lightning.functional.masking import check_delta


def raised(call, *arguments) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011  (what it is, the test asks)
        call(*arguments)
    return found.value


def test_a_value_that_this_package_refuses_is_a_mistake_and_one_that_breaks_elsewhere_is_not():
    assert is_mistake(raised(check_delta, 7))
    assert is_mistake(raised(Path(__file__).parent.read_text))  # a folder in the place of a file
    assert not is_mistake(raised(names, 7))  # an operation of ours that breaks is a fault of ours
    assert not is_mistake(raised(int, "seven"))
    assert not is_mistake(MisconfigurationException("No supported gpu backend found!"))


NO_POOCH = ModuleNotFoundError("No module named 'pooch'", name="pooch")
AMBIGUOUS = ConfigCompositionException("Ambiguous value for argument 'method=a,b'\n1. To")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SettingError("seed must be an integer"), "seed must be an integer"),
        (NO_POOCH, "this needs the package pooch: in a checkout pip"),
        (OverrideParseException("digits", "no alternative"), "did you mean experiment=digits?"),
        (OverrideParseException("a b", "no alternative"), "got 'a b'"),
        (AMBIGUOUS, "'method=a,b' names several values: add -m"),
    ],
)
def test_a_mistake_is_told_in_one_line(error, words):
    assert is_mistake(error)
    assert words in in_words(error)
    assert "\n" not in in_words(error)


@pytest.mark.parametrize(
    ("overrides", "meant"),
    [
        (["method.dleta=0.2"], r"no method.dleta: did you mean delta"),
        (["lr=0.1"], r"no lr: did you mean optimizer.lr\?"),
        (["epochs=1"], r"no epochs: did you mean trainer.max_epochs\?"),
        (["sed=1"], r"no sed: did you mean seed\?"),
        (["data.batchsize=1"], r"no data.batchsize: did you mean batch_size\?"),
        (["method=as_sofmax"], r"no method=as_sofmax: did you mean as_softmax"),
    ],
)
def test_what_hydra_does_not_know_is_told_with_the_nearest_name(composed, overrides, meant):
    with pytest.raises(Exception, match=r"Could not") as raised:
        composed(*overrides)
    assert is_mistake(raised.value)
    assert re.search(meant, in_words(raised.value))


def test_of_a_refusal_within_hydra_the_reason_is_told():
    error = InstantiationException("Error in call to target 'x':\nValueError(...)\nfull_key: y")
    error.__cause__ = ModuleNotFoundError("Requirement 'mlflow>=1.0.0' not met. HINT: ...")
    assert in_words(error) == "Requirement 'mlflow>=1.0.0' not met. HINT: ..."


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=0", "data.path has no value: add data.path=..."),
        ("data.path=none.csv", "data.path=none.csv: there is no such file or folder in"),
        ("seed=-1", "seed must be an integer from 0 to"),
        ("logger=null", "Config group override must be a string"),
        ("method.dleta=1", "there is no method.dleta"),
    ],
)
def test_a_mistake_ends_a_command_with_one_line_before_torch_is_loaded(tmp_path, setting, said):
    command = [sys.executable, "-m", "as_lightning.bench.commands.train", "data=text_file"]
    finished = subprocess.run(
        [*command, setting], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    assert finished.stderr.startswith(f"as-lightning: {said}")
    assert finished.stderr.count("\n") == 1
