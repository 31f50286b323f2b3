"""RandAugment operations on whole batches of uint8 images, one magnitude for every image.

The operations and their ranges are those of FixMatch (Sohn et al., NeurIPS 2020, appendix), a
variant of RandAugment (Cubuk et al., NeurIPS 2020) that draws the magnitude anew for every image. The
arithmetic is that of Pillow's ``ImageEnhance``, ``ImageOps``, ``Image.rotate`` and ``Image.transform``
(nearest neighbour, black outside), down to truncation and fixed point, so results agree with Pillow's
pixel by pixel.

The batch is sorted by kernel and operation, and eight kernels cover the list; each works on few enough images
for its temporaries to stay in the cache. What belongs to a whole image, such as a magnitude or a table of grey
levels, is computed by numpy, whose calls cost a fraction of torch's; what belongs to pixels, on their device.
"""

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

Array = npt.NDArray[Any]
LEVELS = 256
CHANNELS = 3


class Operation(IntEnum):
    """The FixMatch list, in an order that keeps the operations of one kernel together."""

    AUTOCONTRAST = 0
    BRIGHTNESS = 1
    CONTRAST = 2
    EQUALIZE = 3
    POSTERIZE = 4
    SOLARIZE = 5
    ROTATE = 6
    SHEAR_X = 7
    SHEAR_Y = 8
    TRANSLATE_X = 9
    TRANSLATE_Y = 10
    COLOR = 11
    SHARPNESS = 12
    IDENTITY = 13


# Bits for posterize, degrees for rotate, a share of the side for translate, Pillow's own unit elsewhere.
RANGES: dict[Operation, tuple[float, float]] = {
    Operation.AUTOCONTRAST: (0.0, 1.0),
    Operation.BRIGHTNESS: (0.05, 0.95),
    Operation.CONTRAST: (0.05, 0.95),
    Operation.EQUALIZE: (0.0, 1.0),
    Operation.POSTERIZE: (4.0, 8.0),
    Operation.SOLARIZE: (0.0, 256.0),
    Operation.ROTATE: (-30.0, 30.0),
    Operation.SHEAR_X: (-0.3, 0.3),
    Operation.SHEAR_Y: (-0.3, 0.3),
    Operation.TRANSLATE_X: (-0.3, 0.3),
    Operation.TRANSLATE_Y: (-0.3, 0.3),
    Operation.COLOR: (0.05, 0.95),
    Operation.SHARPNESS: (0.05, 0.95),
    Operation.IDENTITY: (0.0, 1.0),
}
_BOUNDS = torch.tensor([RANGES[operation] for operation in Operation], dtype=torch.float64)


def magnitudes(operations: Tensor, uniform: Tensor) -> Tensor:
    """Stretch numbers from [0, 1) over the range of the operation beside each; any shape, float64."""
    low, high = _BOUNDS[operations].unbind(-1)
    return low + (high - low) * uniform


def apply(images: Tensor, operations: Tensor, values: Tensor) -> Tensor:
    """Apply one operation to each image.

    images: uint8 (N, 3, S, S) on any device. operations: int64 (N,) of ``Operation`` numbers and values:
    float64 (N,) of magnitudes inside ``RANGES``, both on the CPU. Returns a new uint8 tensor.
    """
    augmented = torch.empty_like(images)
    numbers, magnitudes = operations.numpy(), values.numpy()
    kernels = _KERNEL_OF[numbers]
    order = np.lexsort((numbers, kernels))
    ends = np.bincount(kernels, minlength=len(_KERNELS)).cumsum()
    for (kernel, _), where in zip(_KERNELS, np.split(order, ends), strict=False):
        if len(where):
            put(augmented, where, kernel(pick(images, where), numbers[where], magnitudes[where]))
    return augmented


def pick(images: Tensor, where: Array) -> Tensor:
    """A copy of the images at the places ``where`` (M,)."""
    return images.index_select(0, torch.from_numpy(where).to(images.device))


def put(images: Tensor, where: Array, replacements: Tensor) -> None:
    """Replace the images at the places ``where`` (M,)."""
    if images.device.type == "cpu":
        # By numpy, which copies image by image; torch would copy byte by byte.
        images.numpy()[where] = replacements.numpy()
    else:
        images[torch.from_numpy(where).to(images.device)] = replacements


def _beside(numbers: Array, images: Tensor) -> Tensor:
    """Numbers (N,) on the images' device, to broadcast over (N, 3, S, S)."""
    return torch.from_numpy(numbers).to(images.device).view(-1, 1, 1, 1)


