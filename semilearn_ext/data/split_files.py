"""Label splits given as a file, in the ssdg-benchmark's form: ours, or those its authors released.

``{"train_x": [[path, label, domain], ...], "train_u": [...]}``, paths relative to the image folder. Old class-folder
names such as ``000_Alarm_Clock`` and a leading ``images/`` are resolved; a path that leads elsewhere, an image that
is not there and an image of the target domain are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from semilearn_ext.data.splits import Item, Split
from semilearn_ext.data.trees import check_relative, plain_name
from semilearn_ext.errors import UserError


def read_split(path: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"split_file: {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"split_file: {path}: not valid JSON ({error})") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in ("train_x", "train_u")):
        raise UserError(f"split_file: {path}: expected lists called train_x and train_u")
    return content


def apply_split(path: Path, items: Sequence[Item], default: Split, target: str, sources: Sequence[str]) -> Split:
    """The split that ``path`` describes. Validation and target images are those of ``default``."""
    content = read_split(path)
    finder = _Finder(items)
    labelled, unlabelled = (
        [finder.find(row, f"split_file: {path}: {key}") for row in content[key]] for key in ("train_x", "train_u")
    )
    named = [*labelled, *unlabelled]
    for position in named:
        if items[position].domain == target:
            raise UserError(f"split_file: {path}: {items[position].name} is an image of the target domain {target!r}")
        if items[position].domain not in sources:
            raise UserError(f"split_file: {path}: {items[position].name} is of a domain that is not trained on")
    if len(set(named)) != len(named):
        raise UserError(f"split_file: {path}: some images are named twice")
    held_out = [position for position in default.source_val if position not in set(named)]
    return Split(labelled, unlabelled, held_out, default.target)


class _Finder:
    """Positions by path, or by what is left of it when folders are called differently."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.exact = {item.name: position for position, item in enumerate(items)}
        self.loose = {_loose(item.name): position for position, item in enumerate(items)}

    def find(self, row: Any, where: str) -> int:
        if not isinstance(row, list) or len(row) < 2 or not isinstance(row[0], str) or not isinstance(row[1], int):
            raise UserError(f"{where}: expected [path, label, domain], got {row!r}")
        name = check_relative(row[0], where)
        position = self.exact.get(name, self.loose.get(_loose(name)))
        if position is None:
            raise UserError(f"{where}: {name} is not in the data")
        if self.items[position].label != row[1]:
            raise UserError(f"{where}: {name} has label {row[1]} there and {self.items[position].label} in the data")
        return position


def _loose(name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    if parts and parts[0] == "images":
        parts = parts[1:]
    return (*(plain_name(part) for part in parts[:-1]), parts[-1])
