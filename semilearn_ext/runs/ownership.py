"""Make sure that the folder of a run holds one experiment only: check it before training, and prepare it.

A run resumes in a folder with the same experiment. A folder with anything else is an error, unless ``overwrite`` is set
or the earlier run ended before its first checkpoint and evaluation.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError
from semilearn_ext.runs import lock
from semilearn_ext.runs.file_names import (
    CONFIG_FILE,
    CONSOLE_FILE,
    ENVIRONMENT_FILE,
    EXTENSIONS_FOLDER,
    IDENTITY_FILE,
    JOB_FILE,
    LOCK_FILE,
    LOG_FILE,
    METRICS_FILE,
    SPLIT_FILE,
    STATE_FILE,
    TENSORBOARD_FOLDER,
)
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.record_file import LARGEST_RECORD
from semilearn_ext.settings import Settings, dump
from semilearn_ext.settings.content import dataset_name, split_path
from semilearn_ext.settings.fingerprint import content, differences, hash_of, identity, run_key
from semilearn_ext.settings.image_cache import known_pixels_of_own_images
from semilearn_ext.settings.load import Raw, read_record, resolve

NOT_OF_THE_RUN = {LOCK_FILE, JOB_FILE, STATE_FILE, CONSOLE_FILE}
"""Files that may exist before the run has written anything, and that are kept when it starts over."""
WRITTEN_BEFORE_TRAINING = {
    *(CONFIG_FILE, IDENTITY_FILE, ENVIRONMENT_FILE, SPLIT_FILE, METRICS_FILE, LOG_FILE),
    *(EXTENSIONS_FOLDER, TENSORBOARD_FOLDER),
}
"""The files that a run may have written when it fails before its first step. Later ones have other files as well."""
WRITTEN_BEFORE_THE_CONFIG = {IDENTITY_FILE, EXTENSIONS_FOLDER}


_DATA = {
    "images_sha256": "different images",
    "split_sha256": "a different split file",
    "pixels_sha256": "differently decoded images, for example by another version of Pillow",
    "decoder": "another decoder of images, and no image cache that shows whether the decoded images are the same",
}
"""What an interrupted run must have in common with its continuation. Unknown values are not compared."""


def check_folder(folder: RunFolder, settings: Settings) -> None:
    """Raise an error if another process is training in ``folder``, or if it contains anything but this experiment and
    may not be overwritten."""
    holder = lock.holder_of(folder.path)
    if holder is not None and not holder.is_this_process:
        raise lock.Held(folder.path, holder)
    if not settings.overwrite:
        check_content(folder, settings)


def check_content(folder: RunFolder, settings: Settings) -> None:
    """Raise an error if ``folder`` contains anything but this experiment."""
    if not folder.path.exists():
        existing = next(parent for parent in folder.path.absolute().parents if parent.exists())
        if not existing.is_dir():
            raise UserError(f"{existing}: is a file, and runs need a folder; choose another --save_dir")
        return
    if _is_unused(folder):
        return
    reason = _conflict(folder, settings) if _content(folder) else ""
    if reason:
        raise UserError(f"{folder.path}: {reason}; choose another --save_dir, or replace it with --overwrite")
    data: dict[str, str] = {"pixels_sha256": known_pixels_of_own_images(settings)}
    if settings.split_file and (file := split_path(settings)).is_file():
        data["split_sha256"] = hashlib.sha256(documents.read_bytes(file, LARGEST_RECORD)).hexdigest()
    _check_data(folder, data)


def claim(folder: RunFolder, settings: Settings, known: Mapping[str, str] = MappingProxyType({})) -> None:
    """Prepare ``folder`` for this run: keep what belongs to the same experiment, or empty it with ``overwrite``.

    Args:
        known: digests of the data of the run, by their names in the record; empty if they are unknown.
    """
    check_folder(folder, settings)
    data = {name: known.get(name) or None for name in _DATA}
    unused = _is_unused(folder)
    if not settings.overwrite and not unused:
        _check_data(folder, data)
    if settings.overwrite or (unused and _conflict(folder, settings)):
        for path in _content(folder):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    files.remove_leftovers(folder.path)
    copies = folder.extensions_folder
    if copies.is_symlink():
        copies.unlink()
    for number, original in enumerate(settings.extend):
        text = documents.read_text(Path(original).expanduser())
        files.write_text(copies / f"extension_{number:02d}.py", text)
    about = {"dataset_name": dataset_name(settings), **data, "content": content(settings)}
    files.write_json(folder.identity_file, about)
    files.write_text(folder.config_file, dump(settings))


def _check_data(folder: RunFolder, data: Mapping[str, str | None]) -> None:
    """Raise an error if the run in ``folder`` was started with different images or a different split file."""
    if difference := different_data(folder.read_identity(), data):
        raise UserError(
            f"{folder.path}: the run was started with {difference}; choose another --save_dir, or replace it with "
            f"--overwrite"
        )


def different_data(recorded: Mapping[str, Any], data: Mapping[str, str | None]) -> str:
    """Describe the first difference between the recorded data of a run and ``data``, or return an empty string."""
    for name, difference in _DATA.items():
        if name == "decoder" and recorded.get("pixels_sha256") and data.get("pixels_sha256"):
            continue  # the decoded images themselves were compared
        before, now = str(recorded.get(name) or ""), data.get(name)
        if before and now and before != now:
            digest = "SHA-256 " if name.endswith("sha256") else ""
            return f"{difference} ({digest}{before[:12]}, now {now[:12]})"
    return ""


def check_split(folder: RunFolder, split: Mapping[str, Any]) -> None:
    """Raise an error if the run in ``folder`` has a checkpoint but was started with a different ``split``: the lists of
    a benchmark may have changed, although its images have not."""
    if not folder.checkpoint_files():
        return
    try:
        recorded = folder.read_split()
    except UserError:  # it will be written again
        return
    changed = [name for name in ("train_x", "train_u", "val") if recorded.get(name) != split[name]]
    if changed:
        raise UserError(
            f"{folder.path}: the run was started with a different split of the images ({', '.join(changed)}); "
            f"choose another --save_dir, or replace it with --overwrite"
        )


def _content(folder: RunFolder) -> list[Path]:
    """All files of the run, without those of sweeps, locks and interrupted writes."""
    if not folder.path.exists():
        return []
    return [path for path in folder.path.iterdir() if path.name not in NOT_OF_THE_RUN and path.suffix != ".tmp"]


def _is_unused(folder: RunFolder) -> bool:
    """Whether the run ended before its first checkpoint and evaluation, so that nothing is lost if another starts."""
    names = {path.name for path in _content(folder)}
    if names and names <= WRITTEN_BEFORE_THE_CONFIG:  # killed while it prepared the folder
        return True
    if CONFIG_FILE not in names or not names <= WRITTEN_BEFORE_TRAINING:
        return False
    return METRICS_FILE not in names or os.lstat(folder.metrics_file).st_size == 0


def _conflict(folder: RunFolder, settings: Settings) -> str:
    """Why the content does not belong to the same experiment, or an empty string."""
    if not os.path.lexists(folder.config_file):
        return "the folder contains files that do not belong to a run"
    try:
        raw = read_record(folder.config_file)
        # The extensions are already loaded; their content at the start of the run is what has to be compared.
        loaded = resolve({**raw, "extend": Raw(list(settings.extend), settings.origins.get("extend", ""))})
        recorded = folder.read_identity().get("content", {})
        loaded = replace(loaded, extend=folder.extension_copies())
        existing = identity(loaded, recorded)
    except UserError as error:
        return f"the folder contains a config that cannot be read ({error})"
    current = identity(settings)
    if hash_of(existing) != hash_of(current):
        return (
            f"the folder contains a run with a different config (hash {hash_of(existing)}, this one has "
            f"{hash_of(current)}); they differ in {differences(existing, current)}"
        )
    existing, current = run_key(loaded), run_key(settings)
    if existing == current:
        return ""
    return f"the folder contains another run of the same experiment; they differ in {differences(existing, current)}"