def _keep(images: Tensor, _: Array, __: Array) -> Tensor:
    return images


def _map_levels(images: Tensor, operations: Array, values: Array) -> Tensor:
    """Replace every grey level by its entry in a table per image and channel."""
    tables = np.empty((len(images), CHANNELS, LEVELS), np.uint8)
    for operation, make_tables in _TABLE_MAKERS.items():
        start, end = np.searchsorted(operations, (operation, operation + 1))
        if start < end:
            tables[start:end] = make_tables(images[start:end].flatten(2), values[start:end])
    if images.device.type != "cpu":
        return torch.from_numpy(tables).to(images.device).gather(2, images.flatten(2).long()).view_as(images)
    # Python's own translate takes bytes as they are; gather needs the images as int64 first.
    planes = zip(images.flatten(0, 1).numpy(), tables.reshape(-1, LEVELS), strict=True)
    mapped = bytearray().join([plane.tobytes().translate(table.tobytes()) for plane, table in planes])
    return torch.frombuffer(mapped, dtype=torch.uint8).view_as(images)


def _autocontrast_tables(pixels: Tensor, _: Array) -> Array:
    low, high = (extreme.cpu().numpy().astype(float)[..., None] for extreme in (pixels.amin(2), pixels.amax(2)))
    scale = 255.0 / (high - low).clip(1.0)
    return np.where(high > low, (_GREYS * scale - low * scale).clip(0.0, 255.0), _GREYS)


