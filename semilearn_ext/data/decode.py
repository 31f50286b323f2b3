"""One image file to pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError


class BadImage(Exception):
    """A file that is no whole image. The message is the reason, without the path."""


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode to RGB: palettes, CMYK, alpha (dropped), and 16-bit grey, which Pillow would clip, scaled to 8 bits."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        top = 65535.0 if image.mode.startswith("I") else max(float(values.max()), 1.0)
        image = Image.fromarray((values.clip(0, top) * (255 / top)).round().astype(np.uint8))
    return image.convert("RGB")


def decode(content: bytes, size: int | None) -> np.ndarray:
    """An image file's bytes to uint8 (3, H, W), resized to ``size`` x ``size`` (bilinear) unless it is None."""
    if not content:
        raise BadImage("the file is empty")
    try:
        with Image.open(io.BytesIO(content)) as opened:
            image = to_rgb(opened)
    except UnidentifiedImageError:
        raise BadImage("not an image, or of a kind that is not known") from None
    except Exception as error:  # Pillow raises many kinds on damaged files
        raise BadImage(" ".join(str(error).split()) or type(error).__name__) from None
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadImage(error.strerror or "cannot be read") from None
