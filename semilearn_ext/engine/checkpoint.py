"""Checkpoints: the complete state of a run, written atomically, read safely; the last two are kept.

A file is a zip archive with a checksum for each part, so damage is noticed on reading, and the previous file is used.
Loading never unpickles code (``weights_only=True``).
"""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from semilearn_ext import files
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.semilearn_api import Hook

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase

_KEPT = 2


def checkpoint_files(folder: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return RunFolder(folder).checkpoint_files()


def save(folder: Path, state: dict[str, Any], keep: int = _KEPT) -> Path:
    """Write ``state`` as ``checkpoint_<iteration>.pt`` and remove all but the newest ``keep``."""
    path = RunFolder(folder).checkpoint_file(state["iteration"])
    buffer = io.BytesIO()
    torch.save(state, buffer)
    try:
        files.write_atomically(path, lambda file: file.write(buffer.getbuffer()))
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); earlier checkpoints are kept; "
            f"free some space and re-run the same command to resume"
        ) from None
    for old in checkpoint_files(folder)[:-keep]:
        old.unlink()
    return path


def load_newest(folder: Path, report: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest intact checkpoint, or None. Damaged ones are reported and renamed."""
    for path in reversed(checkpoint_files(folder)):
        try:
            return load(path)
        except UserError as error:
            report(f"{error}; using the previous one")
            path.rename(path.with_suffix(".damaged"))
    return None


def load(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"part {broken}")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, zipfile.BadZipFile, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(f"{path}: damaged checkpoint ({str(error).splitlines()[0]})") from None
    return state


def plain_state(attributes: dict[str, Any]) -> dict[str, Any]:
    """The tensors and numbers among an object's attributes: what changes while it works."""
    state: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, torch.Tensor):
            state[name] = value.detach().to("cpu", copy=True)
        elif value is None or isinstance(value, bool | int):
            state[name] = value
        elif isinstance(value, float):
            state[name] = float(value)
    return state


def restore_plain_state(target: Any, state: dict[str, Any], device: torch.device) -> None:
    for name, value in state.items():
        setattr(target, name, value.to(device) if isinstance(value, torch.Tensor) else value)


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of every random number generator this process uses, in plain types."""
    version, keys, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)
    state = {
        "python": [version, list(keys), gauss],
        "numpy": {
            "key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
    }
    if device.type != "cpu":
        state[device.type] = getattr(torch, device.type).get_rng_state()
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    saved = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": saved["key"].numpy().astype(np.uint32), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    # A run that goes on, or is analysed, on another kind of device finds no state for that one.
    if device.type in state:
        getattr(torch, device.type).set_rng_state(state[device.type])


class CheckpointHook(Hook):
    """Saves after every evaluation, or every ``checkpoint_every`` steps, and after the last."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        every = algorithm.settings.checkpoint_every or algorithm.num_eval_iter
        if self.every_n_iters(algorithm, every) or self.is_last_iter(algorithm):
            algorithm.save_checkpoint(algorithm.it + 1)
