"""A batch of images in another order, so that those that need the same work lie together.

A slice of a tensor is worked on in place; picking images out of a batch and putting them back costs two copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]


class SortedBatch:
    """Images (N, …) of which ``images[k]`` is number ``order[k]`` of the batch that was given."""

    def __init__(self, images: Tensor) -> None:
        self.images, self.order = images, np.arange(len(images))

    def sort(self, keys: Array) -> None:
        """Sort by a key for every number of the batch. The images are a copy from then on."""
        by = np.argsort(keys[self.order], kind="stable")
        self.images, self.order = self.images.index_select(0, torch.from_numpy(by)), self.order[by]
