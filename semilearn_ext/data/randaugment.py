"""RandAugment operations on whole batches of uint8 images, one magnitude for every image.

The operations and their ranges are those of FixMatch (Sohn et al., NeurIPS 2020, appendix), a
variant of RandAugment (Cubuk et al., NeurIPS 2020) that draws the magnitude anew for every image. The
arithmetic is that of Pillow's ``ImageEnhance``, ``ImageOps``, ``Image.rotate`` and ``Image.transform``
(nearest neighbour, black outside), down to truncation and fixed point, so results agree with Pillow's
pixel by pixel.

No function loops over images: the batch is sorted by operation, and four kernels cover the list.
Operations that map grey levels to grey levels become a table per image and channel, geometric ones one
affine gather, and the two that mix a pixel with its other channels or its neighbours a blend each.
"""

import math
from collections.abc import Callable
from enum import IntEnum

import torch
from torch import Tensor

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


def magnitudes(operations: Tensor, uniform: Tensor) -> Tensor:
    """Stretch numbers from [0, 1) over the range of the operation beside each; any shape, float64."""
    bounds = torch.tensor([RANGES[operation] for operation in Operation], dtype=torch.float64)
    low, high = bounds[operations].unbind(-1)
    return low + (high - low) * uniform


def apply(images: Tensor, operations: Tensor, values: Tensor) -> Tensor:
    """Apply one operation to each image.

    images: uint8 (N, 3, S, S) on any device. operations: int64 (N,) of ``Operation`` numbers and values:
    float64 (N,) of magnitudes inside ``RANGES``, both on the CPU. Returns a new uint8 tensor.
    """
    order = operations.argsort(stable=True)
    operations, values = operations[order], values[order]
    ends = _ends(operations)
    # Sorting there and back moves whole images; writing to scattered places would move bytes one by one.
    augmented = images.index_select(0, order.to(images.device))
    for first, last, kernel in _KERNELS:
        part = slice(ends[first], ends[last + 1])
        if part.start < part.stop:
            augmented[part] = kernel(augmented[part], operations[part], values[part])
    return augmented.index_select(0, order.argsort().to(images.device))


def _ends(operations: Tensor) -> list[int]:
    """Where each operation's images begin in a sorted batch; the next entry is where they end."""
    return [0, *operations.bincount(minlength=len(Operation)).cumsum(0).tolist()]


def _map_levels(images: Tensor, operations: Tensor, values: Tensor) -> Tensor:
    """Replace every grey level by its entry in a table per image and channel."""
    ends = _ends(operations)
    levels = torch.arange(LEVELS, device=images.device)
    factors = _beside(values, images, dims=3)
    tables = []
    for operation, make_tables in _TABLE_MAKERS.items():
        part = slice(ends[operation], ends[operation + 1])
        if part.start < part.stop:
            made = make_tables(images[part], factors[part], levels)
            tables.append(made.to(torch.uint8).expand(-1, CHANNELS, -1))
    return torch.cat(tables).gather(2, images.flatten(2).long()).view_as(images)


def _beside(values: Tensor, images: Tensor, dims: int) -> Tensor:
    """Values (N,) as float32 on the images' device, with trailing dimensions to broadcast over."""
    return values.to(images.device, torch.float32).view(-1, *[1] * (dims - 1))


def _autocontrast_table(images: Tensor, _: Tensor, levels: Tensor) -> Tensor:
    pixels = images.flatten(2)
    low = pixels.amin(2, keepdim=True).double()
    high = pixels.amax(2, keepdim=True).double()
    scale = 255.0 / (high - low).clamp(min=1.0)
    stretched = (levels * scale - low * scale).clamp(0.0, 255.0)
    return torch.where(high > low, stretched, levels.double())


def _brightness_table(_: Tensor, factor: Tensor, levels: Tensor) -> Tensor:
    return levels * factor


def _contrast_table(images: Tensor, factor: Tensor, levels: Tensor) -> Tensor:
    # An exact sum: in float32 it would depend on the order of addition, so on the number of threads.
    mean = _grey(images.float()).mean((1, 2, 3), dtype=torch.float64)
    middle = (mean + 0.5).floor().float().view(-1, 1, 1)
    return middle + factor * (levels - middle)


