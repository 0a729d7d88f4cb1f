"""Every script of ``speed/`` still runs."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SMALL = {
    "accumulation_overhead": "overhead --rounds 1 --steps 20 --milliseconds 1",
    "class_parallel": "--shapes 8x64x4 --shares 0.5 --rounds 1",
    "calls_per_batch": "",
    "cross_entropy": "--shapes 8x5 --shares 0.5 --rounds 1 --no-compile --dtype bfloat16",
    "finetuning": "--layers 3 --width 32 --rows 4 --rounds 1",
    "extreme_training": "--classes 300 --samples 64 --batch-size 32 --epochs 1",
    "linear_cross_entropy": "--shapes 8x64x4 --shares 0.5 --chunk-shapes 8x64x4 --chunks 2 "
    "--held-shapes 8x64x4 "
    "--rounds 1",
    "step_memory": "--classes 64 --rows 8",
    "variants": "--shapes 8x50 --rounds 1 --budget 0.1",
    "versions": "src --rounds 2",
}
PEERS = "linear_cross_entropy_peers"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a script as its users do, in this process; a peer that is compiled runs as it is, which
    is quicker.
    """

    def script(name: str, arguments: str) -> str:
        monkeypatch.chdir(ROOT)
        monkeypatch.syspath_prepend("speed")
        monkeypatch.setattr(
            sys, "argv", [f"speed/{name}.py", *arguments.split(), "--output", f"{tmp_path}/table"]
        )
        monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
        monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
        runpy.run_path(f"speed/{name}.py", run_name="__main__")
        return (tmp_path / "table.md").read_text(encoding="utf-8")

    return script


def test_each_script_is_listed():
    shared = {"interleaved", "head_sides"}
    assert {path.stem for path in (ROOT / "speed").glob("*.py")} - shared == {*SMALL, PEERS}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_script_writes_a_table_with_its_command_and_its_machine(name, run):
    table = run(name, SMALL[name])
    assert table.startswith("# ")
    assert f"`python speed/{name}.py {SMALL[name].partition(' ')[0]}" in table
    assert "PyTorch " in table
    assert [line for line in table.splitlines() if line.startswith("| ---")]


ONE_SHAPE = "--dtypes float32 --threads 1 --quick --shapes 8x64x4"


@pytest.mark.slow
def test_the_peers_script_goes_on_where_it_stopped_and_says_which_side_it_lacks(
    run, tmp_path, capsys
):
    run(PEERS, ONE_SHAPE)
    assert "8x96x4, float32, threads 1: not measured yet" in run(
        PEERS, f"{ONE_SHAPE} 8x96x4 --only-write"
    )
    capsys.readouterr()
    table = run(PEERS, f"{ONE_SHAPE} 8x96x4")
    printed = capsys.readouterr().out
    assert "1 of 2" not in printed
    assert "2 of 2" in printed
    lines = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["cases"]
    assert not (tmp_path / "table.jsonl").exists()
    assert [line["case"]["classes"] for line in lines] == [64, 96]
    assert "no --peer-python was given" in table
    assert "Against Liger-Kernel and cut-cross-entropy, which need a GPU: " in table


def test_an_interpreter_that_cannot_measure_is_refused_before_the_first_case(run, tmp_path):
    with pytest.raises(
        SystemExit, match=r"--peer-python must name an interpreter.*the process ended with 1"
    ):
        run(PEERS, "--shapes 8x64x4 --quick --peer-python false")
    assert not (tmp_path / "table.jsonl").exists()


@pytest.mark.slow
def test_the_peers_script_measures_in_the_interpreter_that_it_is_given(run, tmp_path):
    table = run(PEERS, f"{ONE_SHAPE} --peer-python {sys.executable}")
    (line,) = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["cases"]
    assert line["peer_torch"] == torch.__version__
    assert len([side for side in (*line["times"], *line["not_measured"]) if "chunked" in side]) == 1
    assert str(sys.executable) not in table
