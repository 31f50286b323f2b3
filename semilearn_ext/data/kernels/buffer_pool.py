"""Buffers for batches, reused as soon as nothing refers to them any more.

The operating system maps and clears new memory page by page when it is first written to, which for a batch of views
takes about as long as the computation that fills it.
"""

from __future__ import annotations

import weakref
from collections import defaultdict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_spare: defaultdict[tuple[int, ...], list[npt.NDArray[np.float32]]] = defaultdict(list)


def empty_floats(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU."""
    try:
        memory = _spare[shape].pop()
    except IndexError:
        # Buffers of other shapes may never be needed again.
        for others in list(_spare.values()):
            others.clear()
        # Allocated by numpy, which asks the operating system for huge pages.
        memory = np.empty(shape, np.float32)
    # Only the tensor, its views and their arrays keep this object alive.
    lent = memory.view()
    weakref.finalize(lent, _spare[shape].append, memory)
    return torch.from_numpy(lent)
