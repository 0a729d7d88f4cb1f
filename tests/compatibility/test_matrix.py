"""Every feature of the table does what the page says, and the page is the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from compatibility import features, matrix, runs, two_ranks
from harness.rank_processes import Seen, run_two_ranks
from harness.torch_limits import skipped_by

from as_lightning.callbacks.adaptive_gradient_accumulation import GRADIENTS
from as_lightning.callbacks.window import COUNTS

BOTH = "one and two processes"
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("one_thread"),  # sums in another order are other bits
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    scenarios = ["ddp", "fully_sharded", "tensor_parallel", "temperature", "exception"]
    folder = tmp_path_factory.mktemp("two-ranks")
    return run_two_ranks(two_ranks.__file__, folder, scenarios, CUDA_VISIBLE_DEVICES="")


def features_on(*places: str) -> pytest.MarkDecorator:
    chosen = [feature for feature in matrix.FEATURES.values() if feature.where in places]
    cases = [
        pytest.param(feature, id=feature.name, marks=[skipped_by(feature.limit)] if feature.limit else [])
        for feature in chosen
    ]
    return pytest.mark.parametrize("feature", cases)


@features_on("one process", BOTH)
def test_a_feature_on_one_process_is_supported_or_refused_as_the_page_says(
    feature: matrix.Feature, tmp_path: Path
) -> None:
    feature.check(tmp_path)


@features_on("two processes")
def test_a_feature_on_two_processes_is_supported_as_the_page_says(feature: matrix.Feature, seen: Seen) -> None:
    feature.check(seen)


@pytest.fixture(scope="module")
def seen_of_all(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    rows = [
        row.file_name for row in matrix.FEATURES.values() if row.where == BOTH and not (row.limit and row.limit.holds)
    ]
    return run_two_ranks(two_ranks.__file__, tmp_path_factory.mktemp("rows"), rows, CUDA_VISIBLE_DEVICES="")


@pytest.mark.slow
@features_on(BOTH)
def test_a_feature_on_two_processes_is_that_on_one(feature: matrix.Feature, seen_of_all: Seen) -> None:
    assert [rank["passed"] for rank in seen_of_all(feature.file_name)] == [feature.name] * 2


def test_ranks_that_fail_save_nothing_that_takes_all_of_them(seen: Seen) -> None:
    for rank in seen("exception"):
        assert rank == {"window is open": True, "accumulate": 1, COUNTS: False, GRADIENTS: False}


@pytest.mark.parametrize(("scenario", "shares"), [("ddp", 2), ("tensor_parallel", 1)])
def test_the_histogram_counts_each_validation_sample_once(scenario: str, shares: int, seen: Seen) -> None:
    validation = 2 * runs.SIZE
    assert [rank["validation samples"] for rank in seen(scenario)] == [shares * validation] * 2


def test_the_temperature_of_two_processes_is_that_of_the_whole_validation_set(seen: Seen) -> None:
    for rank in seen("temperature"):
        assert rank["temperature"] == pytest.approx(rank["of the whole"], rel=1e-4)
        assert rank["temperature"] != pytest.approx(rank["of its own"], rel=0.01)


def test_the_masking_rate_is_summed_over_two_processes(seen: Seen) -> None:
    assert [rank["masking rate"] for rank in seen("temperature")] == pytest.approx([3 / 40, 3 / 40])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@features_on("CUDA")
def test_a_feature_on_a_gpu_is_supported_as_the_page_says(feature: matrix.Feature, tmp_path: Path) -> None:
    feature.check(tmp_path)


def test_the_page_is_the_table() -> None:
    assert features.__doc__
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page(), "run `python docs/compatibility_table.py`"


def test_the_lower_bounds_of_package_and_readme_are_the_versions_of_the_oldest_environment() -> None:
    oldest = matrix.pinned("test-oldest")
    project = (matrix.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package, version in oldest.items():
        (bound,) = re.findall(rf'^  "{package}>=([\d.]+)"', project, re.MULTILINE)
        assert version == f"{bound}.0"
    readme_torch, readme_lightning = (oldest[package].removesuffix(".0") for package in matrix.PACKAGES[:2])
    readme = (matrix.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"torch {readme_torch} and lightning {readme_lightning} are the oldest supported ones" in readme
