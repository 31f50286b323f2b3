"""How the four domains of digits_mini are drawn. Pictures are float RGB in [0, 1] until :func:`to_bytes`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

SIZE = 32

Range = tuple[float, float]


@dataclass(frozen=True)
class Stroke:
    """How an 8x8 original becomes a stroke; lengths are in pixels, angles in degrees."""

    pixels_per_cell: Range
    tilt: Range
    shift: Range
    threshold: Range  # ink level at the stroke's edge: lower is thicker
    softness: float  # width of the edge, in ink level


@dataclass(frozen=True)
class PenLook:
    """Strength of the ``pen`` look; brightness is in 0..1."""

    stroke: Stroke = Stroke((2.8, 3.5), (-10.0, 10.0), (-1.5, 1.5), (0.43, 0.62), 0.26)
    ink: Range = (0.70, 1.0)
    paper: Range = (0.0, 0.12)


@dataclass(frozen=True)
class TextureLook:
    """Strength of the ``texture`` look."""

    stroke: Stroke = Stroke((2.8, 3.5), (-12.0, 12.0), (-2.0, 2.0), (0.43, 0.59), 0.24)
    cells: tuple[int, ...] = (3, 6, 13)  # octaves of the texture: grid cells along a side
    light_contrast: Range = (0.30, 0.70)  # range of the texture's brightness
    colour_contrast: Range = (0.15, 0.50)  # range of each channel on its own
    distance_from_grey: Range = (0.13, 0.33)  # a mid-grey texture would hide a difference blend
    tint: float = 0.20
    blend: Range = (0.70, 1.0)


@dataclass(frozen=True)
class StreetLook:
    """Strength of the ``street`` look."""

    stroke: Stroke = Stroke((2.7, 3.6), (-19.0, 19.0), (-2.5, 2.5), (0.41, 0.59), 0.30)
    contrast: Range = (0.19, 0.50)
    tint: float = 0.16
    neighbour_chance: float = 0.75
    neighbour_distance: Range = (16.0, 22.0)
    blur: Range = (0.6, 1.4)
    lighting: Range = (0.08, 0.42)
    noise: Range = (0.02, 0.06)


@dataclass(frozen=True)
class PrintLook:
    """Strength of the ``print`` look."""

    height: Range = (16.0, 26.0)
    stretch: Range = (0.80, 1.30)
    tilt: Range = (-16.0, 16.0)
    shift: Range = (-3.0, 3.0)
    contrast: Range = (0.28, 0.70)
    tint: float = 0.40
    clutter_shapes: int = 5
    clutter_contrast: float = 0.18
    blur: Range = (0.0, 0.9)
    noise: Range = (0.0, 0.04)


PEN = PenLook()
TEXTURE = TextureLook()
STREET = StreetLook()
PRINT = PrintLook()

_LUMA = np.array([0.299, 0.587, 0.114])
_SUPERSAMPLE = 4
_GLYPH_POINTS = 128


def draw_pen(rng: np.random.Generator, original: np.ndarray, look: PenLook) -> np.ndarray:
    """Light strokes on a dark background, in grey."""
    placement = _place(rng, look.stroke)
    paper, ink = rng.uniform(*look.paper), rng.uniform(*look.ink)
    mask = _stroke(original, placement)
    return np.repeat((paper + (ink - paper) * mask)[..., None], 3, axis=2)


def draw_texture(rng: np.random.Generator, original: np.ndarray, look: TextureLook) -> np.ndarray:
    """The absolute difference of a stroke and a colour texture: the texture is inverted where the stroke is."""
    mask = _stroke(original, _place(rng, look.stroke))
    side = -1.0 if rng.random() < 0.5 else 1.0
    base = 0.5 + side * rng.uniform(*look.distance_from_grey) + _tint(rng, look.tint)
    light = rng.uniform(*look.light_contrast) * _octaves(rng, look.cells)
    colours = rng.uniform(*look.colour_contrast) * np.stack([_octaves(rng, look.cells) for _ in range(3)], axis=2)
    texture = np.clip(base + light[..., None] + colours, 0.0, 1.0)
    return np.abs(texture - rng.uniform(*look.blend) * mask[..., None])


def draw_street(
    rng: np.random.Generator, original: np.ndarray, left: np.ndarray, right: np.ndarray, look: StreetLook
) -> np.ndarray:
    """A number on a wall: neighbours on the same tilted line, uneven light, blur, sensor noise."""
    placement = _place(rng, look.stroke)
    mask = _stroke(original, placement)
    for neighbour, side in ((left, -1.0), (right, 1.0)):
        shows, distance = rng.random() < look.neighbour_chance, rng.uniform(*look.neighbour_distance)
        if shows:
            mask = np.maximum(mask, _stroke(neighbour, placement.moved_along_line(side * distance)))
    wall, paint = _contrasting_colours(rng, look.contrast, look.tint)
    lit = _over(wall, paint, mask) * _lighting(rng, rng.uniform(*look.lighting))[..., None]
    return _photographed(rng, lit, look.blur, look.noise)


def draw_print(rng: np.random.Generator, font: str, character: str, look: PrintLook) -> np.ndarray:
    """A printed character over light clutter."""
    mask = _printed_mask(rng, glyph(font, character), look)
    ground, ink = _contrasting_colours(rng, look.contrast, look.tint)
    return _photographed(rng, _over(_clutter(rng, ground, look), ink, mask), look.blur, look.noise)


@functools.cache
def glyph(font: str, character: str) -> Image.Image:
    """A character in one of matplotlib's fonts: large, white on black, cropped to its bounding box."""
    import matplotlib

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    # The basic layout engine is always available; the other one depends on how Pillow was built.
    typeface = ImageFont.truetype(str(file), _GLYPH_POINTS, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (2 * _GLYPH_POINTS, 2 * _GLYPH_POINTS), 0)
    ImageDraw.Draw(canvas).text((_GLYPH_POINTS // 2, _GLYPH_POINTS // 4), character, fill=255, font=typeface)
    return canvas.crop(canvas.getbbox())


class _Placement(NamedTuple):
    """The position of a stroke on the canvas, and its thickness."""

    row: float
    column: float
    pixels_per_cell: float
    tilt: float
    threshold: float
    softness: float

    def moved_along_line(self, distance: float) -> _Placement:
        """The same placement, moved by ``distance`` along the tilted baseline."""
        row, column = self.row + distance * math.sin(self.tilt), self.column + distance * math.cos(self.tilt)
        return self._replace(row=row, column=column)


def _place(rng: np.random.Generator, stroke: Stroke) -> _Placement:
    middle = (SIZE - 1) / 2
    return _Placement(
        row=middle + rng.uniform(*stroke.shift),
        column=middle + rng.uniform(*stroke.shift),
        pixels_per_cell=rng.uniform(*stroke.pixels_per_cell),
        tilt=math.radians(rng.uniform(*stroke.tilt)),
        threshold=rng.uniform(*stroke.threshold),
        softness=stroke.softness,
    )


def _stroke(original: np.ndarray, place: _Placement) -> np.ndarray:
    """Enlarge an 8x8 original by cubic splines and threshold it softly: (32, 32) in 0..1."""
    # Ink touches the border of many originals; without a margin their strokes would end in a straight cut.
    margin = 2
    padded = np.pad(original, margin)
    cosine = math.cos(place.tilt) / place.pixels_per_cell
    sine = math.sin(place.tilt) / place.pixels_per_cell
    middle = (len(padded) - 1) / 2
    level = ndimage.affine_transform(
        padded,
        np.array([[cosine, -sine], [sine, cosine]]),
        offset=(
            middle - cosine * place.row + sine * place.column,
            middle - sine * place.row - cosine * place.column,
        ),
        output_shape=(SIZE, SIZE),
        order=3,
    )
    return _smooth_step((level - place.threshold) / place.softness + 0.5)


def _smooth_step(values: np.ndarray) -> np.ndarray:
    clipped = np.clip(values, 0.0, 1.0)
    return clipped * clipped * (3.0 - 2.0 * clipped)


def _octaves(rng: np.random.Generator, cells: Sequence[int]) -> np.ndarray:
    """Smooth noise in about -0.5..0.5, dominated by the coarse cells."""
    total, weights = np.zeros((SIZE, SIZE)), 0.0
    for order, side in enumerate(cells):
        grid = Image.fromarray(rng.uniform(-0.5, 0.5, (side, side)).astype(np.float32))
        weight = 1.0 / (1.0 + order)
        total += weight * np.asarray(grid.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.float64)
        weights += weight
    # Averaging octaves reduces their range; the factor restores it.
    return total * (1.5 / weights)


def _tint(rng: np.random.Generator, strength: float) -> np.ndarray:
    """A random offset of the three channels that does not change the brightness."""
    offset = rng.uniform(-strength, strength, 3)
    return offset - (offset * _LUMA).sum()


def _contrasting_colours(rng: np.random.Generator, contrast: Range, tint: float) -> tuple[np.ndarray, np.ndarray]:
    """Background and ink colours whose brightness differs by a contrast from the range; either may be the lighter."""
    gap = rng.uniform(*contrast)
    darker = rng.uniform(0.05, 0.95 - gap)
    pair = [darker, darker + gap]
    if rng.random() < 0.5:
        pair.reverse()
    ground, ink = (np.clip(brightness + _tint(rng, tint), 0.0, 1.0) for brightness in pair)
    return ground, ink


def _over(ground: np.ndarray, ink: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return ground + (ink - ground) * mask[..., None]


def _lighting(rng: np.random.Generator, strength: float) -> np.ndarray:
    """A linear gradient of brightness around 1 in a random direction."""
    angle = rng.uniform(0.0, 2.0 * math.pi)
    ramp = np.linspace(-1.0, 1.0, SIZE)
    return 1.0 + strength * (math.sin(angle) * ramp[:, None] + math.cos(angle) * ramp[None, :])


def _photographed(rng: np.random.Generator, picture: np.ndarray, blur: Range, noise: Range) -> np.ndarray:
    width = rng.uniform(*blur)
    blurred = ndimage.gaussian_filter(picture, (width, width, 0.0), mode="nearest")
    return blurred + rng.uniform(*noise) * rng.standard_normal(blurred.shape)


def _printed_mask(rng: np.random.Generator, shape: Image.Image, look: PrintLook) -> np.ndarray:
    """Place a glyph on the canvas: (32, 32) coverage in 0..1."""
    side = SIZE * _SUPERSAMPLE
    height = rng.uniform(*look.height) * _SUPERSAMPLE
    width = min(height * shape.width / shape.height * rng.uniform(*look.stretch), side - _SUPERSAMPLE)
    resized = shape.resize((round(width), round(height)), Image.Resampling.BICUBIC)
    shift_x, shift_y = (round(rng.uniform(*look.shift) * _SUPERSAMPLE) for _ in range(2))
    canvas = Image.new("L", (side, side), 0)
    canvas.paste(resized, ((side - resized.width) // 2 + shift_x, (side - resized.height) // 2 + shift_y))
    turned = canvas.rotate(rng.uniform(*look.tilt), Image.Resampling.BILINEAR)
    return np.asarray(turned.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.float64) / 255.0


def _clutter(rng: np.random.Generator, ground: np.ndarray, look: PrintLook) -> np.ndarray:
    """The background with a few lines and discs in similar colours: (32, 32, 3)."""
    side = SIZE * _SUPERSAMPLE
    canvas = Image.new("RGB", (side, side), _colour(ground))
    pen = ImageDraw.Draw(canvas)
    for _ in range(int(rng.integers(look.clutter_shapes + 1))):
        colour = _colour(ground + rng.uniform(-look.clutter_contrast, look.clutter_contrast, 3))
        x0, y0, x1, y1 = (float(value) for value in rng.uniform(0.0, side, 4))
        if rng.random() < 0.5:
            pen.line((x0, y0, x1, y1), fill=colour, width=int(rng.integers(_SUPERSAMPLE, 4 * _SUPERSAMPLE)))
        else:
            pen.ellipse((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)), fill=colour)
    return np.asarray(canvas.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.float64) / 255.0


def _colour(channels: np.ndarray) -> tuple[int, int, int]:
    red, green, blue = to_bytes(channels).tolist()
    return red, green, blue


def to_bytes(picture: np.ndarray) -> np.ndarray:
    return np.round(np.clip(picture, 0.0, 1.0) * 255.0).astype(np.uint8)
