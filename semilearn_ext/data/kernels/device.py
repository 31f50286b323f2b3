"""Compute the views of a whole batch with plain torch operations, on the device that the images are on.

On a CPU the results equal those of the CPU kernels bit for bit. Other devices may round a multiplication and an
addition once instead of twice, which changes single pixels by one grey level. The host knows which images need which
operation (:mod:`semilearn_ext.data.kernels.plans`), so nothing waits for the device. Nothing needs float64, which
Apple's GPUs do not support.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from semilearn_ext.data.kernels.cpu import scale_and_shift
from semilearn_ext.data.kernels.plans import STAGES, Resampling, autocontrast_tables, enlarged, resampling
from semilearn_ext.data.kernels.randaugment import CHANNELS, LEVELS, grey, smooth
from semilearn_ext.data.view_spec import ViewSpec


@torch.no_grad()
def plain(images: Tensor, spec: ViewSpec) -> Tensor:
    """The plain view. As in all three functions, uint8 (N, 3, H, W) becomes normalised float32 (N, 3, size, size)."""
    return _normalise(_squashed(images, spec.size), spec)


@torch.no_grad()
def weak(images: Tensor, spec: ViewSpec, plan: Mapping[str, Tensor]) -> Tensor:
    """The weak view; ``plan`` comes from :func:`semilearn_ext.data.kernels.plans.weak` and is on the same device."""
    images, which = _squashed(images, spec.size), plan["enlarge"]
    if len(which):
        large = _enlarged_crops(images.index_select(0, which), plan["top"], plan["left"])
        images = images.index_copy(0, which, large)
    return _normalise(_flip(images, plan["flip"]), spec)


@torch.no_grad()
def strong(images: Tensor, spec: ViewSpec, plan: Mapping[str, Tensor]) -> Tensor:
    """The strong view; ``plan`` comes from :func:`semilearn_ext.data.kernels.plans.strong`, on the same device."""
    images = _flip(_squashed(images, spec.size), plan["flip"])
    for stage in STAGES:
        for name, kernel in _KERNELS.items():
            which = plan[f"{stage}.{name}"]
            if len(which):
                # In place, because the flipped images are already a copy.
                images.index_copy_(0, which, kernel(images.index_select(0, which), plan[f"{stage}.{name}.values"]))
    return _cut_out(_normalise(images, spec), spec, plan["top"], plan["left"])


def _flip(images: Tensor, flip: Tensor) -> Tensor:
    return torch.where(flip.view(-1, 1, 1, 1), images.flip(-1), images)


def _normalise(images: Tensor, spec: ViewSpec) -> Tensor:
    scale, shift = _scale_and_shift(spec, images.device)
    # Two operations, because a fused one would round only once.
    return images.float().mul_(scale).sub_(shift)


def _cut_out(views: Tensor, spec: ViewSpec, top: Tensor, left: Tensor) -> Tensor:
    """Fill a square of every view, at ``top`` and ``left`` (N,), with one colour."""
    steps = torch.arange(views.shape[-1], device=views.device)
    rows, columns = ((steps >= start[:, None]) & (steps < start[:, None] + spec.cutout) for start in (top, left))
    square = (rows[:, :, None] & columns[:, None, :]).unsqueeze(1)
    fill = -_scale_and_shift(spec, views.device)[1] if spec.cutout_color == "black" else views.new_zeros(())
    return torch.where(square, fill, views)


@functools.cache
def _scale_and_shift(spec: ViewSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    scale, shift = (torch.from_numpy(np.array(numbers)).to(device) for numbers in scale_and_shift(spec))
    return scale, shift


def _squashed(images: Tensor, size: int) -> Tensor:
    height, width = images.shape[-2:]
    if (height, width) == (size, size):
        return images
    columns, rows = resampling(width, size, images.device), resampling(height, size, images.device)
    return _resample(_resample(images, 3, columns), 2, rows)


def _enlarged_crops(images: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """Enlarge the images and crop each at its own ``top`` and ``left`` (N,)."""
    size = images.shape[-1]
    axis, steps = resampling(size, enlarged(size), images.device), torch.arange(size, device=images.device)
    columns, rows = (
        Resampling(axis.first[places], axis.weights[places], axis.precision)
        for places in (left[:, None] + steps, top[:, None] + steps)
    )
    return _resample(_resample(images, 3, columns), 2, rows)


def _resample(images: Tensor, dim: int, axis: Resampling) -> Tensor:
    """Resample along ``dim`` (3: columns, done first; 2: rows), with the same places for all images or one set each."""
    shape = [len(images), *images.shape[1:]]
    shape[dim] = axis.first.shape[-1]
    along = [-1 if axis.first.ndim == 2 else 1, 1, 1, 1]
    along[dim] = axis.first.shape[-1]
    last = images.shape[dim] - 1
    total = torch.full((), 1 << (axis.precision - 1), dtype=torch.int32, device=images.device)
    for tap, weights in enumerate(axis.weights.unbind(-1)):
        places = (axis.first + tap).clamp(max=last).view(along).expand(shape)
        total = total + images.gather(dim, places).int() * weights.view(along)
    return (total >> axis.precision).to(torch.uint8)


# --- RandAugment -------------------------------------------------------------------------------------------------


def _map_levels(images: Tensor, tables: Tensor) -> Tensor:
    """Replace every grey level by its entry in a table (N, 1 or 3, 256): one per image or one per channel."""
    tables = tables.expand(-1, CHANNELS, -1).reshape(-1)
    offsets = torch.arange(0, len(tables), LEVELS, device=images.device, dtype=torch.int32)
    places = images.flatten(2).flatten(0, 1).int() + offsets[:, None]
    return tables.index_select(0, places.flatten()).view_as(images)


def _fixed_tables(images: Tensor, tables: Tensor) -> Tensor:
    return _map_levels(images, tables[:, None])


def _autocontrast(images: Tensor, _: Tensor) -> Tensor:
    planes = images.flatten(2)
    low, high = planes.amin(2).long(), planes.amax(2).long()
    return _map_levels(images, autocontrast_tables(images.device)[low, high])


def _contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Blend with the mean of the grey image."""
    pixels = images[0, 0].numel()
    sums = grey(images.float()).int().sum((1, 2, 3))
    mean = torch.div(2 * sums + pixels, 2 * pixels, rounding_mode="floor").float()
    flat = mean.view(-1, 1, 1).expand(-1, 1, LEVELS).contiguous()
    levels = torch.arange(LEVELS, device=images.device, dtype=torch.float32)
    return _map_levels(images, flat.lerp(levels, factors.view(-1, 1, 1)).to(torch.uint8))


