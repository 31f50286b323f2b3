"""Plain, weak and strong views of whole batches of uint8 images.

The views are those of FixMatch (Sohn et al., NeurIPS 2020) as the SSDG benchmark (Zhou et al.,
StyleMatch, IJCV 2023) sets them:

- plain: resize, normalise;
- weak: resize; with probability 0.5 enlarge by 1.125 and crop at random; flip with probability 0.5;
- strong: resize; flip with probability 0.5; two RandAugment operations; cutout.

Images are uint8 (N, 3, H, W) on any device, views float32 (N, 3, size, size) on the same device; they are made by the
CPU, bit by bit the same for every device. All randomness comes from a CPU generator, drawn for the batch at once
and in amounts that depend on N alone, whatever the spec.

Deviations from the benchmark's PIL pipeline: an image already of the right size is not resampled; resizing
may differ from Pillow's by one grey level; cutout fills with the mean colour itself, exactly 0 once
normalised, where the benchmark fills with black.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from semilearn_ext.data import randaugment
from semilearn_ext.data.recycled import empty_floats
from semilearn_ext.data.sorted_batch import Array, SortedBatch

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ENLARGEMENT = 1.125
OPERATIONS_PER_IMAGE = 2


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
    return _normalise(_resized(images, spec.size), spec).to(images.device)


def weak(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The weak view: translated by up to a ninth of the enlarged side, and flipped."""
    enlarge, down, right, flip = _uniform(rng, 4, len(images))
    enlarged, flipped = enlarge < 0.5, (flip < 0.5) & spec.flip
    batch = _resized(images, spec.size)
    # Those to enlarge first, those to flip in the middle.
    kinds = np.where(enlarged, flipped, 3 - flipped)
    batch.sort(kinds)
    first_to_flip, to_enlarge, end_to_flip = np.bincount(kinds, minlength=4).cumsum()[:3].tolist()
    where = batch.order[:to_enlarge]
    _enlarge_and_crop(batch.images[:to_enlarge], down[where], right[where])
    _flip(batch.images[first_to_flip:end_to_flip])
    return _normalise(batch, spec).to(images.device)


def strong(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The strong view: flipped, two operations drawn with replacement for every image, and cutout."""
    shape = (OPERATIONS_PER_IMAGE, len(images))
    operations = torch.randint(len(randaugment.Operation), shape, generator=rng)
    values = randaugment.magnitudes(operations, torch.from_numpy(_uniform(rng, *shape)))
    flip, down, right = _uniform(rng, 3, len(images))
    batch = _resized(images, spec.size)
    if spec.flip:
        batch.sort(flip >= 0.5)
        _flip(batch.images[: np.count_nonzero(flip < 0.5)])
    for operation, value in zip(operations, values, strict=True):
        randaugment.apply(batch, operation, value)
    return _cut_out(_normalise(batch, spec), spec.cutout, down, right).to(images.device)


def denormalise(views: Tensor, spec: ViewSpec) -> Tensor:
    """Views back to uint8 pictures of the same shape; undoes ``plain`` for images of the right size."""
    mean, std = _per_channel(spec.mean).to(views.device), _per_channel(spec.std).to(views.device)
    return views.mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).to(torch.uint8)


def _uniform(rng: torch.Generator, rows: int, count: int) -> Array:
    # float64, for a float32 just below 1 times a size can round up to the size.
    return torch.rand(rows, count, generator=rng, dtype=torch.float64).numpy()


def _resized(images: Tensor, size: int) -> SortedBatch:
    """The images on the CPU, ``size`` x ``size``; the aspect ratio is not kept."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != randaugment.CHANNELS:
        raise ValueError(f"expected uint8 images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
    images = images.cpu().contiguous()
    if images.shape[-2:] == (size, size):
        return SortedBatch(images)
    resized = images.new_empty(*images.shape[:2], size, size)
    _take_apart(_resize(_put_together(images), size), resized)
    return SortedBatch(resized)


def _put_together(images: Tensor) -> Tensor:
    """The channels (N, 3, H, W) of every pixel as the bytes of one number, int32 (N, H, W).

    By way of float32, which is exact to 24 bits: there are vector instructions for that, but none for single bytes.
    """
    red, green, blue = images.float().unbind(1)
    return red.add_(green, alpha=2**8).add_(blue, alpha=2**16).int()


def _take_apart(pixels: Tensor, out: Tensor) -> None:
    """The numbers of ``_put_together`` into images."""
    for channel in range(randaugment.CHANNELS):
        out[:, channel] = pixels >> 8 * channel


def _resize(pixels: Tensor, size: int) -> Tensor:
    """Antialiased bilinear, as Pillow's, of pixels put together: what torch's kernel for uint8 is made for."""
    channels = pixels.unsqueeze(-1).view(torch.uint8).permute(0, 3, 1, 2)
    resized = functional.interpolate(channels, size=(size, size), mode="bilinear", antialias=True)
    return resized.permute(0, 2, 3, 1).contiguous().view(torch.int32).squeeze(-1)


def _enlarge_and_crop(images: Tensor, down: Array, right: Array) -> None:
    """Enlarge the images and crop each at its own place, down and right (N,) from [0, 1), in place."""
    size = images.shape[-1]
    margin = round(ENLARGEMENT * size) - size
    if len(images) and margin:
        # Rounding, the benchmark's choice, makes the two extreme places half as likely as the others.
        top, left = (np.round(place * margin).astype(int) for place in (down, right))
        _take_apart(_crop(_resize(_put_together(images), size + margin), top, left, size), images)


def _crop(pixels: Tensor, top: Array, left: Array, size: int) -> Tensor:
    """Crop every image (N, H, W) at its own top and left (N,).

    Every pixel of the batch starts one overlapping window; picking N of them copies row by row, an order of
    magnitude faster than indexing pixel by pixel.
    """
    count, height, width = pixels.shape
    windows = pixels.as_strided((pixels.numel() - (size - 1) * (width + 1), size, size), (1, width, 1))
    starts = np.arange(count) * (height * width) + top * width + left
    return windows.index_select(0, torch.from_numpy(starts))


def _flip(images: Tensor) -> None:
    images.copy_(images.flip(-1))


def _normalise(batch: SortedBatch, spec: ViewSpec) -> Tensor:
    """Float32 (N, 3, S, S), in the order in which the batch was given."""
    scale, shift = _scale_and_shift(spec)
    views = empty_floats(*batch.images.shape)
    canvas = views.numpy()
    # Image by image, for an image stays in the core's cache from one pass over it to the next.
    for number, image in zip(batch.order.tolist(), batch.images.numpy(), strict=True):
        view = canvas[number]
        view[...] = image
        view *= scale
        view -= shift
    return views


@cache
def _scale_and_shift(spec: ViewSpec) -> tuple[Array, Array]:
    std = _per_channel(spec.std)
    return (1 / (255 * std)).numpy(), (_per_channel(spec.mean) / std).numpy()


def _cut_out(views: Tensor, side: int, down: Array, right: Array) -> Tensor:
    """Fill a square of every view with the mean colour, in place; down and right (N,) place its centre."""
    corners = ((np.stack([down, right], 1) * views.shape[-1]).astype(int) - side // 2).tolist()
    for view, (top, left) in zip(views.numpy(), corners, strict=True):
        view[:, max(top, 0) : top + side, max(left, 0) : left + side] = 0.0
    return views


def _per_channel(numbers: tuple[float, float, float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1)