def _equalize_tables(pixels: Tensor, _: Array) -> Array:
    planes = pixels.flatten(0, 1).unbind()
    counts = torch.stack([plane.bincount(minlength=LEVELS) for plane in planes]).cpu().numpy()
    counts = counts.reshape(-1, CHANNELS, LEVELS)
    up_to = counts.cumsum(2)
    # Pillow's step leaves out the brightest level that occurs, so counts the pixels that are darker.
    step = np.where(up_to < pixels.shape[2], up_to, 0).max(2, keepdims=True) // 255
    flattened = (step // 2 + up_to - counts) // np.maximum(step, 1)
    return np.where(step > 0, np.minimum(flattened, 255), _GREYS)


def _solarize_tables(_: Tensor, thresholds: Array) -> Array:
    return np.where(thresholds[:, None, None] > _GREYS, _GREYS, 255 - _GREYS)


def _posterize(images: Tensor, _: Array, bits: Array) -> Tensor:
    kept = LEVELS - 2 ** (8 - bits.astype(int))
    return images & _beside(kept.astype(np.uint8), images)


def _brighten(images: Tensor, _: Array, factors: Array) -> Tensor:
    return _truncate(images.float().mul_(_beside(factors.astype(np.float32), images)))


def _mix_with_grey(images: Tensor, operations: Array, factors: Array) -> Tensor:
    """Color blends with the grey image, contrast, whose images come first, with its mean."""
    floats = images.float()
    grey = _grey(floats)
    contrast = grey[: np.count_nonzero(operations == Operation.CONTRAST)]
    # An exact sum: in float32 it would depend on the order of addition, so on the number of threads.
    contrast[:] = contrast.mean((1, 2, 3), keepdim=True, dtype=torch.float64).add_(0.5).floor_()
    return _blend(grey, floats, factors)


def _sharpen(images: Tensor, _: Array, factors: Array) -> Tensor:
    """Blend with Pillow's SMOOTH filter, a 3 x 3 box whose centre weighs 5; it leaves the rim as it is."""
    floats, sharpened = images.float(), images.clone()
    columns = (floats[..., :-2] + floats[..., 1:-1]).add_(floats[..., 2:])
    box = (columns[..., :-2, :] + columns[..., 1:-1, :]).add_(columns[..., 2:, :])
    inner = floats[..., 1:-1, 1:-1]
    smooth = box.add_(inner, alpha=4).div_(13).add_(0.5).floor_()
    sharpened[..., 1:-1, 1:-1] = _blend(smooth, inner, factors)
    return sharpened


def _grey(floats: Tensor) -> Tensor:
    """Luma (N, 1, S, S) of float images (N, 3, S, S) with Pillow's integer weights.

    Exact in float32, because no sum of 65536ths reaches 2 ** 24.
    """
    red, green, blue = floats.split(1, dim=1)
    return (red * (19595 / 65536)).add_(green, alpha=38470 / 65536).add_(blue, alpha=7471 / 65536).add_(0.5).floor_()


def _blend(degenerate: Tensor, floats: Tensor, factors: Array) -> Tensor:
    return _truncate(degenerate.lerp(floats, _beside(factors.astype(np.float32), floats)))


def _truncate(floats: Tensor) -> Tensor:
    # By way of int32, for which there are vector instructions; straight to uint8 takes three times as long.
    return floats.to(torch.int32).to(torch.uint8)


def _turn(images: Tensor, operations: Array, values: Array) -> Tensor:
    """Rotate or shear along y: fetch every pixel from where Pillow's affine map puts its centre."""
    size = images.shape[-1]
    angle = np.where(operations == Operation.ROTATE, values, 0.0) * (-math.pi / 180)
    slope = np.where(operations == Operation.SHEAR_Y, values, 0.0)
    cosine, sine, middle = np.cos(angle), np.sin(angle), size / 2
    rows = _places(size, slope - sine, cosine, middle - middle * (cosine - sine), images.device)
    columns = _places(size, cosine, sine, middle - middle * (cosine + sine), images.device)
    source = rows.mul_(size + 2).add_(columns).long().view(len(images), 1, -1)
    return pad(images, (1, 1, 1, 1)).flatten(2).gather(2, source.expand(-1, CHANNELS, -1)).view_as(images)


def _places(size: int, by_x: Array, by_y: Array, shift: Array, device: torch.device) -> Tensor:
    """by_x x + by_y y + shift, rounded down, at the centres of all pixels: int32 (N, size, size).

    Counted from a one-pixel black frame, which catches everything outside the image.
    """
    fixed = _fixed_point(by_x, by_y, shift + (by_x + by_y) / 2 + 1)
    along_x, along_y, start = torch.from_numpy(fixed).to(device).view(3, -1, 1, 1).unbind()
    steps = torch.arange(size, dtype=torch.int32, device=device)
    places = (along_x * steps + start) + along_y * steps.view(-1, 1)
    return places.bitwise_right_shift_(16).clamp_(0, size + 1)


def _slide(images: Tensor, operations: Array, values: Array) -> Tensor:
    """Translate or shear along x: rows of pixels stay whole, so fetch row by row, several times as fast."""
    size, steps = images.shape[-1], np.arange(images.shape[-1])
    slope, right, down = (
        np.where(operations == operation, values, 0.0)
        for operation in (Operation.SHEAR_X, Operation.TRANSLATE_X, Operation.TRANSLATE_Y)
    )
    along_y, x_start, y_start = _fixed_point(slope, right * size + (1 + slope) / 2, down * size + 0.5)[..., None]
    columns = (along_y * steps + x_start >> 16).clip(-size, size)
    rows = (steps + (y_start >> 16)).clip(-1, size)
    margin = int(abs(columns).max())
    framed = pad(images, (margin, margin, 1, 1))
    planes = np.arange(len(images) * CHANNELS).reshape(-1, CHANNELS, 1) * (size + 2)
    starts = (planes + rows[:, None] + 1) * (size + 2 * margin) + columns[:, None] + margin
    # Every pixel starts one of as many overlapping rows.
    return pick(framed.flatten().unfold(0, size, 1), starts.ravel()).view_as(images)


def _fixed_point(*coefficients: Array) -> Array:
    """Coefficients as Pillow's 16.16 fixed point, in the order given."""
    return np.floor(np.stack(coefficients) * 65536 + 0.5).astype(np.int32)


_GREYS = np.arange(LEVELS)
_TABLE_MAKERS: dict[Operation, Callable[[Tensor, Array], Array]] = {
    Operation.AUTOCONTRAST: _autocontrast_tables,
    Operation.EQUALIZE: _equalize_tables,
    Operation.SOLARIZE: _solarize_tables,
}
# With the operations each covers. A kernel gets its images sorted by operation.
_KERNELS: tuple[tuple[Callable[[Tensor, Array, Array], Tensor], tuple[Operation, ...]], ...] = (
    (_map_levels, tuple(_TABLE_MAKERS)),
    (_posterize, (Operation.POSTERIZE,)),
    (_brighten, (Operation.BRIGHTNESS,)),
    (_mix_with_grey, (Operation.CONTRAST, Operation.COLOR)),
    (_sharpen, (Operation.SHARPNESS,)),
    (_turn, (Operation.ROTATE, Operation.SHEAR_Y)),
    (_slide, (Operation.SHEAR_X, Operation.TRANSLATE_X, Operation.TRANSLATE_Y)),
    (_keep, (Operation.IDENTITY,)),
)
_KERNEL_OF = np.array([[op in covered for _, covered in _KERNELS].index(True) for op in Operation])
