"""Checkpoints: the complete state of a run, written atomically, read safely; the last two are kept.

A file is the zip archive that ``torch.save`` writes, with the SHA-256 of all its other bytes as the archive's comment:
a single changed bit is noticed on reading, and the previous file is used. An archive without a comment, as torch itself
writes it, has a checksum for each of its parts only. Loading never unpickles code (``weights_only=True``).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch

from semilearn_ext import files
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.semilearn_api import Hook

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase

_KEPT = 2
_SEAL = 64
"""Bytes of the comment: a SHA-256 in hexadecimal."""
_END, _END_SIGNATURE = 22, b"PK\x05\x06"
"""Bytes of the record at the end of a zip archive, before the comment, and how it begins."""
_CHUNK = 2**20


def checkpoint_files(folder: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return RunFolder(folder).checkpoint_files()


def save(folder: Path, state: dict[str, Any], keep: int = _KEPT) -> Path:
    """Write ``state`` as ``checkpoint_<iteration>.pt`` and remove all but the newest ``keep``."""
    path = RunFolder(folder).checkpoint_file(state["iteration"])
    buffer = io.BytesIO()
    torch.save(state, buffer)
    try:
        files.write_atomically(path, lambda file: _write_sealed(file, buffer.getbuffer()))
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); earlier checkpoints are kept; "
            f"free some space and re-run the same command to resume"
        ) from None
    for old in checkpoint_files(folder)[:-keep]:
        old.unlink()
    return path


def _write_sealed(file: IO[bytes], archive: memoryview) -> None:
    """``archive``, which ends in the length 0 of its comment, with its SHA-256 as the comment."""
    length = _SEAL.to_bytes(2, "little")
    digest = hashlib.sha256(archive[:-2])
    digest.update(length)
    file.write(archive[:-2])
    file.write(length + digest.hexdigest().encode())


class Damaged(UserError):
    """A checkpoint that is not what was written."""


class Unfit(UserError):
    """A checkpoint that is intact but does not belong to this run."""


def load_newest(
    folder: Path,
    report: Callable[[str], None],
    restore: Callable[[dict[str, Any], Path], None] = lambda state, path: None,
) -> dict[str, Any] | None:
    """The newest checkpoint that can be loaded and restored, or None if there is none.

    Damaged ones, and later ones that ``restore(state, path)`` finds unfit, are reported and renamed. If the only intact
    checkpoints are unfit, that is an error: the run would silently start over.
    """
    left_out: list[tuple[Path, UserError]] = []
    state = None
    for path in reversed(checkpoint_files(folder)):
        try:
            state = load(path)
            restore(state, path)
            break
        except (Damaged, Unfit) as error:
            left_out.append((path, error))
            state = None
    unfit = [problem for _, problem in left_out if isinstance(problem, Unfit)]
    if state is None and unfit:
        raise unfit[0]
    for path, problem in left_out:
        report(f"{problem}; using the previous one")
        with contextlib.suppress(FileNotFoundError):  # another process of the group was faster
            path.rename(path.with_suffix(".damaged"))
    return state


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, or a UserError if a single bit of it has changed."""
    try:
        if path.is_symlink() or not path.is_file():
            raise OSError("not a regular file")
        _check_seal(path)
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"part {broken}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or type(state.get("iteration")) is not int:
            raise ValueError("not the state of a run")
        if path.name != RunFolder(path.parent).checkpoint_file(state["iteration"]).name:
            raise ValueError(f"it holds iteration {state['iteration']}")
    except Exception as error:  # a damaged archive can raise nearly anything, in zipfile and in torch
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise Damaged(f"{path}: damaged checkpoint ({reason})") from None
    return state


def _check_seal(path: Path) -> None:
    """Compare the comment of the archive with the SHA-256 of everything before it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _END - _SEAL))
        tail = file.read()
        if tail[-_END:].startswith(_END_SIGNATURE) and tail[-2:] == b"\0\0":
            return
        if not tail.startswith(_END_SIGNATURE):
            raise zipfile.BadZipFile("the end is missing")
        file.seek(0)
        digest = hashlib.sha256()
        for start in range(0, size - _SEAL, _CHUNK):
            digest.update(file.read(min(_CHUNK, size - _SEAL - start)))
    if digest.hexdigest().encode() != tail[_END:]:
        raise zipfile.BadZipFile("its checksum differs")


def restore(algorithm: SSDGBase, state: dict[str, Any], path: Path) -> None:
    """``algorithm.restore(state)``; a state of another kind of run is :class:`Unfit`."""
    try:
        if not 0 <= state["iteration"] <= algorithm.num_train_iter:
            raise ValueError(f"iteration {state['iteration']} of {algorithm.num_train_iter}")
        algorithm.restore(state)
        for parameter, values in algorithm.optimizer.state.items():
            for name, value in values.items():
                if isinstance(value, torch.Tensor) and value.dim() and value.shape != parameter.shape:
                    raise ValueError(f"the optimizer's {name} has another shape than the weights")
    except KeyError as error:
        raise Unfit(
            f"{path}: the checkpoint has no {error}: another version of this package wrote it; run it again with "
            f"--overwrite"
        ) from None
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        if "out of memory" in str(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise Unfit(f"{path}: the checkpoint of another run ({reason}); run it again with --overwrite") from None


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
        known = getattr(target, name, None)
        if not isinstance(known, torch.Tensor | float | int | None):
            raise TypeError(f"{name} is no state")
        if isinstance(known, torch.Tensor) and isinstance(value, torch.Tensor) and known.shape != value.shape:
            raise ValueError(f"{name} has the shape {tuple(value.shape)} instead of {tuple(known.shape)}")
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
    # A run that is resumed or analysed on another kind of device finds no state for that device.
    if device.type in state:
        getattr(torch, device.type).set_rng_state(state[device.type])


class CheckpointHook(Hook):
    """Saves after every evaluation, or every ``checkpoint_every`` steps, and after the last."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        algorithm.checkpoints.check()
        every = algorithm.settings.checkpoint_every or algorithm.num_eval_iter
        if self.every_n_iters(algorithm, every) or self.is_last_iter(algorithm):
            algorithm.save_checkpoint(algorithm.it + 1)

    def after_run(self, algorithm: SSDGBase) -> None:
        algorithm.checkpoints.wait()
