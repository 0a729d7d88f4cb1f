"""A comparison that was killed, at whatever moment, ends with the report of one that was not."""

import re
import signal
from pathlib import Path

import pytest
from harness.killed_run import CALLS_FILE, run_comparison
from harness.prepared_processes import exit_status
from harness.run_findings import found, written

from as_lightning.report.findings import findings
from as_lightning.report.record import ComparisonRecord


def decided(folder: Path) -> list[object]:
    """All that a comparison has found, but the times, which no two trainings share."""
    record = ComparisonRecord.read(folder)
    verdicts = findings(record).verdicts
    words = [
        (v.arm, v.against, v.seeds, v.look, v.difference, v.low, v.high, v.word) for v in verdicts
    ]
    runs = {str(path.relative_to(folder)): found(path.parent) for path in written(folder)}
    tuning, stopped = str(record.tuning), re.sub(r"[\d.e-]+ hours", "", record.stopped)
    return [words, runs, record.scores(), record.settings, tuning, record.examples, stopped]


def report_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "report").glob("report.*")}


def kill_and_go_on(folder: Path, undisturbed: Path, kills: list[float]) -> None:
    calls = int((undisturbed.parent / CALLS_FILE).read_text())
    for share in kills:
        assert exit_status(run_comparison, folder, int(share * calls)) == -signal.SIGKILL
    assert exit_status(run_comparison, folder) == 0
    assert decided(folder) == decided(undisturbed)
    report = report_of(folder)
    # all runs are there: the same report, bit for bit
    assert exit_status(run_comparison, folder) == 0
    assert report_of(folder) == report


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "comparison"
    assert exit_status(run_comparison, folder) == 0
    return folder


def test_a_killed_comparison_ends_as_an_undisturbed_one(tmp_path: Path, undisturbed: Path) -> None:
    kill_and_go_on(tmp_path / "comparison", undisturbed, [0.6])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(5))
def test_a_comparison_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    tmp_path, undisturbed, start
) -> None:
    kill_and_go_on(
        tmp_path / "comparison",
        undisturbed,
        [0.11 + 0.013 * start + 0.04 * kill for kill in range(4)],
    )
