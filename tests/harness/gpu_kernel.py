"""The kernel of a GPU on small examples; where there is no GPU, and only there, Triton interprets
it.
"""

import pytest
import torch

from as_lightning.functional.kernels import row_loss


def take_the_kernel_of_a_gpu(monkeypatch, *modules):
    kernel = pytest.importorskip("triton") and row_loss._row_loss_cuda()
    takes = lambda rows: rows.is_cuda == torch.cuda.is_available() and rows.dtype != torch.float64  # noqa: E731
    for module in modules:
        monkeypatch.setattr(
            module, "triton_kernels_for", lambda rows: kernel if takes(rows) else None
        )
