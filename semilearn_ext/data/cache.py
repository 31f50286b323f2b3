"""Images decoded and resized once into one memory-mapped uint8 file, and used by every later run.

The file is named by the images' content and the size, so that a moved or copied tree finds it again and a changed
one does not. Reading all files to know their content would take minutes a run on a large benchmark; a small index
remembers the content of a tree by the names, sizes and times of its files. Files are written beside their place and
renamed, so two runs that build the same cache at once both end up with a whole one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from semilearn_ext import files
from semilearn_ext.data.decode import BadImage, decode, read
from semilearn_ext.errors import UserError

_CHUNK = 256


class CachedImages:
    """Images by position from a memory-mapped file."""

    def __init__(self, pixels: np.ndarray, rows: np.ndarray) -> None:
        self.pixels, self.rows = pixels, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.pixels[self.rows[positions.numpy()]])


class DecodedImages:
    """Images by position, decoded anew every time: ``cache: none``."""

    def __init__(self, paths: Sequence[Path], size: int) -> None:
        self.paths, self.size = list(paths), size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.stack([self._one(self.paths[p]) for p in positions.tolist()]))

    def _one(self, path: Path) -> np.ndarray:
        try:
            return decode(read(path), self.size)
        except BadImage as error:
            raise UserError(f"{path}: not a whole image ({error})") from None


def find_bad(paths: Sequence[Path], progress: bool = True) -> dict[Path, str]:
    """Decode every image; the broken ones with the reason."""

    def reason(path: Path) -> str | None:
        try:
            decode(read(path), None)
        except BadImage as error:
            return str(error)
        return None

    reasons = list(_parallel(reason, paths, "checking images", progress))
    return {path: why for path, why in zip(paths, reasons, strict=True) if why is not None}


def is_cached(root: Path, names: Sequence[str], size: int, folder: Path) -> bool:
    """Whether :func:`open_cache` would find everything made already."""
    content = _read_index(folder / f"index-{_stat_key(root, sorted(names))}.json")
    return content is not None and (folder / f"images-{content}-{size}px.npy").exists()


def open_cache(
    root: Path, names: Sequence[str], size: int, folder: Path, progress: bool = True
) -> tuple[CachedImages, dict[str, str]]:
    """The cached images of ``names`` below ``root``, built if need be, and the broken ones with the reason."""
    try:
        return _open(root, names, size, folder, progress)
    except OSError as error:
        raise UserError(
            f"{folder}: the cache of {len(names)} images cannot be kept there ({error.strerror}); "
            f"name another folder with --cache_dir, or go without with --cache none"
        ) from None


def _open(
    root: Path, names: Sequence[str], size: int, folder: Path, progress: bool
) -> tuple[CachedImages, dict[str, str]]:
    order = sorted(range(len(names)), key=names.__getitem__)
    ordered = [names[k] for k in order]
    index_file = folder / f"index-{_stat_key(root, ordered)}.json"
    content = _read_index(index_file)
    if content is None:
        content = _content_key(root, ordered, progress)
        files.write_json(index_file, {"content": content})
    pixels_file = folder / f"images-{content}-{size}px.npy"
    bad_file = pixels_file.with_suffix(".json")
    if not pixels_file.exists():
        _build(root, ordered, size, pixels_file, bad_file, progress)
    pixels = np.load(pixels_file, mmap_mode="r")
    rows = np.empty(len(names), dtype=np.int64)
    rows[order] = np.arange(len(names))
    bad: dict[str, str] = {ordered[int(row)]: why for row, why in json.loads(bad_file.read_text()).items()}
    return CachedImages(pixels, rows), bad


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
    """A hash of what the files hold, in the order of their names, whatever the names are."""

    def one(name: str) -> bytes:
        try:
            return hashlib.sha256(read(root / name)).digest()
        except BadImage as error:
            return str(error).encode()

    digest = hashlib.sha256()
    for part in _parallel(one, names, "reading images", progress):
        digest.update(part)
    return digest.hexdigest()[:24]


def _read_index(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["content"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(root: Path, names: Sequence[str], size: int, pixels_file: Path, bad_file: Path, progress: bool) -> None:
    bad: dict[str, str] = {}

    def write(file: Any) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(names), 3, size, size)}
        np.lib.format.write_array_header_1_0(file, header)
        for row, image in enumerate(_parallel(one, names, f"caching at {size} px", progress)):
            if isinstance(image, str):
                bad[str(row)] = image
                image = np.zeros((3, size, size), np.uint8)
            file.write(np.ascontiguousarray(image).data)
        files.write_json(bad_file, bad)

    def one(name: str) -> np.ndarray | str:
        try:
            return decode(read(root / name), size)
        except BadImage as error:
            return str(error)

    files.write_atomically(pixels_file, write)


def _parallel(function: Callable[[Any], Any], items: Sequence[Any], title: str, progress: bool) -> Iterator[Any]:
    """``function`` of every item, in order, by a few threads that never run far ahead of whoever takes the results."""
    bar = tqdm(total=len(items), desc=title, unit="img", disable=None if progress else True, leave=False)
    with bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(items), _CHUNK):
            for result in pool.map(function, items[start : start + _CHUNK]):
                bar.update()
                yield result
