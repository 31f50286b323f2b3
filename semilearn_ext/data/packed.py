"""Arrays of several types in one block of memory, so that a single transfer moves them to a device."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from semilearn_ext.data.view_spec import Array

_ALIGNMENT = 16


def send(tensor: Tensor, device: torch.device, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
    """Copy ``tensor`` to ``device`` without waiting for a GPU.

    A copy may run asynchronously only if it reads from pinned memory, which torch does not reuse before the copy is
    done; other memory could be overwritten while it is being copied. A copy within the CPU makes no calls to CUDA,
    which fail in a process that was forked after CUDA had been used.
    """
    pins = device.type == "cuda" and tensor.device.type == "cpu"
    source = tensor.pin_memory() if pins else tensor
    return source.to(device, non_blocking=pins, memory_format=memory_format)


class Packed:
    """Named arrays in one uint8 tensor."""

    def __init__(self, buffer: Tensor, layout: dict[str, tuple[int, np.dtype, tuple[int, ...]]]) -> None:
        self.buffer, self.layout = buffer, layout

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Packed:
        layout: dict[str, tuple[int, np.dtype, tuple[int, ...]]] = {}
        end = 0
        for name, array in arrays.items():
            layout[name] = (end, array.dtype, array.shape)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        memory = np.empty(end, np.uint8)
        for name, array in arrays.items():
            place = memory[layout[name][0] :][: array.nbytes]
            place.view(array.dtype).reshape(array.shape)[...] = array
        return cls(torch.from_numpy(memory), layout)

    def pin_memory(self) -> Packed:
        """Called by torch's DataLoader with ``pin_memory=True``."""
        return Packed(self.buffer.pin_memory(), self.layout)

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """The arrays as tensors on ``device``, moved in one transfer."""
        buffer, tensors = send(self.buffer, device), {}
        for name, (start, dtype, shape) in self.layout.items():
            part = buffer[start : start + math.prod(shape) * dtype.itemsize]
            tensors[name] = part.view(torch_type(dtype)).view(shape)
        return tensors


def torch_type(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
