"""Find the folders of runs."""

from __future__ import annotations

import os
import sys
from collections import deque
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
    only within ``roots``: a link in a folder from somebody else could lead to any of the user's own runs. They come
    last, so that a run is found in its own place and not through a link with another name.
    """
    roots = list(roots)
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; expected a folder that contains runs")
    inside = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
    markers, seen = frozenset(markers), set[str]()
    places = deque((root, str(root), os.path.realpath(root)) for root in roots)
    links: deque[tuple[Path, str]] = deque()
    while places or links:
        if places:
            root, folder, real = places.popleft()
        else:
            root, folder = links.popleft()
            real = os.path.realpath(folder)
            if not os.path.join(real, "").startswith(inside):
                print(
                    f"{printable(folder)}: not followed, because it links to a folder outside {root}; pass that folder "
                    f"as well to include it",
                    file=sys.stderr,
                )
                continue
        if real in seen:
            continue
        seen.add(real)
        names, below, linked = _entries(folder)
        if not markers.isdisjoint(names):
            yield Path(folder), names
            continue
        places.extendleft((root, os.path.join(folder, name), os.path.join(real, name)) for name in reversed(below))
        links.extend((root, os.path.join(folder, name)) for name in linked)


def _entries(folder: str) -> tuple[list[str], list[str], list[str]]:
    """The names in ``folder``, sorted: files, folders, and symbolic links to folders."""
    names: list[str] = []
    below: list[str] = []
    linked: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                kind = names if not entry.is_dir() else linked if entry.is_symlink() else below
                kind.append(entry.name)
    except OSError as error:
        print(f"{printable(folder)}: cannot be listed: {error.strerror}; left out", file=sys.stderr)
    return sorted(names), sorted(below), sorted(linked)
