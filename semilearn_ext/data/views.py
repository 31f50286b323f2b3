"""Plain, weak and strong views of whole batches of uint8 images, without a loop over images.

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

import torch
from torch import Tensor
from torch.nn import functional

from semilearn_ext.data import randaugment

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
    return _normalise(_resize(_checked(images), spec.size), spec)


def weak(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The weak view: translated by up to a ninth of the enlarged side, and flipped."""
    enlarge, down, right, flip = _uniform(rng, 4, len(images))
    resized = _resize(_checked(images), spec.size)
    shifted = _enlarge_and_crop(resized, enlarge < 0.5, down, right)
    return _normalise(_flip(shifted, flip < 0.5) if spec.flip else shifted, spec)


def strong(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The strong view: flipped, two operations drawn with replacement for every image, and cutout."""
    shape = (OPERATIONS_PER_IMAGE, len(images))
    operations = torch.randint(len(randaugment.Operation), shape, generator=rng)
    values = randaugment.magnitudes(operations, _uniform(rng, *shape))
    flip, down, right = _uniform(rng, 3, len(images))
    augmented = _resize(_checked(images), spec.size)
    if spec.flip:
        augmented = _flip(augmented, flip < 0.5)
    for operation, value in zip(operations, values, strict=True):
        augmented = randaugment.apply(augmented, operation, value)
    return _cut_out(_normalise(augmented, spec), spec.cutout, down, right)


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
    on_cpu = images.device.type == "cpu"
    # Only the CPU has a uint8 kernel, several times faster than the float one.
    source = images if on_cpu else images.float()
    resized = functional.interpolate(source, size=(size, size), mode="bilinear", antialias=True)
    return (resized if on_cpu else resized.round_().clamp_(0, 255).to(torch.uint8)).contiguous()


def _enlarge_and_crop(images: Tensor, chosen: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Enlarge the chosen images (N,) and crop each at its own place, down and right (N,) from [0, 1)."""
    size = images.shape[-1]
    margin = round(ENLARGEMENT * size) - size
    where = chosen.nonzero().flatten()
    if not len(where) or not margin:
        return images
    enlarged = _resize(images.index_select(0, where.to(images.device)), size + margin)
    # Rounding, the benchmark's choice, makes the two extreme places half as likely as the others.
    top, left = (down[where] * margin).round().long(), (right[where] * margin).round().long()
    return _replace(images, where, _crop(enlarged, top, left, size))


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


def _flip(images: Tensor, chosen: Tensor) -> Tensor:
    where = chosen.nonzero().flatten()
    return _replace(images, where, images.index_select(0, where.to(images.device)).flip(-1))


def _replace(images: Tensor, where: Tensor, replacements: Tensor) -> Tensor:
    """As ``images.index_copy(0, where, replacements)``, but image by image instead of byte by byte."""
    source = torch.arange(len(images))
    source[where] = torch.arange(len(images), len(images) + len(where))
    return torch.cat([images, replacements]).index_select(0, source.to(images.device))


def _cut_out(views: Tensor, side: int, down: Tensor, right: Tensor) -> Tensor:
    """Fill a square of every view with the mean colour, in place; down and right (N,) place its centre."""
    size = views.shape[-1]
    steps = torch.arange(side) - side // 2
    # The centre lies inside, so clamping repeats pixels of the square and never leaves it.
    rows, columns = (
        ((place * size).long().view(-1, 1) + steps).clamp_(0, size - 1).to(views.device) for place in (down, right)
    )
    pixels = (rows.unsqueeze(2) * size + columns.unsqueeze(1)).flatten(1)
    views.flatten(2).scatter_(2, pixels.unsqueeze(1).expand(-1, views.shape[1], -1), 0.0)
    return views


def _normalise(images: Tensor, spec: ViewSpec) -> Tensor:
    mean, std = _per_channel(spec.mean, images), _per_channel(spec.std, images)
    return images.float().mul_(1 / (255 * std)).sub_(mean / std)


def _per_channel(numbers: tuple[float, float, float], images: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32, device=images.device).view(1, -1, 1, 1)
