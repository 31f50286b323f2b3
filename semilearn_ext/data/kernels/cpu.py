"""Compute the views of a whole batch with torch and numpy on the CPU.

Images that need the same operation are stored next to each other in a :class:`GroupedBatch`, and each kernel works on
a slice of it in place.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from semilearn_ext.data.kernels import randaugment
from semilearn_ext.data.kernels.buffer_pool import empty_floats
from semilearn_ext.data.kernels.grouped_batch import GroupedBatch
from semilearn_ext.data.view_spec import ENLARGEMENT, Array, StrongDraws, ViewSpec, WeakDraws


def plain(images: Tensor, spec: ViewSpec) -> Tensor:
    return _normalise(_squashed(images, spec.size), spec)


def weak(images: Tensor, spec: ViewSpec, draws: WeakDraws) -> Tensor:
    batch = _squashed(images, spec.size)
    # Order: enlarge only, enlarge and flip, flip only, neither.
    kinds = np.where(draws.enlarge, draws.flip, 3 - draws.flip)
    batch.group(kinds)
    first_to_flip, to_enlarge, end_to_flip = np.bincount(kinds, minlength=4).cumsum()[:3].tolist()
    where = batch.order[:to_enlarge]
    _enlarge_and_crop(batch.images[:to_enlarge], draws.down[where], draws.right[where])
    _flip(batch.images[first_to_flip:end_to_flip])
    return _normalise(batch, spec)


def strong(images: Tensor, spec: ViewSpec, draws: StrongDraws) -> Tensor:
    batch = _squashed(images, spec.size)
    if spec.flip:
        batch.group(~draws.flip)
        _flip(batch.images[: np.count_nonzero(draws.flip)])
    for operations, magnitudes in zip(draws.operations, draws.magnitudes, strict=True):
        randaugment.apply(batch, operations, magnitudes)
    return _cut_out(_normalise(batch, spec), spec, draws)


def _squashed(images: Tensor, size: int) -> GroupedBatch:
    """The whole images, resized to ``size`` x ``size`` regardless of their aspect ratio."""
    if images.shape[-2:] == (size, size):
        return GroupedBatch(images)
    resized = images.new_empty(*images.shape[:2], size, size)
    _split_channels(_resize(_join_channels(images), size), resized)
    return GroupedBatch(resized)


def _join_channels(images: Tensor) -> Tensor:
    """Pack the channels (N, 3, H, W) of every pixel into the bytes of one integer, int32 (N, H, W).

    Computed in float32, which is exact up to 24 bits and has vector instructions, unlike single bytes.
    """
    red, green, blue = images.float().unbind(1)
    return red.add_(green, alpha=2**8).add_(blue, alpha=2**16).int()


def _split_channels(pixels: Tensor, out: Tensor) -> None:
    """Undo ``_join_channels``, into ``out`` (N, 3, H, W)."""
    for channel in range(out.shape[1]):
        out[:, channel] = pixels >> 8 * channel


def _resize(pixels: Tensor, size: int) -> Tensor:
    """Antialiased bilinear resizing, as in Pillow. torch's uint8 kernel is fast on the layout of joined channels."""
    channels = pixels.unsqueeze(-1).view(torch.uint8).permute(0, 3, 1, 2)
    resized = functional.interpolate(channels, size=(size, size), mode="bilinear", antialias=True)
    return resized.permute(0, 2, 3, 1).contiguous().view(torch.int32).squeeze(-1)


def _enlarge_and_crop(images: Tensor, down: Array, right: Array) -> None:
    """Enlarge the images and crop each at its own position, ``down`` and ``right`` (N,) in [0, 1), in place."""
    size = images.shape[-1]
    margin = round(ENLARGEMENT * size) - size
    if len(images) and margin:
        top, left = (np.round(place * margin).astype(int) for place in (down, right))
        _split_channels(_crop(_resize(_join_channels(images), size + margin), top, left, size), images)


def _crop(pixels: Tensor, top: Array, left: Array, size: int) -> Tensor:
    """Crop every image (N, H, W) at its own ``top`` and ``left`` (N,).

    Every pixel of the batch is the start of one of many overlapping windows. Selecting N of these windows copies row by
    row, which is an order of magnitude faster than indexing pixel by pixel.
    """
    count, height, width = pixels.shape
    windows = pixels.as_strided((pixels.numel() - (size - 1) * (width + 1), size, size), (1, width, 1))
    starts = np.arange(count) * (height * width) + top * width + left
    return windows.index_select(0, torch.from_numpy(starts))


def _flip(images: Tensor) -> None:
    images.copy_(images.flip(-1))


def _normalise(batch: GroupedBatch, spec: ViewSpec) -> Tensor:
    """Float32 (N, 3, S, S), in the original order of the batch."""
    scale, shift = scale_and_shift(spec)
    views = empty_floats(*batch.images.shape)
    canvas = views.numpy()
    # Image by image, because one image stays in the processor's cache between the passes over it.
    for number, image in zip(batch.order.tolist(), batch.images.numpy(), strict=True):
        view = canvas[number]
        view[...] = image
        view *= scale
        view -= shift
    return views


@cache
def scale_and_shift(spec: ViewSpec) -> tuple[Array, Array]:
    std = _per_channel(spec.std)
    return (1 / (255 * std)).numpy(), (_per_channel(spec.mean) / std).numpy()


def _cut_out(views: Tensor, spec: ViewSpec, draws: StrongDraws) -> Tensor:
    """Fill a square of every view with one colour, in place."""
    side, fill = spec.cutout, -scale_and_shift(spec)[1] if spec.cutout_color == "black" else 0.0
    corners = ((np.stack([draws.down, draws.right], 1) * views.shape[-1]).astype(int) - side // 2).tolist()
    for view, (top, left) in zip(views.numpy(), corners, strict=True):
        view[:, max(top, 0) : top + side, max(left, 0) : left + side] = fill
    return views


def _per_channel(numbers: tuple[float, float, float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1)
