"""The parameters of a view and the random numbers that it depends on.

The numbers are drawn for a whole batch at once from a CPU generator. How many are drawn depends only on the number of
images, not on the spec. Given the draws, a view is a deterministic function of the image:
:mod:`semilearn_ext.data.views_reference` defines it image by image, :mod:`semilearn_ext.data.kernels` computes it fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt
import torch

from semilearn_ext.data.randaugment import OPERATIONS_PER_IMAGE, Operation, magnitudes

Array = npt.NDArray[Any]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ENLARGEMENT = 1.125


@dataclass(frozen=True)
class ViewSpec:
    """The side and the cutout of a view in pixels, whether to flip, the normalisation, and the cutout's colour
    (``black`` or ``mean``)."""

    size: int
    flip: bool = True
    cutout: int = 16
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    cutout_color: str = "black"


class WeakDraws(NamedTuple):
    """Random numbers of weak views: arrays (N,) for a batch, their elements for one image."""

    enlarge: Array
    down: Array
    """Position of the crop in [0, 1), from top to bottom."""
    right: Array
    flip: Array

    def of_image(self, k: int) -> WeakDraws:
        return WeakDraws(*(numbers[k] for numbers in self))


class StrongDraws(NamedTuple):
    """Random numbers of strong views: for a batch, arrays (N,), or (2, N) with one number per operation; for one image,
    their elements."""

    operations: Array
    magnitudes: Array
    flip: Array
    down: Array
    """Centre of the cutout in [0, 1), from top to bottom."""
    right: Array

    def of_image(self, k: int) -> StrongDraws:
        return StrongDraws(*(numbers[..., k] for numbers in self))


def draw_weak(rng: torch.Generator, count: int, spec: ViewSpec) -> WeakDraws:
    enlarge, down, right, flip = _uniform(rng, 4, count)
    return WeakDraws(enlarge < 0.5, down, right, (flip < 0.5) & spec.flip)


def draw_strong(rng: torch.Generator, count: int, spec: ViewSpec) -> StrongDraws:
    """Draw operations with replacement, and their magnitudes uniformly from their ranges."""
    operations = torch.randint(len(Operation), (OPERATIONS_PER_IMAGE, count), generator=rng).numpy()
    values = magnitudes(operations, _uniform(rng, OPERATIONS_PER_IMAGE, count))
    flip, down, right = _uniform(rng, 3, count)
    return StrongDraws(operations, values, (flip < 0.5) & spec.flip, down, right)


def _uniform(rng: torch.Generator, rows: int, count: int) -> Array:
    # Not float32, in which a number just below 1, multiplied by a size, can round up to the size.
    numbers: Array = torch.rand(rows, count, generator=rng, dtype=torch.float64).numpy()
    return numbers
