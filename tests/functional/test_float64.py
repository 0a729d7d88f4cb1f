"""Float64 on a device that does not have it."""

import torch
from torch.utils._pytree import tree_map_only

from as_lightning.functional.calling_convention import in_float64


class OnAnAppleGpu(torch.Tensor):
    """A tensor that names that device, and refuses float64 as it does; the CPU computes."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=values.dtype, device=torch.device("mps")
        )

    def __init__(self, values):
        self.values = values

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        to_the_cpu = (kwargs or {}).get("device") == torch.device("cpu")
        if not to_the_cpu and (kwargs or {}).get("dtype") == torch.float64:
            raise TypeError("the MPS framework doesn't support float64")
        result = func(*tree_map_only(cls, lambda tensor: tensor.values, args), **(kwargs or {}))
        return result if to_the_cpu else tree_map_only(torch.Tensor, cls, result)


def test_values_of_a_device_without_float64_are_widened_on_the_cpu():
    values = torch.randn(5)
    widened = in_float64(OnAnAppleGpu(values))
    assert widened.device == torch.device("cpu")
    assert torch.equal(widened, values.double())
