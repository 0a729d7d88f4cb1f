"""The Python examples of README and docs are run as tests, block after block of a page in one
namespace.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# the kernel of a GPU needs Triton, which PyTorch without CUDA does not bring
collect_ignore = (
    [] if find_spec("triton") else ["src/as_lightning/functional/kernels/row_loss_cuda.py"]
)
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md", "docs/methods/*.md"],
    excludes=[
        "docs/hugging_face.md"
    ],  # needs accelerate: docs/checks/hugging_face_recipe.py runs it
    fixtures=["a_folder_of_its_own"],
).pytest()


@pytest.fixture
def a_folder_of_its_own(tmp_path, monkeypatch):
    """Where an example may leave logs and checkpoints."""
    monkeypatch.chdir(tmp_path)
