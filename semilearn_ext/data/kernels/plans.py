"""Plans for the device kernels, computed on the host from the random draws of a batch.

A plan is a set of small arrays: which images need which operation, and its parameters. Everything that does not depend
on the pixels (lookup tables of grey levels, coordinates in Pillow's fixed point, resampling weights) is computed here,
with the functions of the CPU kernels, so that it is the same for every device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from semilearn_ext.data.kernels import randaugment
from semilearn_ext.data.kernels.randaugment import LEVELS, fixed_point
from semilearn_ext.data.randaugment import OPERATIONS_PER_IMAGE, Operation
from semilearn_ext.data.view_spec import ENLARGEMENT, Array, StrongDraws, ViewSpec, WeakDraws

Plan = dict[str, Array]
STAGES = range(OPERATIONS_PER_IMAGE)


def weak(draws: WeakDraws, spec: ViewSpec) -> Plan:
    """The plan of a weak view.

    Returns:
        ``enlarge``: indices of the images to enlarge; ``top``, ``left``: where those are cropped; ``flip``: (N,).
    """
    margin = enlarged(spec.size) - spec.size
    which = np.flatnonzero(draws.enlarge) if margin else np.empty(0, np.int64)
    top, left = (np.round(place[which] * margin).astype(np.int64) for place in (draws.down, draws.right))
    return {"enlarge": which, "top": top, "left": left, "flip": np.asarray(draws.flip, bool)}


def strong(draws: StrongDraws, spec: ViewSpec) -> Plan:
    """The plan of a strong view.

    Returns:
        ``<stage>.<kernel>``: indices of the images; ``<stage>.<kernel>.values``: one row of parameters for each;
        ``top``, ``left`` (N,): corner of the cutout; ``flip``: (N,).
    """
    top, left = ((place * spec.size).astype(np.int64) - spec.cutout // 2 for place in (draws.down, draws.right))
    plan = {"top": top, "left": left, "flip": np.asarray(draws.flip, bool)}
    for stage, operations, magnitudes in zip(STAGES, draws.operations, draws.magnitudes, strict=True):
        for name, (covered, values) in _KERNELS.items():
            which = np.flatnonzero(np.isin(operations, covered))
            plan[f"{stage}.{name}"] = which
            plan[f"{stage}.{name}.values"] = values(operations[which], magnitudes[which], spec.size)
    return plan


def _none(_: Array, magnitudes: Array, __: int) -> Array:
    return np.empty((len(magnitudes), 0), np.float32)


def _factors(_: Array, magnitudes: Array, __: int) -> Array:
    return magnitudes.astype(np.float32)


def _tables(operations: Array, magnitudes: Array, _: int) -> Array:
    """Lookup tables, uint8 (N, 256), from a grey level to the new one."""
    tables = np.empty((len(operations), LEVELS), np.uint8)
    for operation, make in randaugment.FIXED_TABLES.items():
        which = operations == operation
        tables[which] = make(magnitudes[which, None]).astype(np.uint8)
    return tables


def _coordinates(operations: Array, magnitudes: Array, size: int) -> Array:
    """Source coordinates (row, column), int32 (N, 3, 2) in 16.16 fixed point.

    The three entries are the increment per column of the result, the increment per row, and the start. They refer to
    the image with a black frame of one pixel, which stands for everything outside.
    """
    turned = randaugment.turn_coefficients(operations, magnitudes, size)
    coordinates = turned.transpose(2, 0, 1).copy()
    zero = np.zeros_like(magnitudes)
    for operation, axis in ((Operation.TRANSLATE_Y, 0), (Operation.TRANSLATE_X, 1)):
        which = operations == operation
        shift = fixed_point(magnitudes * size + 0.5)[0] >> 16
        coordinates[which] = _shifted(axis, zero, (shift + 1) << 16)[which]
    which = operations == Operation.SHEAR_X
    along_y, start = fixed_point(magnitudes, (1 + magnitudes) / 2)
    coordinates[which] = _shifted(1, along_y, start + 65536)[which]
    return coordinates


def _shifted(axis: int, along_y: Array, start: Array) -> Array:
    """The identity map, except that along ``axis`` (0: row, 1: column) it starts at ``start`` and grows by ``along_y``
    per row."""
    coordinates = np.zeros((len(start), 3, 2), np.int32)
    coordinates[:, 0, 1] = coordinates[:, 1, 0] = 65536
    coordinates[:, 2] = 65536
    coordinates[:, 1, axis] += along_y.astype(np.int32)
    coordinates[:, 2, axis] = start
    return coordinates


# Every device kernel with the operations that it implements and the function that computes their parameters.
_KERNELS: dict[str, tuple[tuple[Operation, ...], Callable[[Array, Array, int], Array]]] = {
    "autocontrast": ((Operation.AUTOCONTRAST,), _none),
    "equalize": ((Operation.EQUALIZE,), _none),
    "contrast": ((Operation.CONTRAST,), _factors),
    "tables": (tuple(randaugment.FIXED_TABLES), _tables),
    "saturate": ((Operation.COLOR,), _factors),
    "sharpen": ((Operation.SHARPNESS,), _factors),
    "move": (
        (Operation.ROTATE, Operation.SHEAR_X, Operation.SHEAR_Y, Operation.TRANSLATE_X, Operation.TRANSLATE_Y),
        _coordinates,
    ),
}


def enlarged(size: int) -> int:
    return round(ENLARGEMENT * size)


class Resampling(NamedTuple):
    """Antialiased bilinear resampling of one axis to S pixels, in the fixed-point format of torch's uint8 kernel."""

    first: Tensor
    """int64 (S,): the first source pixel of every output pixel."""
    weights: Tensor
    """int32 (S, K): the weights of K source pixels, starting with ``first``."""
    precision: int
    """Number of fractional bits."""


@functools.cache
def resampling(before: int, after: int, device: torch.device) -> Resampling:
    scale = before / after
    support = max(scale, 1.0)
    centre = scale * (np.arange(after) + 0.5)
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centre + support + 0.5).astype(np.int64), before) - first
    taps = np.arange(count.max())
    distance = np.abs((taps + first[:, None] - centre[:, None] + 0.5) / support)
    weights = np.where(taps < count[:, None], (1 - distance).clip(0), 0)
    weights /= weights.sum(1, keepdims=True)
    precision = 0
    while precision < 22 and int(0.5 + weights.max() * (1 << (precision + 1))) < 1 << 15:
        precision += 1
    fixed = (0.5 + weights * (1 << precision)).astype(np.int32)
    return Resampling(torch.from_numpy(first).to(device), torch.from_numpy(fixed).to(device), precision)


@functools.cache
def autocontrast_tables(device: torch.device) -> Tensor:
    """Lookup tables, uint8 (256, 256, 256), by the darkest and the brightest level of a channel.

    They take 16 MB and replace float64 arithmetic, which not every device supports.
    """
    tables = np.empty((LEVELS, LEVELS, LEVELS), np.uint8)
    high = np.arange(LEVELS)
    for low in range(LEVELS):
        tables[low] = randaugment.stretched(np.full_like(high, low), high)
    return torch.from_numpy(tables).to(device)
