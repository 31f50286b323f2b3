"""Memory for batches that is used again as soon as nobody holds what lies in it.

New memory is mapped and cleared page by page when it is first written to, which for a batch of views takes about as
long as the arithmetic that fills it.
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
    """A float32 tensor on the CPU with anything in it."""
    try:
        memory = _spare[shape].pop()
    except IndexError:
        # What was kept for other shapes may never be asked for again.
        for others in list(_spare.values()):
            others.clear()
        # From numpy, which asks the system for huge pages.
        memory = np.empty(shape, np.float32)
    # The tensor, its views and their arrays all keep this one object alive, and nobody else does.
    lent = memory.view()
    weakref.finalize(lent, _spare[shape].append, memory)
    return torch.from_numpy(lent)
