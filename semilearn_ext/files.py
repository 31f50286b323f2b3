"""Files that are complete or absent: written under a temporary name, flushed to disk, renamed. Also: subfolders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from semilearn_ext.errors import UserError


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], flush: bool = True) -> None:
    """Call ``write(file)`` on a temporary file in ``path``'s folder and rename it over ``path``.

    ``flush`` waits for the disk, which is not needed for files that can be recreated. If writing fails, for example
    because the disk is full, the temporary file is removed and the old ``path`` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing."""
    for temporary in folder.glob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, flush: bool = True) -> None:
    write_atomically(path, lambda file: file.write(text.encode()), flush)


def write_json(path: Path, value: Any, flush: bool = True) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=False) + "\n", flush)


def subfolders(path: Path) -> list[str]:
    """Names of the visible folders in ``path``, sorted."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"{path}: cannot be listed: {error.strerror}") from None
