"""Which errors are a user's mistake, and what is said of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import InstantiationException
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


def test_a_missing_package_is_told_with_the_extra_and_a_refusal_in_hydra_with_its_reason_alone():
    missing = ModuleNotFoundError("No module named 'pooch'", name="pooch")
    error = InstantiationException("Error in call to target 'x':\nValueError(...)\nfull_key: y")
    assert is_mistake(error)
    for error.__cause__ in (missing, SettingError("tau must be a number")):
        assert is_mistake(error.__cause__)
        assert in_words(error) == in_words(error.__cause__)
    assert "pooch" in in_words(missing)
    assert '".[benchmark]"' in in_words(missing)


@pytest.mark.parametrize(
    ("overrides", "meant"),
    [
        (["method.dleta=0.2"], "no method.dleta: did you mean delta"),
        (["sed=1"], "no sed: did you mean seed?"),
        (["data.batchsize=1"], "no data.batchsize: did you mean batch_size?"),
        (["method=as_sofmax"], "as_softmax"),
    ],
)
def test_what_hydra_does_not_know_is_told_with_the_nearest_name_or_all(composed, overrides, meant):
    error = raised(composed, *overrides)
    assert is_mistake(error)
    assert meant in in_words(error)


TAGGED = "data.path=a.conll data.validation_path=a.conll data.test_path=a.conll"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=0", "add data.path="),
        ("data.path=none.csv", "data.path=none.csv"),
        ("data.path=long_row.csv", "Expected 2 fields in line 3, saw 3"),
        (TAGGED, "a.conll:2: expected a word in column 0 and a tag O, B-..."),
        ("seed=-1", "seed"),
        ("logger=null", "Config group"),
        ("method.dleta=1", "there is no method.dleta"),
    ],
)
def test_a_mistake_ends_a_command_without_a_stack_trace_before_torch_is_loaded(
    tmp_path, setting, said
):
    (tmp_path / "long_row.csv").write_text("text,label\ngood,1\nvery,bad,0\n")
    (tmp_path / "a.conll").write_text("Ann B-name\nalone\n")
    command = [sys.executable, "-X", "importtime", "-m", "as_lightning.bench.commands.train"]
    data = "conll" if setting == TAGGED else "text_file"
    words = [*command, f"data={data}", *setting.split()]
    finished = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    assert " torch\n" not in finished.stderr
    (line,) = [text for text in finished.stderr.splitlines() if text.startswith("as-lightning: ")]
    assert said in line
