"""List image files in the published folder layouts, without opening an image.

Every layout becomes a :class:`Tree`: image files with their class, their domain and, where the benchmark publishes one,
the held-out validation part.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from semilearn_ext import documents
from semilearn_ext.data.splits import Item
from semilearn_ext.errors import UserError, shown
from semilearn_ext.files import image_files, subfolders
from semilearn_ext.names import check_folder_name


@dataclass(frozen=True)
class Tree:
    """Image files below ``root``. ``held_out`` contains names; it is None if the benchmark publishes no such part."""

    root: Path
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    items: list[Item]
    held_out: frozenset[str] | None = None
    folder: Path | None = None
    """The benchmark's folder, ``root`` or a parent of it, which contains the published label splits."""

    def path(self, item: Item) -> Path:
        return self.root / item.name


def plain_name(folder: str) -> str:
    """Normalise a folder name: lower case, no spaces, no leading number (``000_Alarm Clock`` -> ``alarm_clock``).

    Accents are composed characters (NFC): macOS decomposes them, and the names would look the same but differ.
    """
    return unicodedata.normalize("NFC", re.sub(r"^\d+[_-]", "", folder).lower()).replace(" ", "_")


def find_domains(root: Path, domains: Sequence[str]) -> dict[str, str] | None:
    """Map every domain to the name of its folder. None unless ``root`` contains a folder for every domain."""
    existing = {plain_name(name): name for name in subfolders(root)} if root.is_dir() else {}
    return {domain: existing[domain] for domain in domains} if set(domains) <= set(existing) else None


def domain_class_tree(root: Path, domains: Sequence[str], order: Callable[[str], str] = str) -> Tree | None:
    """List ``root/<domain>/<class>/*``, or the same with a ``train`` and a ``val`` folder in every domain.

    Returns None unless every domain has a folder. Classes are numbered as in :func:`list_tree`.
    """
    folders = find_domains(root, domains)
    if folders is None:
        return None
    has_parts = all({"train", "val"} <= set(subfolders(root / folder)) for folder in folders.values())
    return list_tree(root, folders, ("train", "val") if has_parts else (), order)


def list_tree(
    root: Path, folders: Mapping[str, str], parts: Sequence[str] = (), order: Callable[[str], str] = str
) -> Tree:
    """List ``root/<domain>/<class>/*``, or ``root/<domain>/<part>/<class>/*`` with parts such as train and val.

    All domains must have the same classes, which are sorted by ``order(name)`` and numbered. The part called ``val`` is
    the published held-out part.
    """
    classes_of: dict[str, set[str]] = {domain: set() for domain in folders}
    rows: list[tuple[str, str, str, str]] = []
    held_out = []
    real_folders: dict[str, PurePosixPath] = {}
    for domain, folder in folders.items():
        for part in parts or ("",):
            base = PurePosixPath(folder, part)
            classes_here: dict[str, str] = {}
            for class_folder in subfolders(root / base):
                name = plain_name(check_folder_name(class_folder, str(root / base)))
                other = classes_here.setdefault(name, class_folder)
                if other != class_folder:
                    raise UserError(
                        f"{root / base}: {other!r} and {class_folder!r} would be the same class, {name!r}; rename or "
                        f"merge the folders"
                    )
                first = real_folders.setdefault(os.path.realpath(root / base / class_folder), base / class_folder)
                if first != base / class_folder:
                    raise UserError(f"{root}: {first} and {base / class_folder} are the same folder; remove the link")
                classes_of[domain].add(name)
                for file in image_files(root / base / class_folder):
                    path = str(base / class_folder / file)
                    rows.append((path, name, domain, f"{part}/{file}" if part else file))
                    if part == "val":
                        held_out.append(path)
    classes = sorted(_common_classes(classes_of, root), key=order)
    number = {name: k for k, name in enumerate(classes)}
    items = [Item(path, number[name], domain, key) for path, name, domain, key in rows]
    if not items:
        raise UserError(f"{root}: no images in {', '.join(sorted(folders.values()))}")
    if len(classes) < 2:
        raise UserError(f"{root}: only one class, {classes[0]!r}; at least two are needed")
    return Tree(root, tuple(folders), tuple(classes), items, frozenset(held_out) if "val" in parts else None)


def _common_classes(classes_of: Mapping[str, set[str]], root: Path) -> set[str]:
    """The classes that all domains share. Raises a UserError that lists the differences, if any."""
    all_classes = set().union(*classes_of.values())
    missing = {
        domain: sorted(all_classes - classes) for domain, classes in classes_of.items() if classes != all_classes
    }
    if missing:
        listed = "; ".join(f"{domain} lacks {_shortened(names)}" for domain, names in missing.items())
        raise UserError(f"{root}: the domains do not have the same classes: {listed}")
    return all_classes


def _shortened(names: Sequence[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def read_list(path: Path, domain: str) -> Iterator[tuple[str, int]]:
    """Yield path and label from the lines ``<domain>/<class>/<file> <label>`` of a benchmark's split file."""
    text = documents.read_text(path)
    if not text.strip():
        raise UserError(f"{path}: the list is empty; download it again")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.rpartition(" ")
        if not name or not re.fullmatch(r"[0-9]{1,9}", label):
            raise UserError(f"{path}: line {number}: expected '<path> <label>', got {shown(line)}")
        name = check_relative(name, f"{path}: line {number}")
        parts = PurePosixPath(name).parts
        if len(parts) < 3:
            raise UserError(f"{path}: expected <domain>/<class>/<file>, got {name!r}")
        if plain_name(parts[-3]) != domain:
            raise UserError(f"{path}: {name} is not an image of {domain!r}; download the list again")
        yield name, int(label)


def check_relative(name: str, where: str) -> str:
    """Return ``name`` if it is a relative path that stays below its folder; otherwise raise a UserError."""
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.parts or "\0" in name:
        raise UserError(f"{where}: {shown(name)} is not a file name")
    if path.is_absolute() or ".." in path.parts or re.match(r"^[A-Za-z]:", name):
        raise UserError(f"{where}: {name!r} leads outside the benchmark's folder")
    return str(path)


def listed_tree(root: Path, domains: Sequence[str], lists: Mapping[str, Mapping[str, Path]]) -> Tree:
    """The images named in split files: ``lists[domain]`` has a ``train`` and a ``val`` file."""
    classes: dict[int, str] = {}
    items, held_out = [], []
    listed: set[str] = set()
    for domain in domains:
        for part, file in lists[domain].items():
            for name, label in read_list(file, domain):
                path = PurePosixPath(name)
                known = classes.setdefault(label, plain_name(path.parts[-2]))
                if known != plain_name(path.parts[-2]):
                    raise UserError(f"{file}: label {label} is both {known!r} and {path.parts[-2]!r}")
                if name in listed:
                    raise UserError(f"{file}: {name} is listed twice")
                listed.add(name)
                items.append(Item(name, label, domain, path.name))
                if part == "val":
                    held_out.append(name)
    if sorted(classes) != list(range(len(classes))):
        raise UserError(f"{root}: the split files skip some labels between 0 and {max(classes)}")
    named = Counter(classes.values()).most_common(1)
    if named and named[0][1] > 1:
        raise UserError(f"{root}: the split files have {named[0][1]} labels for the class {named[0][0]!r}")
    return Tree(root, tuple(domains), tuple(classes[k] for k in range(len(classes))), items, frozenset(held_out))


def without(tree: Tree, names: Container[str]) -> Tree:
    """``tree`` without some of its images."""
    return replace(tree, items=[item for item in tree.items if item.name not in names])
