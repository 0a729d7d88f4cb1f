"""Where the real data are, and settings that every test shares."""

import gc
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# examples are few but the same in every run: a failure is always one of the code
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")
# the kernels of a GPU run on the CPU too; Triton asks for it when it is imported
os.environ.setdefault("TRITON_INTERPRET", str(int(not torch.cuda.is_available())))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def one_thread():
    """A test on one thread of PyTorch's, whatever the process has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data sets; skips where there is none, fails in CI."""
    folder = os.environ.get("AS_LIGHTNING_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder).resolve()
    reason = "needs real data sets: set AS_LIGHTNING_DATA to a folder that holds them"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; in CI these tests must run")
    pytest.skip(reason)


def pytest_collection_finish():
    """Keep the modules out of all garbage collections: each run of the app asks for one."""
    gc.freeze()