def _equalize(images: Tensor, _: Tensor) -> Tensor:
    planes = images.flatten(2).long()
    counts = torch.zeros(*planes.shape[:2], LEVELS, dtype=torch.int32, device=images.device)
    # torch.bincount would wait for the device to read back the largest level.
    counts = counts.scatter_add_(2, planes, torch.ones((), dtype=torch.int32, device=images.device).expand_as(planes))
    up_to = counts.cumsum(2)
    step = torch.where(up_to < planes.shape[2], up_to, 0).amax(2, keepdim=True) // 255
    flattened = (step // 2 + up_to - counts) // step.clamp(min=1)
    levels = torch.arange(LEVELS, device=images.device)
    return _map_levels(images, torch.where(step > 0, flattened.clamp(max=255), levels).to(torch.uint8))


def _saturate(images: Tensor, factors: Tensor) -> Tensor:
    """Blend with the grey image."""
    floats = images.float()
    return _blend(grey(floats), floats, factors)


def _sharpen(images: Tensor, factors: Tensor) -> Tensor:
    """Blend with the smoothed image; the border is not changed."""
    floats = images.float()
    sharpened = images.clone()
    sharpened[..., 1:-1, 1:-1] = _blend(smooth(floats), floats[..., 1:-1, 1:-1], factors)
    return sharpened


def _blend(degenerate: Tensor, floats: Tensor, factors: Tensor) -> Tensor:
    return degenerate.lerp(floats, factors.view(-1, 1, 1, 1)).to(torch.uint8)


def _move(images: Tensor, coordinates: Tensor) -> Tensor:
    """Rotate, shear or translate: fetch every pixel from its source position; for ``coordinates`` see ``plans``."""
    count, size = len(images), images.shape[-1]
    along_x, along_y, start = coordinates.view(count, 3, 2, 1, 1).unbind(1)
    steps = torch.arange(size, dtype=torch.int32, device=images.device)
    places = (along_x * steps + start) + along_y * steps.view(-1, 1)
    rows, columns = (places >> 16).clamp_(0, size + 1).unbind(1)
    source = (rows * (size + 2) + columns).long().view(count, 1, -1).expand(-1, CHANNELS, -1)
    return pad(images, (1, 1, 1, 1)).flatten(2).gather(2, source).view_as(images)


_KERNELS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "contrast": _contrast,
    "tables": _fixed_tables,
    "saturate": _saturate,
    "sharpen": _sharpen,
    "move": _move,
}
