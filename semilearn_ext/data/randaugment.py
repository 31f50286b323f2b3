"""The operations of the strong view and their magnitudes.

They are those of FixMatch (Sohn et al., NeurIPS 2020, https://arxiv.org/abs/2001.07685, appendix), a variant of
RandAugment (Cubuk et al., NeurIPS 2020, https://arxiv.org/abs/1909.13719) that draws a new magnitude for every image.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

OPERATIONS_PER_IMAGE = 2


class Operation(IntEnum):
    """The operations in FixMatch's list."""

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
_LOW, _HIGH = np.array([RANGES[operation] for operation in Operation]).T


def magnitudes(operations: npt.NDArray[Any], uniform: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Map every number in [0, 1) to the range of the corresponding operation; all arrays have the same shape."""
    low, high = _LOW[operations], _HIGH[operations]
    return low + (high - low) * uniform
