"""``SHA256SUMS`` next to the files of a recorded experiment, in the format of ``sha256sum --check``.

While files are being replaced, it lists the checksums of the old and the new content of each, so that an interrupted
write is not mistaken for damage.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError

SUMS_FILE = "SHA256SUMS"


def write_summed(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files ``texts`` of ``folder`` in this order, and their checksums."""
    new = [f"{hashlib.sha256(files.encoded(text)).hexdigest()}  {name}" for name, text in texts.items()]
    sums = folder / SUMS_FILE
    old = _lines(sums) if sums.is_file() else []
    files.write_text(sums, _joined([*old, *(line for line in new if line not in old)]))
    for name, text in texts.items():
        files.write_text(folder / name, text)
    files.write_text(sums, _joined(new))


def check_sums(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Raise a UserError if a file in ``folder`` does not have the content that :func:`write_summed` wrote."""
    sums = folder / SUMS_FILE
    if not os.path.lexists(sums):
        raise UserError(
            f"{sums}: is missing; collect the runs again or, if the files are correct, create it in that folder with "
            f"'sha256sum {' '.join(contents)} > {SUMS_FILE}'"
        )
    lines = _lines(sums)
    for name, content in contents.items():
        if f"{hashlib.sha256(content).hexdigest()}  {name}" not in lines:
            raise UserError(
                f"{folder / name}: does not match its checksum in {SUMS_FILE}; restore the file, or delete its folder "
                f"and collect the runs again"
            )


def was_interrupted(folder: Path) -> bool:
    """Whether a write was interrupted, so that a file has more than one checksum."""
    sums = folder / SUMS_FILE
    names = [line.split("  ", 1)[-1] for line in _lines(sums)] if sums.is_file() else []
    return len(set(names)) < len(names)


def _lines(path: Path) -> list[str]:
    return documents.read_text(path, documents.MEGABYTE, follow=False).splitlines()


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
