"""Write files atomically (under a temporary name, flushed and renamed), and list the content of folders.

Symbolic links are never followed when writing: temporary files are created exclusively, the rename replaces a link, and
only regular files are appended to. Devices, pipes and sockets are never replaced.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from semilearn_ext.errors import UserError

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], flush: bool = True) -> None:
    """Call ``write(file)`` on a temporary file in ``path``'s folder and rename it over ``path``.

    ``flush`` waits for the disk, which is not needed for files that can be recreated. If writing fails, for example
    because the disk is full, the temporary file is removed, an existing ``path`` is not changed, and the OSError names
    ``path``.
    """
    if _is_special(path):
        raise UserError(f"{path}: is a pipe, socket or device, and is not written to; choose the name of a file")
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            write(file)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # it does not exist if the folder is read-only
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _is_special(path: Path) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # writing will report it
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))


def open_to_append(path: Path) -> IO[bytes]:
    """Open a regular file for appending, or create it. Links, pipes and devices are an error."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UserError(
                f"{path}: is a symbolic link, pipe or device instead of a regular file; remove it"
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path}: is a symbolic link, pipe or device instead of a regular file; remove it")
    return os.fdopen(descriptor, "ab")


def temporary_files(path: Path) -> list[Path]:
    """The temporary files from which :func:`write_atomically` makes ``path``, also of other processes."""
    return list(path.parent.glob(f".{glob.escape(path.name[:100])}.*.tmp"))


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing."""
    for temporary in folder.glob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, flush: bool = True) -> None:
    """Write ``text`` as UTF-8. File names in it that are not valid text are written as their original bytes."""
    write_atomically(path, lambda file: file.write(encoded(text)), flush)


def encoded(text: str) -> bytes:
    """UTF-8; file names that are not valid text become their original bytes."""
    return text.encode("utf-8", "surrogateescape")


def write_json(path: Path, value: Any, flush: bool = True) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=False) + "\n", flush)


def subfolders(path: Path) -> list[str]:
    """Names of the visible folders in ``path``, sorted."""
    return [entry.name for entry in _visible(path) if entry.is_dir()]


def image_files(path: Path) -> list[str]:
    """Names of the visible images in ``path``, sorted. The case of the file extension does not matter."""
    images = [entry for entry in _visible(path) if entry.name.lower().endswith(IMAGE_EXTENSIONS)]
    for entry in images:
        if not entry.is_file():
            raise UserError(f"{entry.path}: has the name of an image, but is not a regular file; remove or rename it")
    return [entry.name for entry in images]


def _visible(path: Path) -> list[os.DirEntry[str]]:
    """The visible entries of a folder, sorted by name. A link that leads nowhere is an error: otherwise, images would
    be missing without a word."""
    try:
        with os.scandir(path) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"{path}: cannot be listed: {error.strerror}") from None
    for entry in visible:
        if entry.is_symlink() and not os.path.exists(entry.path):
            raise UserError(f"{entry.path}: is a symbolic link that leads nowhere; restore its target, or remove it")
    return sorted(visible, key=lambda entry: entry.name)
