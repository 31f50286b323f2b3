"""Keep the images of a run in the memory of its device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from semilearn_ext.data.cache import CachedImages
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.loaded import ImageStore
from semilearn_ext.data.packed import send
from semilearn_ext.data.pixel_file import PixelFile

SHARE = 0.4
"""The share of the device's free memory that images may take. The rest is for the network and other processes."""
_CHUNK_BYTES = 2**27


class DeviceImages:
    """Images by position, uint8 on a device: image k is row ``rows[k]`` of ``pixels`` (R, 3, H, W)."""

    def __init__(self, pixels: Tensor, rows: Tensor) -> None:
        self.pixels, self.rows = pixels, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, positions: Tensor) -> Tensor:
        return self.pixels.index_select(0, self.rows[send(positions, self.rows.device)])


def move_images(data: SSDGData, device: torch.device, free: int) -> SSDGData:
    """Move the images of ``data`` to ``device``, unless they would take too large a share of its ``free`` bytes.

    Only what the run uses is moved: the images of the split as they are at test time, and those that are trained on as
    they are in training. An image that is the same in both is moved once.
    """
    train, test = _rows_of(data.store), _rows_of(data.test_store)
    if train is None or test is None or train[0] is not test[0]:
        return data
    pixels, train_rows, test_rows = train[0], train[1], test[1]
    trained = np.asarray([*data.split.labelled, *data.split.unlabelled], dtype=np.int64)
    tested = np.concatenate([np.asarray(positions, dtype=np.int64) for positions in data.split])
    rows, numbers = np.unique(np.concatenate([train_rows[trained], test_rows[tested]]), return_inverse=True)
    if len(rows) * int(np.prod(pixels.shape[1:])) > SHARE * free:
        return data
    on_device = _copied(pixels, rows, device)
    placed = []
    for positions, part in zip((trained, tested), np.split(numbers, [len(trained)]), strict=True):
        new_rows = np.full(len(train_rows), -1, dtype=np.int64)
        new_rows[positions] = part
        placed.append(DeviceImages(on_device, torch.from_numpy(new_rows).to(device)))
    return replace(data, store=placed[0], test_store=placed[1])


def _rows_of(store: ImageStore) -> tuple[PixelFile | Tensor, np.ndarray] | None:
    """The pixels of a store and the row of every image; None for images that are decoded on every access."""
    if isinstance(store, CachedImages):
        return store.pixels, store.rows
    if isinstance(store, Tensor):
        return store, np.arange(len(store))
    return None


def _copied(pixels: PixelFile | Tensor, rows: np.ndarray, device: torch.device) -> Tensor:
    """Copy rows to ``device`` in chunks, so that little host memory is pinned at a time."""
    shape = pixels.shape[1:]
    target = torch.empty(len(rows), *shape, dtype=torch.uint8, device=device)
    step = max(1, _CHUNK_BYTES // max(1, int(np.prod(shape))))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        target[start : start + step] = send(torch.as_tensor(pixels[part]), device)
    return target


def free_memory(device: torch.device) -> int:
    """Free memory of the device in bytes.

    Memory that torch keeps for reuse counts as free: after the first of several runs in one process, that is most of
    the memory.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return 0
