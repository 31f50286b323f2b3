"""Label splits in the file format of the SSDG benchmark: published ones, or those written by ``ssdg data split``.

The format is ``{"train_x": [[path, label, domain], ...], "train_u": [...]}``, with paths relative to the image folder
and domains as names or numbers. Old class folder names such as ``000_Alarm_Clock`` and a leading ``images/`` are
resolved. Classes may be numbered in a different order. Paths that lead outside the image folder, missing images, images
of a domain other than the one in the file, and images of the target domain are errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from semilearn_ext import documents
from semilearn_ext.data.layouts import check_relative, plain_name
from semilearn_ext.data.splits import Item, Split
from semilearn_ext.errors import UserError, shown

LARGEST = 256 * documents.MEGABYTE
FETCH_SPLITS = (
    "download the archive of label splits linked in the README of github.com/dongkwani/UPCSC (Dataset Preparation)"
)


class SplitFile(NamedTuple):
    """The rows ``[path, label, domain]`` of a split file, and a hash of its content."""

    path: Path
    labelled: list[Any]
    unlabelled: list[Any]
    sha256: str


def split_file_name(target: str, labels: int, seed: int) -> str:
    """The file name in the SSDG benchmark; ``labels`` is the requested number over all classes and source domains."""
    return f"{target}_nlab{labels}_seed{seed}.json"


def read_split(path: Path) -> SplitFile:
    content = documents.read_bytes(path, LARGEST)
    rows = documents.parse_json(content, str(path))
    if not isinstance(rows, dict) or not all(isinstance(rows.get(key), list) for key in ("train_x", "train_u")):
        raise UserError(f"{path}: expected lists called train_x and train_u")
    return SplitFile(path, rows["train_x"], rows["train_u"], hashlib.sha256(content).hexdigest())


def apply_split(file: SplitFile, items: Sequence[Item], default: Split, target: str, sources: Sequence[str]) -> Split:
    """The split that ``file`` describes. Validation and target images are those of ``default``."""
    finder = _Finder(items)
    labelled, unlabelled = (
        [finder.find(row, f"{file.path}: {key}") for row in rows]
        for key, rows in (("train_x", file.labelled), ("train_u", file.unlabelled))
    )
    named = {*labelled, *unlabelled}
    for position in named:
        if items[position].domain == target:
            raise UserError(f"{file.path}: {items[position].name} is an image of the target domain {target!r}")
        if items[position].domain not in sources:
            raise UserError(f"{file.path}: {items[position].name} is from a domain that is not used for training")
    if len(named) != len(labelled) + len(unlabelled):
        raise UserError(f"{file.path}: some images are listed twice")
    held_out = [position for position in default.source_val if position not in named]
    return Split(labelled, unlabelled, held_out, default.target)


class _Finder:
    """Finds the position of an image by its path, even if folders have different names."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.exact = {item.name: position for position, item in enumerate(items)}
        self.loose = {_loose(item.name): position for position, item in enumerate(items)}
        self.label_in_file: dict[int, int] = {}
        self.label_in_data: dict[int, int] = {}
        self.domain_numbers: dict[int | str, int | str] = {}
        """Domain by number and number by domain, for files that number the domains."""

    def find(self, row: Any, where: str) -> int:
        if not isinstance(row, list) or len(row) < 2 or not isinstance(row[0], str) or type(row[1]) is not int:
            raise UserError(f"{where}: expected [path, label, domain], got {shown(row)}")
        if row[1] < 0:
            raise UserError(f"{where}: {shown(row[0])} has the label {row[1]}; labels are counted from 0")
        name = check_relative(row[0], where)
        position = self.exact.get(name, self.loose.get(_loose(name)))
        if position is None:
            raise UserError(f"{where}: {name} is not in the data; copies of a benchmark may use different file names")
        item = self.items[position]
        domain = row[2] if len(row) > 2 else item.domain
        if type(domain) not in (int, str):
            raise UserError(f"{where}: expected [path, label, domain], got {shown(row)}")
        if isinstance(domain, str) and domain != item.domain:
            raise UserError(f"{where}: {name} is listed under domain {shown(domain)}, but is in {item.domain!r}")
        pairs = ((domain, item.domain), (item.domain, domain))
        if any(self.domain_numbers.setdefault(first, second) != second for first, second in pairs):
            raise UserError(f"{where}: {name} has domain {shown(domain)}, unlike other images of {item.domain!r}")
        if (
            self.label_in_file.setdefault(item.label, row[1]) != row[1]
            or self.label_in_data.setdefault(row[1], item.label) != item.label
        ):
            raise UserError(f"{where}: {name} has label {row[1]}, unlike other images of its class")
        return position


def _loose(name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    if parts and parts[0] == "images":
        parts = parts[1:]
    return (*(plain_name(part) for part in parts[:-1]), parts[-1])
