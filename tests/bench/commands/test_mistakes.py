"""Which errors are a user's mistake, and what is said of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException, InstantiationException, OverrideParseException
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from as_lightning.bench.commands.mistakes import check_words, in_words, is_mistake
from as_lightning.bench.run.settings import SettingError, names
from as_lightning.bench.run.train import train
from as_lightning.functional.masking import check_delta


def raised(call, *arguments) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011  (what it is, the test asks)
        call(*arguments)
    return found.value


def test_a_value_that_this_package_refuses_is_a_mistake_and_one_that_breaks_elsewhere_is_not():
    assert is_mistake(raised(check_delta, 7))
    assert is_mistake(raised(check_delta, "abc"))
    assert is_mistake(raised(Path(__file__).parent.read_text))  # a folder in the place of a file
    assert not is_mistake(raised(names, 7))  # an operation of ours that breaks is a fault of ours
    assert not is_mistake(raised(int, "seven"))
    assert not is_mistake(raised(lambda: [][1]))
    assert not is_mistake(MisconfigurationException("No supported gpu backend found!"))
    assert not is_mistake(TypeError("x"))


NO_POOCH = ModuleNotFoundError("No module named 'pooch'", name="pooch")
NO_GROUP = ValueError("Config group override must be a string or a list. Got NoneType")
AMBIGUOUS = ConfigCompositionException("Ambiguous value for argument 'method=a,b'\n1. To")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SettingError("seed must be an integer"), "seed must be an integer"),
        (NO_POOCH, "this needs the package pooch: in a checkout pip"),
        (NO_GROUP, "chosen by the name of"),
        (
            OverrideParseException("digits", "no viable alternative"),
            "got 'digits': did you mean experiment=digits?",
        ),
        (AMBIGUOUS, "add -m to make a run with each"),
        (
            OverrideParseException("a b", "no viable alternative"),
            "expected settings as name=value, got 'a b'",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(error, words):
    assert is_mistake(error)
    assert words in in_words(error)
    assert "\n" not in in_words(error)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--seed", "3"], "seed=3"),
        (["experiment=digits", "--epochs=3"], "trainer.max_epochs=3"),
        (["--trials", "experiment=digits"], "trials=..."),
        (["-m", "experiment=digits", "method", "softmax"], "method=softmax"),
    ],
)
def test_words_that_are_no_settings_are_told_with_what_was_meant(words, meant):
    with pytest.raises(SettingError, match=re.escape(f"did you mean {meant}?")):
        check_words(words)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path, monkeypatch):
    bad = os.fsdecode(b"caf\xe9")
    with pytest.raises(SettingError, match=r"'name=caf\\udce9' is not written in UTF-8"):
        check_words([f"name={bad}"])
    (tmp_path / bad).mkdir()
    monkeypatch.chdir(tmp_path / bad)
    with pytest.raises(SettingError, match=r"caf\\udce9' is not written in UTF-8"):
        check_words(["experiment=digits", "name=café"])


@pytest.mark.parametrize(
    "words", ["-m experiment=digits seed=0", "--cfg job ~trainer", "-cd here", "--multi a=1", "a"]
)
def test_words_of_hydras_are_left_to_hydra(words):
    check_words(words.split())


def test_of_a_refusal_within_hydra_the_reason_is_told_and_a_setting_without_a_value_is_named(
    composed,
):
    error = InstantiationException("Error in call to target 'x':\nValueError(...)\nfull_key: y")
    error.__cause__ = raised(check_delta, 7)
    assert in_words(error).startswith(
        "delta is a margin between probabilities and must lie in [0, 1], got 7"
    )
    error.__cause__ = ModuleNotFoundError(
        "Requirement 'mlflow>=1.0.0' not met. HINT: ..."
    )  # Lightning's, of a logger
    assert in_words(error) == "Requirement 'mlflow>=1.0.0' not met. HINT: ..."
    without = raised(train, composed("experiment=text_file"))
    assert in_words(without) == "data.path has no value: add data.path=..."


def test_a_mistake_that_ends_a_run_is_the_one_line_of_its_errors(tmp_path):
    command = [sys.executable, "-m", "as_lightning.bench.commands.train", "data=text_file"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (
        1,
        "as-lightning: data.path has no value: add data.path=...\n",
    )
