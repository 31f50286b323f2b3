"""Decode an image file and resize it to what the network sees in training and at test time."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from semilearn_ext import documents
from semilearn_ext.errors import UserError

LARGEST = 512 * documents.MEGABYTE
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
"""Pillow knows more formats; for some, such as EPS, it starts other programs."""


class BadImage(Exception):
    """A corrupt, truncated or unreadable image file. The message is the reason, without the path."""


def read(path: Path) -> bytes:
    try:
        return documents.read_bytes(path, LARGEST)
    except UserError as error:
        raise BadImage(str(error).removeprefix(f"{path}: ")) from None


def decode(content: bytes) -> Image.Image:
    """Decode the bytes of an image file to an RGB image at its original size. Raises :class:`BadImage`."""
    if not content:
        raise BadImage("the file is empty")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            return to_rgb(opened)
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("not an image, or an unknown image format") from None
    except Exception as error:  # Pillow raises many kinds of exceptions on damaged files
        raise BadImage(" ".join(str(error).split()) or type(error).__name__) from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to RGB. Alpha is dropped; 16-bit grey, which Pillow would clip, is scaled to 8 bits. Raises
    :class:`BadImage` for values that cannot be scaled."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        top = 65535.0 if image.mode.startswith("I") else max(float(values.max()), 1.0)
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > top:
            raise BadImage("it contains negative, infinite or too large values")
        image = Image.fromarray((values * (255 / top)).round().astype(np.uint8))
    return image.convert("RGB")


def squash(image: Image.Image, size: int) -> Image.Image:
    """Resize the whole image to ``size`` x ``size``, ignoring its aspect ratio: the input of all training views."""
    return _resize(image, size, size)


def center_crop(image: Image.Image, size: int) -> Image.Image:
    """Resize the shorter side to ``size`` and crop the central square: the SSDG benchmark's test view.

    The longer side is rounded down and the corner of the crop is rounded half to even, as in torchvision.
    """
    width, height = image.size
    if width <= height:
        width, height = size, size * height // width
    else:
        width, height = size * width // height, size
    left, top = round((width - size) / 2), round((height - size) / 2)
    return _resize(image, width, height).crop((left, top, left + size, top + size))


def _resize(image: Image.Image, width: int, height: int) -> Image.Image:
    return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)


def to_pixels(image: Image.Image) -> np.ndarray:
    """Convert an RGB image to a uint8 array (3, H, W)."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))
