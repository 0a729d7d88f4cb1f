"""Features of Lightning that no other test of the core trains with, on one process and on two."""

from pathlib import Path

import pytest
import torch
from compatibility import features
from compatibility.features import FEATURES, Run
from harness.rank_processes import Seen, run_two_ranks
from harness.torch_limits import SELF_LOG_COMPILED, skipped_by

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("one_thread"),  # sums in another order are other bits
]
every_feature = pytest.mark.parametrize(
    "feature",
    [
        pytest.param(name, marks=[skipped_by(SELF_LOG_COMPILED)] if name == "compiled" else [])
        for name in FEATURES
    ],
)


@every_feature
def test_a_feature_on_one_process(feature: str, tmp_path: Path) -> None:
    FEATURES[feature](tmp_path)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    names = [name for name in FEATURES if name != "compiled" or not SELF_LOG_COMPILED.holds]
    return run_two_ranks(
        features.__file__, tmp_path_factory.mktemp("ranks"), names, CUDA_VISIBLE_DEVICES=""
    )


@pytest.mark.slow
@every_feature
def test_a_feature_on_two_processes(feature: str, seen: Seen) -> None:
    assert [rank["passed"] for rank in seen(feature)] == [feature] * 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gradients_of_float16_are_rescaled_after_unscaling(tmp_path: Path) -> None:
    run = Run(tmp_path, precision="16-mixed", accelerator="gpu", gradient_clip_val=1.0).trained()
    assert all(weight.isfinite().all() for weight in run.module.parameters())
