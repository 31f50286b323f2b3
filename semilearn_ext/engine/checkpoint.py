"""Checkpoints: the complete state of a run, written atomically. The last two are kept.

A file is the zip archive that ``torch.save`` writes, with the SHA-256 of all its other bytes as the archive comment. A
single changed bit is detected on loading, and the previous file is used instead. An archive without a comment, as torch
itself writes it, is protected only by the checksums of its members. Loading never unpickles code
(``weights_only=True``).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch

from semilearn_ext import files
from semilearn_ext.engine.checkpoint_structure import check_optimizer, check_plain, check_structure
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.semilearn_api import Hook
from semilearn_ext.settings.fingerprint import differences

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase

_KEPT = 2
_SEAL = 64
"""Length of the comment, a SHA-256 in hexadecimal."""
_END, _END_SIGNATURE = 22, b"PK\x05\x06"
"""Length and signature of the record at the end of a zip archive, before the comment."""
_CHUNK = 2**20


def checkpoint_files(folder: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return RunFolder(folder).checkpoint_files()


def save(folder: Path, state: dict[str, Any], keep: int = _KEPT) -> Path:
    """Write ``state`` to ``checkpoint_<iteration>.pt`` and remove all but the newest ``keep`` checkpoints."""
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
    """Write ``archive``, whose last two bytes are the length of its empty comment, with its SHA-256 as the comment."""
    length = _SEAL.to_bytes(2, "little")
    digest = hashlib.sha256(archive[:-2])
    digest.update(length)
    file.write(archive[:-2])
    file.write(length + digest.hexdigest().encode())


class Damaged(UserError):
    """A checkpoint that is damaged or incomplete."""


class Unfit(UserError):
    """A checkpoint that is intact but does not belong to this run."""


def load_newest(
    folder: Path,
    report: Callable[[str], None],
    restore: Callable[[dict[str, Any], Path], None] = lambda state, path: None,
) -> dict[str, Any] | None:
    """Load the newest checkpoint that can be restored; None if there is none.

    Newer ones that are damaged, or that ``restore(state, path)`` finds unfit, are reported and renamed. If all intact
    checkpoints are unfit, an error is raised, because the run would otherwise silently start over.
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
        report(f"{problem}; {'using the previous one' if state is not None else 'starting over, as no other is left'}")
        with contextlib.suppress(FileNotFoundError):  # another process of the group was faster
            path.rename(path.with_suffix(".damaged"))
    return state


def load(path: Path) -> dict[str, Any]:
    """Load the state from a checkpoint. Raises :class:`Damaged` if a single bit has changed."""
    try:
        if path.is_symlink() or not path.is_file():
            raise OSError("not a regular file")
        _check_seal(path)
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
                raise zipfile.BadZipFile("its members are compressed or overlap")  # they might fill the memory
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"member {broken}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or type(state.get("iteration")) is not int:
            raise ValueError("not the state of a run")
        if path.name != RunFolder(path.parent).checkpoint_file(state["iteration"]).name:
            raise ValueError(f"it contains iteration {state['iteration']}")
    except Exception as error:  # a damaged archive can raise nearly anything, in zipfile and in torch
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        if reason.startswith("Weights only load failed"):
            reason = "it contains other objects than tensors and plain values, or is incomplete"
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
        raise zipfile.BadZipFile("wrong checksum")


def restore(algorithm: SSDGBase, state: dict[str, Any], path: Path) -> None:
    """Call ``algorithm.restore(state)``. Raises :class:`Unfit` for the state of a different run."""
    try:
        _check_run(state.get("run", {}), algorithm.context.identity)
        if not 0 <= state["iteration"] <= algorithm.num_train_iter:
            raise ValueError(f"iteration {state['iteration']} of {algorithm.num_train_iter}")
        check_structure(state, algorithm)
        algorithm.restore(state)
        check_optimizer(algorithm.optimizer)
    except KeyError as error:
        raise Unfit(
            f"{path}: the checkpoint has no {error}, so it was written by another version of this package; run it "
            f"again with --overwrite"
        ) from None
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        if "out of memory" in str(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise Unfit(f"{path}: checkpoint of a different run ({reason}); run it again with --overwrite") from None


def _check_run(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise a ValueError if the run that wrote a checkpoint differs from ``current`` in anything that both know of."""
    common = saved.keys() & current.keys()
    first, second = ({name: run[name] for name in current if name in common} for run in (saved, current))
    if first != second:
        raise ValueError(f"they differ in {differences(first, second)}")


def plain_state(attributes: dict[str, Any]) -> dict[str, Any]:
    """The tensors and numbers among an object's attributes, which may change during training."""
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
            raise TypeError(f"{name} is not part of the state")
        check_plain(value, known, name)
        setattr(target, name, value.to(device) if isinstance(value, torch.Tensor) else value)


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of every random number generator of this process, in plain types."""
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
    # Missing when a run is resumed or analysed on another type of device.
    if device.type in state:
        getattr(torch, device.type).set_rng_state(state[device.type])


class CheckpointHook(Hook):
    """Saves a checkpoint after every evaluation, or every ``checkpoint_every`` steps, and after the last step."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        algorithm.checkpoints.check()
        every = algorithm.settings.checkpoint_every or algorithm.num_eval_iter
        if self.every_n_iters(algorithm, every) or self.is_last_iter(algorithm):
            algorithm.save_checkpoint(algorithm.it + 1)

    def after_run(self, algorithm: SSDGBase) -> None:
        algorithm.checkpoints.wait()