def _equalize_table(images: Tensor, _: Tensor, levels: Tensor) -> Tensor:
    count, pixels = len(images) * CHANNELS, images.flatten(2)
    offsets = torch.arange(count, dtype=torch.int32, device=images.device) * LEVELS
    slots = pixels.reshape(count, -1) + offsets.view(-1, 1)
    histogram = torch.bincount(slots.flatten(), minlength=count * LEVELS).view(-1, CHANNELS, LEVELS)
    brightest = histogram.gather(2, pixels.amax(2, keepdim=True).long())
    step = (pixels.shape[2] - brightest) // 255
    darker = histogram.cumsum(2) - histogram
    flattened = ((step // 2 + darker) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, flattened, levels)


def _posterize_table(_: Tensor, bits: Tensor, levels: Tensor) -> Tensor:
    dropped = torch.pow(2, 8 - bits.long())
    return levels // dropped * dropped


def _solarize_table(_: Tensor, threshold: Tensor, levels: Tensor) -> Tensor:
    return torch.where(levels < threshold, levels, 255 - levels)


def _grey(floats: Tensor) -> Tensor:
    """Luma (N, 1, S, S) of float images (N, 3, S, S) with Pillow's integer weights.

    Exact in float32, because no sum reaches 2 ** 24.
    """
    red, green, blue = floats.split(1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471).add_(32768).mul_(2.0**-16).floor_()


def _blend(degenerate: Tensor, floats: Tensor, factor: Tensor) -> Tensor:
    # By way of int32, for which there are vector instructions; straight to uint8 takes three times as long.
    return (floats - degenerate).mul_(factor).add_(degenerate).to(torch.int32).to(torch.uint8)


def _saturate(images: Tensor, _: Tensor, values: Tensor) -> Tensor:
    floats = images.float()
    return _blend(_grey(floats), floats, _beside(values, images, dims=4))


def _sharpen(images: Tensor, _: Tensor, values: Tensor) -> Tensor:
    """Blend with Pillow's SMOOTH filter, a 3 x 3 box whose centre weighs 5; it leaves the rim as it is."""
    floats = images.float()
    columns = floats[..., :-2] + floats[..., 1:-1] + floats[..., 2:]
    box = columns[..., :-2, :] + columns[..., 1:-1, :] + columns[..., 2:, :]
    smooth = floats.clone()
    inner = floats[..., 1:-1, 1:-1]
    smooth[..., 1:-1, 1:-1] = box.add_(inner, alpha=4).div_(13).add_(0.5).floor_()
    return _blend(smooth, floats, _beside(values, images, dims=4))


def _move(images: Tensor, operations: Tensor, values: Tensor) -> Tensor:
    """Rotate, shear or translate by fetching each pixel from where an affine map puts its centre."""
    size = images.shape[-1]
    matrix = _fixed_point(_affine(operations, values, size)).to(images.device)
    x_by_x, x_by_y, x_shift, y_by_x, y_by_y, y_shift = matrix.view(6, -1, 1, 1)
    along = torch.arange(size, dtype=torch.int32, device=images.device)
    down = along.view(-1, 1)
    # The one-pixel black frame catches every fetch from outside the image.
    columns = ((x_by_x * along + x_shift) + x_by_y * down).bitwise_right_shift_(16).clamp_(-1, size)
    rows = ((y_by_x * along + y_shift) + y_by_y * down).bitwise_right_shift_(16).clamp_(-1, size)
    source = rows.add_(1).mul_(size + 2).add_(columns).add_(1).long().flatten(1)
    framed = torch.nn.functional.pad(images, (1, 1, 1, 1)).flatten(2)
    return framed.gather(2, source.unsqueeze(1).expand(-1, CHANNELS, -1)).view_as(images)


def _affine(operations: Tensor, values: Tensor, size: int) -> Tensor:
    """Pillow's six coefficients from output to input coordinates, (6, N); x' = a x + b y + c comes first."""

    def only(operation: Operation) -> Tensor:
        return torch.where(operations == operation, values, 0.0)

    angle = only(Operation.ROTATE) * (-math.pi / 180)
    cosine, sine, middle = angle.cos(), angle.sin(), size / 2
    return torch.stack(
        [
            cosine,
            sine + only(Operation.SHEAR_X),
            middle - middle * (cosine + sine) + only(Operation.TRANSLATE_X) * size,
            -sine + only(Operation.SHEAR_Y),
            cosine,
            middle - middle * (cosine - sine) + only(Operation.TRANSLATE_Y) * size,
        ]
    )


def _fixed_point(matrix: Tensor) -> Tensor:
    """Coefficients as 16.16 fixed point, the shifts taken at pixel centres, as Pillow's affine does."""
    a, b, c, d, e, f = matrix
    centred = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2])
    return (centred * 65536 + 0.5).floor().to(torch.int32)


_TABLE_MAKERS: dict[Operation, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    Operation.AUTOCONTRAST: _autocontrast_table,
    Operation.BRIGHTNESS: _brightness_table,
    Operation.CONTRAST: _contrast_table,
    Operation.EQUALIZE: _equalize_table,
    Operation.POSTERIZE: _posterize_table,
    Operation.SOLARIZE: _solarize_table,
}
_KERNELS: tuple[tuple[Operation, Operation, Callable[[Tensor, Tensor, Tensor], Tensor]], ...] = (
    (Operation.AUTOCONTRAST, Operation.SOLARIZE, _map_levels),
    (Operation.ROTATE, Operation.TRANSLATE_Y, _move),
    (Operation.COLOR, Operation.COLOR, _saturate),
    (Operation.SHARPNESS, Operation.SHARPNESS, _sharpen),
)
