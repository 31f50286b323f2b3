"""A cache of decoded and resized images, built once and used by every later run.

The cache is one file of pixels. Every image has one row (3, size, size), the squashed image. An image that is not
square has a second row right after it: the centre crop that is used at test time. Both come from a single decode, and
square images need no extra space.

The file is named after a digest of the images and the size, so a moved or copied folder finds its cache again and a
changed one does not. The content is verified (see :mod:`semilearn_ext.data.pixel_file`). Files are written under a
temporary name and renamed, so two runs that build the same cache at the same time both end up with a complete one.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from semilearn_ext import files
from semilearn_ext.data.decode import BadImage, center_crop, decode, read, squash, to_pixels
from semilearn_ext.data.pixel_file import (
    Description,
    PixelFile,
    read_description,
    time_of_change,
    write_pixels,
)
from semilearn_ext.errors import UserError
from semilearn_ext.settings.content import images_digest, in_parallel, known_digest
from semilearn_ext.settings.image_cache import pixel_file

_ABANDONED = 3600.0
"""Seconds without a change after which a half-written cache is considered abandoned."""


class CachedImages:
    """Images by position from a pixel file: image k is row ``rows[k]``."""

    def __init__(self, pixels: PixelFile, rows: np.ndarray) -> None:
        self.pixels, self.rows = pixels, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.pixels[self.rows[positions.numpy()]])

    def select(self, positions: Sequence[int]) -> CachedImages:
        """Only the images at ``positions``, in that order."""
        return CachedImages(self.pixels, self.rows[np.asarray(positions, dtype=np.int64)])


class DecodedImages:
    """Images by position, decoded whenever they are accessed: ``cache: none``."""

    def __init__(self, paths: Sequence[Path], size: int, resize: Callable[[Image.Image, int], Image.Image]) -> None:
        self.paths, self.size, self.resize = list(paths), size, resize

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.stack([self._pixels(self.paths[p]) for p in positions.tolist()]))

    def _pixels(self, path: Path) -> np.ndarray:
        try:
            return to_pixels(self.resize(decode(read(path)), self.size))
        except BadImage as error:
            raise UserError(f"{path}: corrupt or truncated image ({error})") from None


class ImageCache(NamedTuple):
    """The squashed and the centre-cropped version of the same images, and the reason for every corrupt one."""

    squashed: CachedImages
    center: CachedImages
    bad: dict[str, str]
    digest: str
    """SHA-256 of the images."""
    pixels_digest: str
    """SHA-256 of the checksums of all rows, so of the decoded images."""


def find_bad(paths: Sequence[Path], progress: bool = True) -> dict[Path, str]:
    """Decode every image and return the corrupt ones, each with the reason."""

    def reason(path: Path) -> str | None:
        try:
            decode(read(path))
        except BadImage as error:
            return str(error)
        return None

    reasons = list(in_parallel(reason, paths, "checking images", progress))
    return {path: why for path, why in zip(paths, reasons, strict=True) if why is not None}


def is_cached(root: Path, names: Sequence[str], size: int, folder: Path) -> bool:
    """Whether :func:`open_cache` would find a complete cache."""
    digest = known_digest(root, names, folder)
    return digest is not None and isinstance(
        read_description(pixel_file(folder, digest, size), digest, size, len(names)), Description
    )


def open_cache(root: Path, names: Sequence[str], size: int, folder: Path, progress: bool = True) -> ImageCache:
    """The cached images of ``names`` below ``root``, in that order. Builds the cache if it is missing or damaged."""
    try:
        return _open(root, names, size, folder, progress)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot store the cache of {len(names)} images there ({error.strerror}); "
            f"choose another folder with --cache_dir, or disable the cache with --cache none"
        ) from None


def _open(root: Path, names: Sequence[str], size: int, folder: Path, progress: bool) -> ImageCache:
    order = sorted(range(len(names)), key=names.__getitem__)
    ordered = [names[k] for k in order]
    digest = images_digest(root, ordered, folder, progress)
    path = pixel_file(folder, digest, size)
    about = read_description(path, digest, size, len(names))
    written = None
    if isinstance(about, str):
        if about:
            print(f"{path}: cache ignored because {about}; building it again", file=sys.stderr, flush=True)
        about = _build(root, ordered, Description(digest, size, len(names)), path, progress)
        if images_digest(root, ordered, folder) != digest:
            raise UserError(f"{root}: the images changed while they were being read; run the same command again")
        written = time_of_change(path)
    has_crop = np.zeros(len(names), dtype=np.int64)
    has_crop[about.not_square] = 1
    squashed, center = np.empty((2, len(names)), dtype=np.int64)
    squashed[order] = about.first_rows()
    center[order] = about.first_rows() + has_crop
    pixels = PixelFile(path, about, Rows(root, ordered, size, about.first_rows()), written)
    bad = {ordered[int(number)]: reason for number, reason in about.bad.items()}
    return ImageCache(CachedImages(pixels, squashed), CachedImages(pixels, center), bad, digest, pixels.digest())


def _rows_of(path: Path, size: int) -> list[np.ndarray]:
    """The squashed image and, if it is not square, its centre crop."""
    image = decode(read(path))
    views = [squash] if image.width == image.height else [squash, center_crop]
    return [to_pixels(view(image, size)) for view in views]


@dataclass(frozen=True)
class Rows:
    """Decodes a row of a damaged pixel file again from its image."""

    root: Path
    names: list[str]
    size: int
    first_rows: np.ndarray

    def __call__(self, row: int) -> np.ndarray:
        number = int(np.searchsorted(self.first_rows, row, side="right")) - 1
        path = self.root / self.names[number]
        try:
            return _rows_of(path, self.size)[row - int(self.first_rows[number])]
        except (BadImage, IndexError):
            raise UserError(f"{path}: the image has changed during the run; run the same command again") from None


def _build(root: Path, names: Sequence[str], about: Description, path: Path, progress: bool) -> Description:
    def rows_or_reason(name: str) -> list[np.ndarray] | str:
        try:
            return _rows_of(root / name, about.size)
        except BadImage as error:
            return str(error)

    def rows(about: Description) -> Iterator[np.ndarray]:
        black = np.zeros((3, about.size, about.size), np.uint8)
        decoded = in_parallel(rows_or_reason, names, f"caching at {about.size} px", progress)
        for number, rows in enumerate(decoded):
            if isinstance(rows, str):
                about.bad[str(number)] = rows
                rows = [black]
            elif len(rows) == 2:
                about.not_square.append(number)
            yield from rows

    if path.is_fifo() or path.is_socket():  # writing would refuse to replace it, and the name is this cache's alone
        path.unlink()
    _remove_leftovers(path)
    return write_pixels(path, about, rows)


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes have left of this cache: hidden files that may have gigabytes. Another process may
    be writing one right now, which changes its time."""
    for temporary in files.temporary_files(path):
        with contextlib.suppress(OSError):
            if time.time() - temporary.stat().st_mtime > _ABANDONED:
                temporary.unlink()
