"""Digests of the content of files and of trees of images.

The digest of images covers their names, sizes and bytes, but not their location. Reading all files takes minutes on a
large benchmark, so a small index stores the digest of a tree under the names, sizes, inodes and times of its files. An
index that does not match its own checksum is ignored.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError
from semilearn_ext.settings.schema import Settings

FOLDER = "folder"
"""The dataset of the user's own images, which are in ``data_dir``."""
_CHUNK = 256
_LARGEST_WEIGHTS = 2**36
_folder_digests: dict[Path, str] | None = None


def file_hash(path: str, name: str) -> str:
    """Twelve hexadecimal digits of the hash of the file ``path``, which was given by the setting ``name``."""
    file = Path(path).expanduser()
    try:
        if not file.exists():
            raise UserError(f"{path}: no such file")
        status = file.stat()
        return _file_hash(file, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    except OSError as error:
        raise UserError(f"{name}: {path}: {error.strerror}") from None
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


@functools.cache
def _file_hash(file: Path, _: tuple[int, ...]) -> str:
    return hashlib.sha256(documents.read_bytes(file, _LARGEST_WEIGHTS)).hexdigest()[:12]


def split_path(settings: Settings) -> Path:
    """The path given by ``split_file`` for this target and seed."""
    name = settings.split_file.replace("{target}", settings.target_domain).replace("{seed}", str(settings.seed))
    return Path(name).expanduser()


@contextmanager
def cached_folder_digests() -> Iterator[None]:
    """Within this context, the digest of the user's own images is computed once, even if a sweep needs it per run."""
    global _folder_digests
    before = _folder_digests
    _folder_digests = {} if before is None else before
    try:
        yield
    finally:
        _folder_digests = before


def dataset_name(settings: Settings) -> str:
    """The name of the dataset; for the user's own images ``dataset_name`` or the name of their folder."""
    if settings.dataset != FOLDER:
        return settings.dataset
    folder = Path(settings.data_dir).expanduser().resolve().name
    return settings.dataset_name or re.sub(r"[^\w.-]", "_", folder) or FOLDER


def folder_digest(root: Path, cache_dir: Path) -> str:
    """The digest of all images in ``root/<domain>/<class>/``."""
    root = root.expanduser()
    if _folder_digests is None or root not in _folder_digests:
        names = [
            f"{domain}/{label}/{image}"
            for domain in files.subfolders(root)
            for label in files.subfolders(root / domain)
            for image in files.image_files(root / domain / label)
        ]
        digest = images_digest(root, names, index_folder(cache_dir))
        if _folder_digests is None:
            return digest
        _folder_digests[root] = digest
    return _folder_digests[root]


def index_folder(cache_dir: str | Path) -> Path:
    return Path(cache_dir).expanduser() / "images"


def images_digest(root: Path, names: Sequence[str], index: Path, progress: bool = False) -> str:
    """SHA-256 of the names, sizes and bytes of the images ``names`` below ``root``, from the index if possible."""
    ordered = sorted(names)
    key = _stat_key(root, ordered)
    digest = _read_index(index, key)
    if digest is None:
        digest = _read_all(root, ordered, progress)
        # The index is optional: a read-only folder must not stop an experiment.
        with contextlib.suppress(OSError):
            files.write_json(_index_file(index, key), {"digest": digest, "check": _check(key, digest)}, flush=False)
    return digest


def known_digest(root: Path, names: Sequence[str], index: Path) -> str | None:
    """Like :func:`images_digest`, but only from the index: no image is opened."""
    return _read_index(index, _stat_key(root, sorted(names)))


def _index_file(folder: Path, key: str) -> Path:
    return folder / f"index-{key}.json"


def _check(key: str, digest: str) -> str:
    return hashlib.sha256(f"{key} {digest}".encode()).hexdigest()[:16]


def _read_index(folder: Path, key: str) -> str | None:
    path = _index_file(folder, key)
    try:
        content = json.loads(path.read_text()) if path.is_file() else {}
        digest = str(content["digest"])
        return digest if content["check"] == _check(key, digest) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _stat_key(root: Path, names: Sequence[str]) -> str:
    digest = hashlib.sha256(os.fsencode(root.resolve()))
    for name in names:
        try:
            status = os.stat(root / name)
        except OSError as error:
            raise UserError(f"{root / name}: {error.strerror}") from None
        # A file may be replaced by one with the same size and modification time, but not with the same change time.
        numbers = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest.update(os.fsencode(f"{name}\0{numbers}\n"))
    return digest.hexdigest()[:24]


def _read_all(root: Path, names: Sequence[str], progress: bool) -> str:
    def line(name: str) -> bytes:
        try:
            content = (root / name).read_bytes()
        except OSError as error:
            return os.fsencode(f"{name}\0{error.strerror}\n")
        return os.fsencode(f"{name}\0{len(content)}\0{hashlib.sha256(content).hexdigest()}\n")

    digest = hashlib.sha256()
    for part in in_parallel(line, names, "reading images", progress):
        digest.update(part)
    return digest.hexdigest()


def in_parallel(function: Callable[[Any], Any], items: Sequence[Any], title: str, progress: bool) -> Iterator[Any]:
    """Yield ``function(item)`` for every item, in order, from threads that do not run far ahead of the consumer."""
    from tqdm import tqdm  # imported here to keep --help fast

    bar = tqdm(total=len(items), desc=title, unit="img", disable=None if progress else True, leave=False)
    with bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(items), _CHUNK):
            for result in pool.map(function, items[start : start + _CHUNK]):
                bar.update()
                yield result
