"""Nothing in a file of somebody else is executed."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from pickle import UnpicklingError

import cloudpickle
import pytest
import torch
from harness.made_files import write_table

from as_lightning.bench.commands import predict
from as_lightning.bench.run.result import Result, own_file
from as_lightning.bench.run.resume import LAST_FILE
from as_lightning.bench.run.train import train as made_run
from as_lightning.comparison.configured import launched_job
from as_lightning.comparison.make import CANDIDATES_FILE

SETTINGS = ("trainer.max_epochs=1", "logger=none")


class Touches:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path) -> Path:
    """The file that is there if code of somebody else has run."""
    path = tmp_path / "executed"
    cloudpickle.loads(cloudpickle.dumps(Touches(path)))
    assert path.exists()
    path.unlink()
    return path


def of_another_user(path: Path) -> Path:
    """Give a file to another user; who may not do so gets a file of root's in its place."""
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
        return path
    path.unlink()
    path.symlink_to(os.__file__)
    assert path.stat().st_uid != os.getuid()
    return path


def test_a_checkpoint_with_code_in_it_is_set_aside_and_the_run_starts_anew(
    composed, tmp_path, trap
):
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    last = checkpoints / LAST_FILE
    torch.save({"state_dict": {}, "callbacks": Touches(trap)}, last)
    made_run(composed("experiment=digits", *SETTINGS))
    assert not trap.exists()
    assert last.with_name(f"{last.name}.unreadable").exists()


def test_a_resumed_run_refuses_best_weights_with_code_in_them(
    composed, tmp_path, trap, monkeypatch
):
    config = composed("experiment=digits", *SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(Result, "write", lambda *_: pytest.fail("stopped before its end"))
        with pytest.raises(pytest.fail.Exception):
            made_run(config)
    torch.save({"state_dict": Touches(trap)}, tmp_path / "run" / "checkpoints" / "best.ckpt")
    with pytest.raises(UnpicklingError):
        made_run(config)
    assert not trap.exists()


def test_predictions_refuse_a_checkpoint_with_code_in_it(composed, tmp_path, trap, monkeypatch):
    table = tmp_path / "reviews.csv"
    write_table(table, {"good": 20, "bad": 20})
    made_run(composed("data=text_file", f"data.path={table}", *SETTINGS))
    torch.save({"state_dict": Touches(trap)}, tmp_path / "run" / "checkpoints" / "best.ckpt")
    words = ["as-lightning-predict", str(tmp_path / "run"), f"data.path={table}"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match=r"best\.ckpt"):
        predict.main()
    assert not trap.exists()


def test_an_archive_whose_names_leave_the_folder_is_refused_and_writes_nothing(composed, tmp_path):
    folder = tmp_path / "data" / "inside"
    folder.mkdir(parents=True)
    clip = tmp_path / "clip.wav"
    clip.write_bytes(b"RIFF")
    with tarfile.open(folder / "fsdd.tar.gz", "w:gz") as archive:
        archive.add(clip, "../../recordings/0_outside_0.wav")
    with pytest.raises(ValueError, match=r"fsdd\.tar\.gz"):
        made_run(composed("experiment=fsdd", f"data_dir={folder}", *SETTINGS))
    assert not list(tmp_path.rglob("0_outside_0.wav"))


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_yaml_file_with_a_tag_of_python_is_refused(command, tmp_path, trap):
    tag = f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{trap}]]"
    file = tmp_path / "experiment" / "theirs.yaml"
    file.parent.mkdir()
    file.write_text(f"# @package _global_\nseed: {tag}\n")
    words = ["experiment=theirs", "--config-dir", str(tmp_path)]
    if command == "compare":
        words = [f"candidates={file}"]
    call = f"from as_lightning.bench.commands.{command} import main; main()"
    words = [sys.executable, "-c", call, *words]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "theirs.yaml" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not trap.exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows does not say whose a file is")
def test_the_pickle_of_a_comparison_is_read_by_its_owner_alone(composed, tmp_path, trap):
    path = tmp_path / CANDIDATES_FILE
    path.write_bytes(cloudpickle.dumps(Touches(trap)))
    assert own_file(path) == path
    of_another_user(path)
    run = "+comparison={phase: final, candidate: softmax, settings: {}, seed: 0}"
    config = composed("experiment=digits", run)
    config.output_dir = f"{tmp_path}/softmax/seed=0"
    with pytest.raises(PermissionError, match="another user"):
        launched_job(config)
    assert not trap.exists()
