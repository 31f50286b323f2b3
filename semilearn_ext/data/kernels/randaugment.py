"""RandAugment operations on a whole batch of uint8 images, with one magnitude per image.

The arithmetic is that of Pillow's ``ImageEnhance``, ``ImageOps``, ``Image.rotate`` and ``Image.transform`` (nearest
neighbour, black outside), including truncation and fixed-point arithmetic, so the results equal Pillow's exactly.

The batch is grouped by kernel, and each kernel changes its images in place. Operations on single grey levels use a
lookup table. Per-image values, such as a magnitude or a table, are computed with numpy, whose calls cost a fraction of
torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from semilearn_ext.data.kernels.grouped_batch import GroupedBatch
from semilearn_ext.data.randaugment import Operation
from semilearn_ext.data.view_spec import Array

LEVELS = 256
CHANNELS = 3
_GREYS = np.arange(LEVELS)


@torch.inference_mode()  # avoids the overhead of autograd in hundreds of small calls
def apply(batch: GroupedBatch, operations: Array, magnitudes: Array) -> None:
    """Apply one operation to each image. The images of ``batch`` are replaced by a changed copy.

    Args:
        batch: uint8 (N, 3, S, S) on the CPU.
        operations: (N,) ``Operation`` numbers, in the original order of the batch.
        magnitudes: float64 (N,), in the same order.
    """
    batch.group(_KERNEL_OF[operations])
    operations, magnitudes = operations[batch.order], magnitudes[batch.order]
    ends = np.bincount(_KERNEL_OF[operations], minlength=len(_KERNELS)).cumsum().tolist()
    for (kernel, _), start, end in zip(_KERNELS, [0, *ends[:-1]], ends, strict=True):
        if start < end:
            kernel(batch.images[start:end], operations[start:end], magnitudes[start:end])


def _keep(_: Tensor, __: Array, ___: Array) -> None:
    pass


def _map_levels(
    make_tables: Callable[[Tensor, Array], Array], images: Tensor, operations: Array, values: Array
) -> None:
    """Replace every grey level by its entry in a table (N, 1 or 3, 256): one per image or one per channel."""
    tables = make_tables(images, values.reshape(-1, 1, 1)).astype(np.uint8).reshape(-1, LEVELS)
    for pixels, table in zip(images.numpy().reshape(len(tables), -1), tables, strict=True):
        # translate() works on bytes; numpy indexing would first convert them to int64.
        pixels[:] = np.frombuffer(bytearray(pixels).translate(table), np.uint8)  # type: ignore[arg-type]


def _autocontrast_tables(images: Tensor, _: Array) -> Array:
    planes = images.flatten(2).numpy()
    return stretched(planes.min(2), planes.max(2))


def stretched(low: Array, high: Array) -> Array:
    """Pillow's autocontrast tables (…, 256) for channels with darkest level ``low`` and brightest level ``high``."""
    low, high = (extreme[..., None].astype(float) for extreme in (low, high))
    scale = 255.0 / (high - low).clip(1.0)
    return np.where(high > low, (_GREYS * scale - low * scale).clip(0.0, 255.0), _GREYS)


def _brightness_tables(factors: Array) -> Array:
    return _GREYS.astype(np.float32) * factors.astype(np.float32)


def _contrast_tables(images: Tensor, factors: Array) -> Array:
    """Blend with the mean of the grey image."""
    # Sums of rows are exact in float32; a sum over all pixels would depend on the order of addition (on the threads).
    sums = grey(images.float()).sum(3).numpy().sum((1, 2), dtype=np.float64)
    mean = np.floor(sums / images[0, 0].numel() + 0.5).astype(np.float32)
    flat = torch.from_numpy(mean.repeat(LEVELS).reshape(-1, 1, LEVELS))
    return flat.lerp(torch.from_numpy(_GREYS).float(), torch.from_numpy(factors).float()).numpy()


