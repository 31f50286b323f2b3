"""Read the JSON records of a run and compute their checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from semilearn_ext import documents
from semilearn_ext.errors import UserError

LARGEST_RECORD = 256 * documents.MEGABYTE
"""No record is larger: the split of a million images takes about a third of this."""
OWN_CHECKSUM = "sha256"
"""The last field of a file that contains its own checksum."""
_BLANK = "0" * 64
"""The value of that field while the checksum is computed."""


def read_json(path: Path) -> dict[str, Any]:
    return parse_object(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    return documents.read_bytes(path, LARGEST_RECORD, follow=False)


def parse_object(text: bytes, path: Path) -> dict[str, Any]:
    content = documents.parse_json(text, str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()


def with_own_checksum(record: dict[str, Any]) -> dict[str, Any]:
    """``record`` with the checksum of its own file as the last field."""
    blank = (json.dumps({**record, OWN_CHECKSUM: _BLANK}, indent=2) + "\n").encode()
    return {**record, OWN_CHECKSUM: own_checksum(blank, _BLANK)}


def own_checksum(content: bytes, checksum: str) -> str:
    """SHA-256 of a file that ends with its own ``checksum``, computed with the checksum replaced by zeros."""
    place = content.rfind(checksum.encode())
    return hashlib.sha256(content[:place] + _BLANK.encode() + content[place + len(_BLANK) :]).hexdigest()


def changed(path: Path) -> UserError:
    return UserError(f"{path}: changed since the run wrote it; restore the file, or train the run with --overwrite")
