"""Images decoded and resized once into one memory-mapped uint8 file, and used by every later run.

The file holds one row (3, size, size) per image, the squashed image, and for an image that is not square a second row
right behind it, the centre crop that is used at test: one decode serves both, and square images cost nothing more.

The file is named by the content of the images and the size, so that a moved or copied tree finds it again and a changed
one does not. Reading all files to know their content would take minutes per run on a large benchmark; a small index
remembers the content of a tree by the names, sizes and modification times of its files. Files are written under a
temporary name and renamed, so two runs that build the same cache at once both end up with a complete one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from semilearn_ext import files
from semilearn_ext.data.decode import BadImage, center_crop, decode, read, squash, to_pixels
from semilearn_ext.errors import UserError

_CHUNK = 256


class CachedImages:
    """Images by position from a memory-mapped file: image k is row ``rows[k]``."""

    def __init__(self, pixels: np.ndarray, rows: np.ndarray) -> None:
        self.pixels, self.rows = pixels, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.pixels[self.rows[positions.numpy()]])

    def select(self, positions: Sequence[int]) -> CachedImages:
        """Only the images at ``positions``, in that order."""
        return CachedImages(self.pixels, self.rows[np.asarray(positions, dtype=np.int64)])


class DecodedImages:
    """Images by position, decoded every time they are needed: ``cache: none``."""

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
    """The two views of the same images, and the bad images by name with the reason."""

    squashed: CachedImages
    center: CachedImages
    bad: dict[str, str]


def find_bad(paths: Sequence[Path], progress: bool = True) -> dict[Path, str]:
    """Decode every image; the corrupt ones with the reason."""

    def reason(path: Path) -> str | None:
        try:
            decode(read(path))
        except BadImage as error:
            return str(error)
        return None

    reasons = list(_parallel(reason, paths, "checking images", progress))
    return {path: why for path, why in zip(paths, reasons, strict=True) if why is not None}


def is_cached(root: Path, names: Sequence[str], size: int, folder: Path) -> bool:
    """Whether :func:`open_cache` would have nothing to build."""
    content = _read_index(folder / f"index-{_stat_key(root, sorted(names))}.json")
    return content is not None and _pixels_file(folder, content, size).exists()


def open_cache(root: Path, names: Sequence[str], size: int, folder: Path, progress: bool = True) -> ImageCache:
    """The cached images of ``names`` below ``root``, in that order. Builds the cache if necessary."""
    try:
        return _open(root, names, size, folder, progress)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot keep the cache of {len(names)} images there ({error.strerror}); "
            f"choose another folder with --cache_dir, or do without a cache with --cache none"
        ) from None


def _open(root: Path, names: Sequence[str], size: int, folder: Path, progress: bool) -> ImageCache:
    order = sorted(range(len(names)), key=names.__getitem__)
    ordered = [names[k] for k in order]
    index_file = folder / f"index-{_stat_key(root, ordered)}.json"
    content = _read_index(index_file)
    if content is None:
        content = _content_key(root, ordered, progress)
        files.write_json(index_file, {"content": content})
    pixels_file = _pixels_file(folder, content, size)
    about_file = pixels_file.with_suffix(".json")
    if not pixels_file.exists():
        _build(root, ordered, size, pixels_file, about_file, progress)
    pixels = np.memmap(pixels_file, np.uint8, "r").reshape(-1, 3, size, size)
    about = json.loads(about_file.read_text())
    has_crop = np.zeros(len(names), dtype=np.int64)
    has_crop[about["not_square"]] = 1
    squashed, center = np.empty((2, len(names)), dtype=np.int64)
    squashed[order] = np.arange(len(names)) + has_crop.cumsum() - has_crop
    center[order] = squashed[order] + has_crop
    bad: dict[str, str] = {ordered[int(number)]: reason for number, reason in about["bad"].items()}
    return ImageCache(CachedImages(pixels, squashed), CachedImages(pixels, center), bad)


def _pixels_file(folder: Path, content: str, size: int) -> Path:
    return folder / f"images-{content}-{size}px.uint8"


def _stat_key(root: Path, names: Sequence[str]) -> str:
    digest = hashlib.sha256(str(root.resolve()).encode())
    for name in names:
        try:
            status = os.stat(root / name)
        except OSError as error:
            raise UserError(f"{root / name}: {error.strerror}") from None
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]


def _content_key(root: Path, names: Sequence[str], progress: bool) -> str:
    """A hash of the content of the files, in the order of their names, whatever the names are."""

    def digest_of(name: str) -> bytes:
        try:
            return hashlib.sha256(read(root / name)).digest()
        except BadImage as error:
            return str(error).encode()

    digest = hashlib.sha256()
    for part in _parallel(digest_of, names, "reading images", progress):
        digest.update(part)
    return digest.hexdigest()[:24]


def _read_index(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["content"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(root: Path, names: Sequence[str], size: int, pixels_file: Path, about_file: Path, progress: bool) -> None:
    bad: dict[str, str] = {}
    not_square: list[int] = []

    def rows_of(name: str) -> list[np.ndarray] | str:
        """The squashed image and, if it is not square, its centre crop; or what is wrong with it."""
        try:
            image = decode(read(root / name))
        except BadImage as error:
            return str(error)
        views = [squash] if image.width == image.height else [squash, center_crop]
        return [to_pixels(view(image, size)) for view in views]

    def write(file: Any) -> None:
        for number, rows in enumerate(_parallel(rows_of, names, f"caching at {size} px", progress)):
            if isinstance(rows, str):
                bad[str(number)] = rows
                rows = [np.zeros((3, size, size), np.uint8)]
            elif len(rows) == 2:
                not_square.append(number)
            for row in rows:
                file.write(row.data)
        files.write_json(about_file, {"bad": bad, "not_square": not_square})

    files.write_atomically(pixels_file, write)


def _parallel(function: Callable[[Any], Any], items: Sequence[Any], title: str, progress: bool) -> Iterator[Any]:
    """``function`` of every item, in order, by a few threads that never run far ahead of the consumer."""
    bar = tqdm(total=len(items), desc=title, unit="img", disable=None if progress else True, leave=False)
    with bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(items), _CHUNK):
            for result in pool.map(function, items[start : start + _CHUNK]):
                bar.update()
                yield result
