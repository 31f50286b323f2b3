"""Find the folders of runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from semilearn_ext.errors import UserError, printable
from semilearn_ext.runs.file_names import CONFIG_FILE, JOB_FILE, RESULT_FILE
from semilearn_ext.runs.folder import RunFolder

MARKERS = {CONFIG_FILE, JOB_FILE, RESULT_FILE}
"""A folder that contains one of these files is the folder of a run."""


def find_runs(roots: Iterable[Path]) -> Iterator[RunFolder]:
    """Every run at or below ``roots`` once, sorted by name."""
    return (RunFolder(path) for path, _ in find_folders(roots, MARKERS))


def find_folders(roots: Iterable[Path], markers: Iterable[str]) -> Iterator[tuple[Path, list[str]]]:
    """Every folder at or below ``roots`` that contains a file of ``markers``, once, with the names of its files.

    Folders are sorted by name, and nothing below a folder with such a file is searched. Symbolic links are followed
    only within ``roots``: a link in a folder from somebody else could lead to any of the user's own runs.
    """
    roots = list(roots)
    inside = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
    seen: set[str] = set()
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; expected a folder that contains runs")
        for folder, subfolders, names in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            if not os.path.join(real, "").startswith(inside):
                print(
                    f"{printable(folder)}: link out of {root}, not followed; pass its target as well to include it",
                    file=sys.stderr,
                )
                subfolders.clear()
                continue
            if real in seen:
                subfolders.clear()
                continue
            seen.add(real)
            subfolders.sort()
            if not set(markers).isdisjoint(names):
                subfolders.clear()
                yield Path(folder), names
