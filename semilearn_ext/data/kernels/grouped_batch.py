"""A batch of images in an order in which those that need the same work lie next to each other.

A slice of a tensor is worked on in place; picking images out of a batch and putting them back costs two copies.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from semilearn_ext.data.view_spec import Array


class GroupedBatch:
    """Images (N, …) of which ``images[k]`` is image ``order[k]`` of the original batch."""

    def __init__(self, images: Tensor) -> None:
        self.images, self.order = images, np.arange(len(images))

    def group(self, keys: Array) -> None:
        """Order by a key (N,) per image of the original batch. The images are a copy from then on."""
        by = np.argsort(keys[self.order], kind="stable")
        self.images, self.order = self.images.index_select(0, torch.from_numpy(by)), self.order[by]
