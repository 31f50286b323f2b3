"""Decoded images in one file of uint8 rows (3, size, size), with a description in a second file.

The description, ``<name>.json``, holds the digest of the images that were decoded, their number and size, and a
checksum of every row; it is protected by a checksum of its own. A file that does not match its description is not
opened, and every row is verified when it is first read, unless this process has written the file and it has not changed
since. A damaged row is decoded again from its image, even if it was damaged while a run was using the file.

The file is read instead of being memory-mapped: a process that accesses a mapped page of a file that has been
truncated is killed (SIGBUS).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from semilearn_ext import files
from semilearn_ext.errors import UserError
from semilearn_ext.settings.image_cache import description_file, pixels_digest, read_about, write_about

FORMAT = 2
_WORDS = 128
"""64-bit words in a block of a row."""
_ROWS_PER_WRITE = 32
"""Rows that are written at once."""
_CLOCK_MARGIN = 50_000_000
"""Nanoseconds after which another change has a different time; file systems record times in steps of up to 10 ms."""


@dataclass(frozen=True)
class Description:
    """The content of a pixel file. Rows are sorted by image name; an image that is not square has two rows."""

    digest: str
    size: int
    images: int
    not_square: list[int] = field(default_factory=list)
    """Indices of the images that have a second row."""
    bad: dict[str, str] = field(default_factory=dict)
    """Indices of corrupt images, each with the reason; their row is black."""
    checksums: list[int] = field(default_factory=list)
    """One number per row, see :func:`checksum`."""
    format: int = FORMAT

    @property
    def row_bytes(self) -> int:
        return 3 * self.size * self.size

    def first_rows(self) -> np.ndarray:
        """(images,) the first row of every image."""
        second = np.zeros(self.images, dtype=np.int64)
        second[self.not_square] = 1
        return np.arange(self.images) + second.cumsum() - second

    def is_consistent(self) -> bool:
        """Whether all positions and checksums are possible ones."""
        lists = isinstance(self.not_square, list) and isinstance(self.checksums, list) and isinstance(self.bad, dict)
        if not lists or len(self.checksums) != self.images + len(self.not_square):
            return False
        possible = set(range(self.images))
        return (
            all(type(value) is int and 0 <= value < 2**32 for value in self.checksums)
            and all(type(number) is int for number in self.not_square)
            and len(possible.intersection(self.not_square)) == len(self.not_square)
            and self.bad.keys() <= set(map(str, possible))
            and all(isinstance(reason, str) for reason in self.bad.values())
        )

    def write(self, pixels: Path) -> None:
        write_about(pixels, asdict(self))


def read_description(path: Path, digest: str, size: int, images: int) -> Description | str:
    """The description of the pixel file ``path``, or the reason why it cannot be used; "" if there is no such file."""
    if not path.exists():
        return ""
    if not description_file(path).is_file():
        return "it has no description"
    recorded = read_about(path)
    try:
        about = Description(**recorded or {})
    except TypeError:
        return "its description is damaged"
    if (about.format, about.digest, about.size, about.images) != (FORMAT, digest, size, images):
        return "it is the cache of other images"
    if not about.is_consistent():
        return "its description is damaged"
    if not path.is_file() or path.stat().st_size != len(about.checksums) * about.row_bytes:
        return "its size does not match its description"
    return about


def write_pixels(path: Path, about: Description, rows: Callable[[Description], Iterator[np.ndarray]]) -> Description:
    """Write the rows that ``rows(about)`` yields and their checksums; ``rows`` also fills the other lists of ``about``.

    The images are decoded by threads: a few calls for many rows wait less for the interpreter than some for each.
    """

    def write(file: IO[bytes]) -> None:
        remaining = rows(about)
        while chunk := list(itertools.islice(remaining, _ROWS_PER_WRITE)):
            pixels = np.stack(chunk)
            about.checksums.extend(checksums(pixels))
            file.write(pixels.data)

    files.write_atomically(path, write)
    about.write(path)
    return about


def checksum(row: np.ndarray) -> int:
    return checksums(row[None])[0]


def checksums(rows: np.ndarray) -> list[int]:
    """One number per row: CRC-32 of the sums of its 64-bit words, by block and by place in a block, and of the rest.

    A word that changes changes two sums, and so does one that moves to another place or block. Adding takes a third of
    the time of a CRC-32 of all bytes.
    """
    contents = rows.data.cast("B")
    size = len(contents) // len(rows)
    blocks = size // (8 * _WORDS)
    words = np.ndarray((len(rows), blocks, _WORDS), np.uint64, contents, strides=(size, 8 * _WORDS, 8))
    by_place, by_block = np.add.reduce(words, 1), np.add.reduce(words, 2)
    rest = (contents[(k + 1) * size - size % (8 * _WORDS) : (k + 1) * size] for k in range(len(rows)))
    crc = zlib.crc32
    return [crc(c, crc(b, crc(a))) for a, b, c in zip(by_place, by_block, rest, strict=True)]


def time_of_change(path: Path) -> int | None:
    """When the file was last changed, in nanoseconds; None if that was just now, so that another change might not
    show."""
    changed = path.stat().st_ctime_ns
    return changed if time.time_ns() - changed > _CLOCK_MARGIN else None


class PixelFile:
    """Verified rows of a pixel file.

    Args:
        decode: ``decode(row)`` computes the row again from its image.
        written: :func:`time_of_change` of a file that this process has written; as long as it is the same, nothing
            needs to be verified.
    """

    def __init__(
        self, path: Path, about: Description, decode: Callable[[int], np.ndarray], written: int | None = None
    ) -> None:
        self.path, self.size, self.row_bytes, self.decode = path, about.size, about.row_bytes, decode
        self.checksums = np.asarray(about.checksums, dtype=np.uint32)
        self.verified = np.zeros(len(self.checksums), dtype=bool)
        self.written = written
        self.reported = False
        self._file: IO[bytes] | None = path.open("rb", buffering=0)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the open file, so that a spawned loader process opens it itself."""
        return {**vars(self), "_file": None}

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.checksums), 3, self.size, self.size

    def digest(self) -> str:
        """SHA-256 of the size and the checksums of all rows: it differs if one decoded image differs."""
        return pixels_digest(self.size, self.checksums.tolist())

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """The given rows, (N, 3, size, size)."""
        pixels = np.empty((len(rows), 3, self.size, self.size), np.uint8)
        for row, target in zip(rows.tolist(), pixels, strict=True):
            if not self._read(row, target):
                target[:] = self._repair(row)
        return pixels

    def _read(self, row: int, target: np.ndarray) -> bool:
        """Read a row; return False if it cannot be read or, on the first read, does not match its checksum."""
        try:
            self._file = self._file or self.path.open("rb", buffering=0)
            count = os.preadv(self._file.fileno(), [target.data], row * self.row_bytes)
        except OSError:
            return False
        if count != self.row_bytes:
            return False
        if not self.verified[row] and os.fstat(self._file.fileno()).st_ctime_ns != self.written:
            self.verified[row] = checksum(target) == self.checksums[row]
            return bool(self.verified[row])
        return True

    def _repair(self, row: int) -> np.ndarray:
        if not self.reported:
            self.reported = True
            print(f"{self.path}: the cache is damaged; decoding the damaged images again", file=sys.stderr, flush=True)
        self.verified[:] = False
        pixels = self.decode(row)
        if checksum(pixels) != self.checksums[row]:
            with contextlib.suppress(OSError):  # so that the next run builds the cache again
                description_file(self.path).unlink()
            raise UserError(
                f"{self.path}: the cache is damaged and its images have changed; run the same command again"
            )
        with contextlib.suppress(OSError):  # a cache that cannot be written is repaired for this process only
            self._write(row, pixels)
        return pixels

    def _write(self, row: int, pixels: np.ndarray) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            # The path may refer to another file by now. A truncated file is left for the next run to build again:
            # writing beyond its end would add zeros in rows that other processes have already verified.
            is_same_file = self._file is not None and os.path.samestat(status, os.fstat(self._file.fileno()))
            if is_same_file and status.st_size >= (row + 1) * self.row_bytes:
                os.pwrite(descriptor, pixels.data, row * self.row_bytes)
        finally:
            os.close(descriptor)
