"""The definition of the views, for one image at a time, with Pillow.

They are those of FixMatch (Sohn et al., NeurIPS 2020, https://arxiv.org/abs/2001.07685) as the SSDG benchmark (Zhou et
al., StyleMatch, IJCV 2023, https://arxiv.org/abs/2106.00592) sets them:

- plain: the whole image, squashed to a square;
- weak: plain; with probability 0.5 enlarged by 1.125 and cropped at random; flipped with probability 0.5;
- strong: plain; flipped with probability 0.5; two RandAugment operations; cutout.

These functions are deterministic; the random numbers of the image are passed as draws. Training uses the fast kernels
of :mod:`semilearn_ext.data.kernels`, which are tested against these functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from semilearn_ext.data.decode import squash, to_pixels
from semilearn_ext.data.randaugment import Operation
from semilearn_ext.data.view_spec import ENLARGEMENT, Array, StrongDraws, ViewSpec, WeakDraws


def plain(image: Image.Image, spec: ViewSpec) -> Array:
    """The plain view. Like all views, it is normalised float32 (3, size, size)."""
    return normalise(to_pixels(squash(image, spec.size)) / 255, spec)


def weak(image: Image.Image, spec: ViewSpec, draws: WeakDraws) -> Array:
    return normalise(to_pixels(translate_and_flip(squash(image, spec.size), draws)) / 255, spec)


def strong(image: Image.Image, spec: ViewSpec, draws: StrongDraws) -> Array:
    pixels = to_pixels(flip_and_augment(squash(image, spec.size), draws)) / 255
    return normalise(cut_out(pixels, spec, draws), spec)


def translate_and_flip(image: Image.Image, draws: WeakDraws) -> Image.Image:
    """The weak view of a square image: enlarged and cropped back to its size, which translates it, and flipped."""
    if draws.enlarge:
        size = image.width
        large = round(ENLARGEMENT * size)
        # Rounding, as the benchmark does, makes the two extreme positions half as likely as the others.
        top, left = (round(float(place) * (large - size)) for place in (draws.down, draws.right))
        image = image.resize((large, large), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    return ImageOps.mirror(image) if draws.flip else image


def flip_and_augment(image: Image.Image, draws: StrongDraws) -> Image.Image:
    """The strong view of a square image, without the cutout."""
    if draws.flip:
        image = ImageOps.mirror(image)
    for operation, magnitude in zip(draws.operations, draws.magnitudes, strict=True):
        image = OPERATIONS[Operation(int(operation))](image, float(magnitude))
    return image


def cut_out(pixels: Array, spec: ViewSpec, draws: StrongDraws) -> Array:
    """Fill one square, clipped at the border, of pixels (3, S, S) in [0, 1] with black or the mean colour."""
    top, left = (int(place * spec.size) - spec.cutout // 2 for place in (draws.down, draws.right))
    colour = (0.0, 0.0, 0.0) if spec.cutout_color == "black" else spec.mean
    pixels = pixels.copy()
    pixels[:, max(top, 0) : top + spec.cutout, max(left, 0) : left + spec.cutout] = np.reshape(colour, (3, 1, 1))
    return pixels


def normalise(pixels: Array, spec: ViewSpec) -> Array:
    """Normalise pixels (3, S, S) in [0, 1] with the dataset's mean and standard deviation; returns float32."""
    mean, std = (np.reshape(numbers, (3, 1, 1)) for numbers in (spec.mean, spec.std))
    return ((pixels - mean) / std).astype(np.float32)


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.NEAREST)


OPERATIONS: dict[Operation, Callable[[Image.Image, float], Image.Image]] = {
    Operation.AUTOCONTRAST: lambda image, _: ImageOps.autocontrast(image),
    Operation.BRIGHTNESS: lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    Operation.COLOR: lambda image, v: ImageEnhance.Color(image).enhance(v),
    Operation.CONTRAST: lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    Operation.EQUALIZE: lambda image, _: ImageOps.equalize(image),
    Operation.IDENTITY: lambda image, _: image,
    Operation.POSTERIZE: lambda image, v: ImageOps.posterize(image, int(v)),
    Operation.ROTATE: lambda image, v: image.rotate(v),
    Operation.SHARPNESS: lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    Operation.SHEAR_X: lambda image, v: _affine(image, 1, v, 0, 0, 1, 0),
    Operation.SHEAR_Y: lambda image, v: _affine(image, 1, 0, 0, v, 1, 0),
    Operation.SOLARIZE: lambda image, v: ImageOps.solarize(image, v),  # type: ignore[arg-type]
    Operation.TRANSLATE_X: lambda image, v: _affine(image, 1, 0, v * image.width, 0, 1, 0),
    Operation.TRANSLATE_Y: lambda image, v: _affine(image, 1, 0, 0, 0, 1, v * image.height),
}