def _equalize_tables(images: Tensor, _: Array) -> Array:
    planes = images.flatten(2).flatten(0, 1).unbind()
    counts = torch.stack([plane.bincount(minlength=LEVELS) for plane in planes]).numpy().reshape(-1, CHANNELS, LEVELS)
    up_to = counts.cumsum(2)
    # Pillow's step counts only the pixels that are darker than the brightest level that occurs.
    step = np.where(up_to < images[0, 0].numel(), up_to, 0).max(2, keepdims=True) // 255
    flattened = (step // 2 + up_to - counts) // np.maximum(step, 1)
    return np.where(step > 0, np.minimum(flattened, 255), _GREYS)


def _posterize_tables(bits: Array) -> Array:
    return _GREYS & (LEVELS - 2 ** (8 - bits.astype(int)))


def _solarize_tables(thresholds: Array) -> Array:
    return np.where(thresholds > _GREYS, _GREYS, 255 - _GREYS)


FIXED_TABLES: dict[Operation, Callable[[Array], Array]] = {
    Operation.BRIGHTNESS: _brightness_tables,
    Operation.POSTERIZE: _posterize_tables,
    Operation.SOLARIZE: _solarize_tables,
}
"""Operations whose tables (…, 256) depend only on the magnitudes (…, 1) and not on the image."""


def _tables_of(operation: Operation) -> Callable[[Tensor, Array], Array]:
    return lambda _, values: FIXED_TABLES[operation](values)


def _saturate(images: Tensor, _: Array, factors: Array) -> None:
    """Blend with the grey image."""
    floats = images.float()
    _blend(grey(floats), floats, factors, images)


def _sharpen(images: Tensor, _: Array, factors: Array) -> None:
    """Blend with Pillow's SMOOTH filter, a 3 x 3 box whose centre has weight 5. The border is not changed."""
    floats = images.float()
    _blend(smooth(floats), floats[..., 1:-1, 1:-1], factors, images[..., 1:-1, 1:-1])


def smooth(floats: Tensor) -> Tensor:
    """The inner pixels (N, 3, S - 2, S - 2) of float images (N, 3, S, S) after Pillow's SMOOTH filter, rounded."""
    columns = (floats[..., :-2] + floats[..., 1:-1]).add_(floats[..., 2:])
    box = (columns[..., :-2, :] + columns[..., 1:-1, :]).add_(columns[..., 2:, :])
    # No multiple of 1/13 is close to a half, so rounding errors do not matter.
    return box.add_(floats[..., 1:-1, 1:-1], alpha=4).mul_(1 / 13).round_()


def grey(floats: Tensor) -> Tensor:
    """Luma (N, 1, S, S) of float images (N, 3, S, S) with Pillow's integer weights.

    Exact in float32, because no sum of 65536ths reaches 2 ** 24.
    """
    red, green, blue = floats.split(1, dim=1)
    return (red * (19595 / 65536)).add_(green, alpha=38470 / 65536).add_(blue, alpha=7471 / 65536).add_(0.5).floor_()


def _blend(degenerate: Tensor, floats: Tensor, factors: Array, out: Tensor) -> None:
    """Blend into ``out``, truncated by numpy, which has vector instructions for that."""
    blended = degenerate.lerp(floats, torch.from_numpy(factors).float().view(-1, 1, 1, 1))
    np.copyto(out.numpy(), blended.numpy(), casting="unsafe")


def _turn(images: Tensor, operations: Array, values: Array) -> None:
    """Rotate or shear along y: fetch every pixel from where Pillow's affine map puts its centre."""
    count, size = len(images), images.shape[-1]
    fixed = torch.from_numpy(turn_coefficients(operations, values, size))
    along_x, along_y, start = fixed.view(3, 2, count, 1, 1).unbind()
    steps = torch.arange(size, dtype=torch.int32)
    places = (along_x * steps + start) + along_y * steps.view(-1, 1)
    rows, columns = places.bitwise_right_shift_(16).clamp_(0, size + 1).unbind()
    source = rows.mul_(size + 2).add_(columns).long().view(count, 1, -1).expand(-1, CHANNELS, -1)
    torch.gather(pad(images, (1, 1, 1, 1)).flatten(2), 2, source, out=images.view(count, CHANNELS, -1))


def turn_coefficients(operations: Array, values: Array, size: int) -> Array:
    """Source coordinates (row, column) in fixed point (3, 2, N): increment per column, increment per row, and start.

    They refer to the image with a black frame of one pixel, which stands for everything outside.
    """
    angle = np.where(operations == Operation.ROTATE, values, 0.0) * (-math.pi / 180)
    slope = np.where(operations == Operation.SHEAR_Y, values, 0.0)
    cosine, sine, middle = np.cos(angle), np.sin(angle), size / 2
    # Row and column of the source: by_x x + by_y y + shift.
    by_x, by_y = np.stack([slope - sine, cosine]), np.stack([cosine, sine])
    shift = middle - middle * np.stack([cosine - sine, cosine + sine])
    return fixed_point(by_x, by_y, shift + (by_x + by_y) / 2 + 1)


def _translate(images: Tensor, operations: Array, shares: Array) -> None:
    shifts = fixed_point(shares * images.shape[-1] + 0.5)[0] >> 16
    for image, operation, by in zip(images, operations.tolist(), shifts.tolist(), strict=True):
        image.copy_(pad(image, (-by, by) if operation == Operation.TRANSLATE_X else (0, 0, -by, by)))


def _shear(images: Tensor, _: Array, slopes: Array) -> None:
    """Shear along x. Rows are only shifted, so whole rows are copied, which is several times faster."""
    size = images.shape[-1]
    along_y, start = fixed_point(slopes, (1 + slopes) / 2)[..., None]
    columns = along_y * np.arange(size) + start >> 16
    margin = int(abs(columns).max())
    framed = pad(images, (margin, margin)).flatten()
    rows = np.arange(margin, len(framed), size + 2 * margin).reshape(-1, CHANNELS, size)
    # Every pixel is the start of one of many overlapping rows.
    starts = torch.from_numpy((rows + columns[:, None]).ravel())
    torch.index_select(framed.unfold(0, size, 1), 0, starts, out=images.view(-1, size))


def fixed_point(*coefficients: Array) -> Array:
    """Convert coefficients to Pillow's 16.16 fixed point and stack them in the given order."""
    return np.floor(np.stack(coefficients) * 65536 + 0.5).astype(np.int32)


# Every kernel with the operations that it implements.
_KERNELS: tuple[tuple[Callable[[Tensor, Array, Array], None], tuple[Operation, ...]], ...] = (
    (partial(_map_levels, _autocontrast_tables), (Operation.AUTOCONTRAST,)),
    (partial(_map_levels, _tables_of(Operation.BRIGHTNESS)), (Operation.BRIGHTNESS,)),
    (partial(_map_levels, _contrast_tables), (Operation.CONTRAST,)),
    (partial(_map_levels, _equalize_tables), (Operation.EQUALIZE,)),
    (partial(_map_levels, _tables_of(Operation.POSTERIZE)), (Operation.POSTERIZE,)),
    (partial(_map_levels, _tables_of(Operation.SOLARIZE)), (Operation.SOLARIZE,)),
    (_saturate, (Operation.COLOR,)),
    (_sharpen, (Operation.SHARPNESS,)),
    (_turn, (Operation.ROTATE, Operation.SHEAR_Y)),
    (_shear, (Operation.SHEAR_X,)),
    (_translate, (Operation.TRANSLATE_X, Operation.TRANSLATE_Y)),
    (_keep, (Operation.IDENTITY,)),
)
_KERNEL_OF = np.array([[op in covered for _, covered in _KERNELS].index(True) for op in Operation])
