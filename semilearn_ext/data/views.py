"""Plain, weak and strong views of whole batches of uint8 images.

The views are those of FixMatch (Sohn et al., NeurIPS 2020) as the SSDG benchmark (Zhou et al.,
StyleMatch, IJCV 2023) sets them:

- plain: resize, normalise;
- weak: resize; with probability 0.5 enlarge by 1.125 and crop at random; flip with probability 0.5;
- strong: resize; flip with probability 0.5; two RandAugment operations; cutout.

Images are uint8 (N, 3, H, W) on any device, views float32 (N, 3, size, size) on the same device. All
randomness comes from a CPU generator, drawn for the batch at once and in amounts that depend on N alone:
the same generator state gives the same choices on every device, whatever the spec.

Deviations from the benchmark's PIL pipeline: an image already of the right size is not resampled; resizing
may differ from Pillow's by one grey level; cutout fills with the mean colour itself, exactly 0 once
normalised, where the benchmark fills with black.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from semilearn_ext.data import randaugment

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ENLARGEMENT = 1.125
OPERATIONS_PER_IMAGE = 2
# So many float32 stay in a core's cache from one pass over them to the next.
CACHED_VALUES = 2**18


@dataclass(frozen=True)
class ViewSpec:
    """What a view looks like: its side and cutout in pixels, whether to flip, and the normalisation."""

    size: int
    flip: bool = True
    cutout: int = 16
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD


def plain(images: Tensor, spec: ViewSpec) -> Tensor:
    """The un-augmented view: uint8 (N, 3, H, W) to normalised float32 (N, 3, size, size)."""
    return _normalise(_resize(_checked(images), spec.size), spec)


def weak(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The weak view: translated by up to a ninth of the enlarged side, and flipped."""
    enlarge, down, right, flip = _uniform(rng, 4, len(images))
    view = _own(_resize(_checked(images), spec.size), images)
    _enlarge_and_crop(view, enlarge < 0.5, down, right)
    if spec.flip:
        _flip(view, flip < 0.5)
    return _normalise(view, spec)


def strong(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The strong view: flipped, two operations drawn with replacement for every image, and cutout."""
    shape = (OPERATIONS_PER_IMAGE, len(images))
    operations = torch.randint(len(randaugment.Operation), shape, generator=rng)
    values = randaugment.magnitudes(operations, _uniform(rng, *shape))
    flip, down, right = _uniform(rng, 3, len(images))
    view = _resize(_checked(images), spec.size)
    if spec.flip:
        view = _own(view, images)
        _flip(view, flip < 0.5)
    for operation, value in zip(operations, values, strict=True):
        view = randaugment.apply(view, operation, value)
    return _cut_out(_normalise(view, spec), spec.cutout, down, right)


def denormalise(views: Tensor, spec: ViewSpec) -> Tensor:
    """Views back to uint8 pictures of the same shape; undoes ``plain`` for images of the right size."""
    mean, std = _per_channel(spec.mean, views), _per_channel(spec.std, views)
    return views.mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).to(torch.uint8)


def _checked(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != randaugment.CHANNELS:
        raise ValueError(f"expected uint8 images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
    return images.contiguous()


def _uniform(rng: torch.Generator, rows: int, count: int) -> Tensor:
    # float64, for a float32 just below 1 times a size can round up to the size.
    return torch.rand(rows, count, generator=rng, dtype=torch.float64)


def _resize(images: Tensor, size: int) -> Tensor:
    """Antialiased bilinear, as Pillow's; the aspect ratio is not kept."""
    if images.shape[-2:] == (size, size):
        return images
    if images.device.type != "cpu":
        resized = functional.interpolate(images.float(), size=(size, size), mode="bilinear", antialias=True)
        return resized.round_().clamp_(0, 255).to(torch.uint8)
    # The CPU has a uint8 kernel, several times faster than the float one, for pixels whose channels lie together.
    together = torch.stack(images.unbind(1), -1).permute(0, 3, 1, 2)
    return functional.interpolate(together, size=(size, size), mode="bilinear", antialias=True).contiguous()


def _own(view: Tensor, images: Tensor) -> Tensor:
    """A view that may be changed in place without changing the images it may still be."""
    return view.clone() if view.data_ptr() == images.data_ptr() else view


def _enlarge_and_crop(view: Tensor, chosen: Tensor, down: Tensor, right: Tensor) -> None:
    """Enlarge the chosen images (N,) and crop each at its own place, down and right (N,) from [0, 1), in place."""
    size = view.shape[-1]
    margin = round(ENLARGEMENT * size) - size
    where = np.flatnonzero(chosen)
    if len(where) and margin:
        enlarged = _resize(randaugment.pick(view, where), size + margin)
        # Rounding, the benchmark's choice, makes the two extreme places half as likely as the others.
        top, left = ((place[where] * margin).round().long() for place in (down, right))
        randaugment.put(view, where, _crop(enlarged, top, left, size))


def _crop(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Crop every image (N, 3, H, W) at its own top and left (N,), on the CPU.

    Every pixel of the batch starts one overlapping window; picking N of them copies row by row, an order of
    magnitude faster than indexing pixel by pixel.
    """
    _, channels, height, width = images.shape
    plane = height * width
    span = (channels - 1) * plane + (size - 1) * width + size
    windows = images.as_strided(
        (images.numel() - span + 1, channels, size, size), (1, plane, width, 1), images.storage_offset()
    )
    starts = torch.arange(len(images)) * channels * plane + top * width + left
    return windows.index_select(0, starts.to(images.device))


def _flip(view: Tensor, chosen: Tensor) -> None:
    where = np.flatnonzero(chosen)
    randaugment.put(view, where, randaugment.pick(view, where).flip(-1))


def _cut_out(views: Tensor, side: int, down: Tensor, right: Tensor) -> Tensor:
    """Fill a square of every view with the mean colour, in place; down and right (N,) place its centre."""
    size = views.shape[-1]
    corners = ((torch.stack([down, right], 1) * size).long() - side // 2).tolist()
    # Few pixels each: by numpy this takes less than any indexing of all squares at once.
    canvas = views.numpy() if views.device.type == "cpu" else views
    for view, (top, left) in zip(canvas, corners, strict=True):
        view[:, max(top, 0) : top + side, max(left, 0) : left + side] = 0.0
    return views


def _normalise(images: Tensor, spec: ViewSpec) -> Tensor:
    mean, std = _per_channel(spec.mean, images), _per_channel(spec.std, images)
    scale, shift = 1 / (255 * std), mean / std
    views, few = _new_floats(images), max(1, CACHED_VALUES // images.shape[1:].numel())
    for view, image in zip(views.split(few), images.split(few), strict=True):
        view.copy_(image).mul_(scale).sub_(shift)
    return views


def _new_floats(images: Tensor) -> Tensor:
    """Uninitialised, of the shape and on the device of the images.

    On the CPU from numpy, which asks the system for huge pages: a batch of torch's own memory is thousands of
    small ones, and having them mapped takes longer than all the arithmetic.
    """
    if images.device.type == "cpu":
        return torch.from_numpy(np.empty(images.shape, np.float32))
    return torch.empty_like(images, dtype=torch.float32)


def _per_channel(numbers: tuple[float, float, float], images: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32, device=images.device).view(1, -1, 1, 1)
