"""Files that are either whole or not there: write beside the target, flush to disk, rename."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call ``write(file)`` on a temporary file in ``path``'s folder and rename it over ``path``.

    When writing fails (a full disk, say) the temporary file is removed and the old ``path`` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed in the middle of a write left behind."""
    for temporary in folder.glob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=False) + "\n")
