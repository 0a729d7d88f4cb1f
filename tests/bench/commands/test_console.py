"""What is said where the benchmark's packages are missing, or torchvision belongs to
another torch.
"""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from harness.loaded_packages import loaded_beside_lightning

from as_lightning.bench.packages import INSTALL, TOGETHER

ROOT = Path(__file__).parents[3]


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize(("command", "package"), [("train", "hydra"), ("compare", "pandas")])
def test_a_command_without_its_packages_names_the_extra(command, package):
    finished = python(
        f"import sys; sys.argv = ['x', 'seed=0']; sys.modules['{package}'] = None\n"
        f"from as_lightning.bench.commands.console import {command}; {command}()"
    )
    assert finished.returncode == 1
    assert package in finished.stderr
    assert finished.stderr.endswith(f"{INSTALL}\n")
    assert finished.stderr.count("\n") == 1


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii"])
@pytest.mark.bug_report("tqdm/tqdm#1339", "A progress bar ends the program on a console of cp1252.")
@pytest.mark.bug_report(
    "Rockhopper-Technologies/enlighten#13",
    "A progress bar ends the program on a terminal of latin-1.",
)
def test_characters_that_a_console_lacks_are_replaced(monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    finished = python(
        "import subprocess, sys; sys.argv = ['as-lightning', '--version']\n"
        "from as_lightning.bench.commands.console import train\n"
        "try: train()\nexcept SystemExit: print('\u258f ok')\n"
        # as another process of a run
        "subprocess.run([sys.executable, '-c', 'print(chr(0x258f))'], check=True)"
    )
    assert finished.returncode == 0, finished.stderr
    assert "? ok" in finished.stdout


def test_a_reader_that_has_read_enough_ends_a_command_without_a_stack_trace():
    program = "import sys; sys.argv = ['x']; from as_lightning.bench.commands.console import compare; compare()"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **streams) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def test_the_packages_that_belong_together_are_those_of_the_constraints():
    assert set(TOGETHER) <= set((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())


def test_a_torchvision_of_another_torch_ends_the_import_of_our_modules_with_that_message(
    tmp_path, monkeypatch
):
    breaks = 'raise RuntimeError("operator torchvision::nms does not exist")'
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(breaks)
    ours = "as_lightning.bench.encoders.torchvision_encoder"
    for name in list(sys.modules):
        if name == ours or name.partition(".")[0] == "torchvision":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"^torchvision .* was built for another one") as raised:
        importlib.import_module(ours)
    assert " ".join(TOGETHER) in str(raised.value)


def test_digits_and_their_network_need_no_package_of_another_modality(tmp_path):
    found = loaded_beside_lightning(
        "from as_lightning.bench.data.digits import Digits\n"
        "from as_lightning.bench.encoders.from_scratch import SmallCNN\n"
        "from as_lightning.bench.tasks.classifier import ASSoftmaxClassifier",
        tmp_path,
    )
    assert found <= {"sklearn", "scipy.stats", "seqeval"}
