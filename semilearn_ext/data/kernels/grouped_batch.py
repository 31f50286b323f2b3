"""A batch of images, ordered so that those that need the same operation are next to each other.

A slice of a tensor can be modified in place; selecting images from a batch and writing them back costs two copies.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from semilearn_ext.data.view_spec import Array


class GroupedBatch:
    """Images (N, …), where ``images[k]`` is image ``order[k]`` of the original batch."""

    def __init__(self, images: Tensor) -> None:
        self.images, self.order = images, np.arange(len(images))

    def group(self, keys: Array) -> None:
        """Sort by ``keys`` (N,), given in the order of the original batch. ``images`` becomes a copy."""
        order = np.argsort(keys[self.order], kind="stable")
        self.images, self.order = self.images.index_select(0, torch.from_numpy(order)), self.order[order]
