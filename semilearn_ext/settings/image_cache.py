"""Names and descriptions of the files in which decoded images are cached. Does not import numpy.

The description of a pixel file has one checksum per decoded row. Its digest identifies the decoded images, which depend
on the image files, the size and the version of the decoder.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError
from semilearn_ext.settings.content import FOLDER, folder_digest, index_folder
from semilearn_ext.settings.schema import Settings

_LARGEST = 512 * documents.MEGABYTE


def pixel_file(folder: Path, digest: str, size: int) -> Path:
    """The pixel file of the images with this digest."""
    return folder / f"images-{digest[:24]}-{size}px.uint8"


def description_file(pixels: Path) -> Path:
    return pixels.with_suffix(".json")


def write_about(pixels: Path, about: dict[str, Any]) -> None:
    files.write_text(description_file(pixels), json.dumps({"about": about, "sha256": _sha256(about)}) + "\n")


def read_about(pixels: Path) -> dict[str, Any] | None:
    """The description of a pixel file; None if it is damaged."""
    try:
        content = json.loads(documents.read_text(description_file(pixels), _LARGEST))
        about: dict[str, Any] = content["about"]
        return about if content["sha256"] == _sha256(about) else None
    except (UserError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _sha256(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def pixels_digest(size: int, checksums: Sequence[int]) -> str:
    """SHA-256 of the size and the checksums of all rows: it differs if one decoded image differs."""
    return hashlib.sha256(f"{size}\n".encode() + struct.pack(f"<{len(checksums)}I", *checksums)).hexdigest()


def known_pixels(folder: Path, digest: str, size: int) -> str:
    """The digest of the decoded images if they are in the cache, otherwise "". No image is decoded."""
    pixels = pixel_file(folder, digest, size)
    try:
        status = os.stat(description_file(pixels))
    except OSError:
        return ""
    return _known_pixels(pixels, digest, size, status.st_mtime_ns) if pixels.is_file() else ""


@functools.cache
def _known_pixels(pixels: Path, digest: str, size: int, _: int) -> str:
    about = read_about(pixels)
    try:
        return pixels_digest(size, about["checksums"]) if about and about["digest"] == digest else ""
    except (KeyError, TypeError, struct.error):
        return ""


def known_pixels_of_own_images(settings: Settings) -> str:
    """:func:`known_pixels` of the user's own images, which identify an experiment; "" for other datasets."""
    if settings.dataset != FOLDER or settings.cache == "none":
        return ""
    digest = folder_digest(Path(settings.data_dir), Path(settings.cache_dir))
    return known_pixels(index_folder(settings.cache_dir), digest, settings.img_size)
