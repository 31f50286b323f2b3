"""A lock on a run folder: only one process trains a run at a time, even on file systems shared between machines.

``lock.json`` in the folder identifies the process, which touches the file every few seconds. A lock is stale if its
process no longer exists on this machine or, for a process on another machine, if the file has not been touched for a
while. The file is created exclusively, and a stale one is rewritten in place under the kernel's file lock: if several
processes try at once, exactly one of them succeeds.

The kernel's lock alone (``flock``, or the package filelock) is not enough: on some cluster file systems it works only
within a node or not at all, and it does not tell which process holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from semilearn_ext import documents
from semilearn_ext.errors import UserError
from semilearn_ext.runs.file_names import LOCK_FILE

HEARTBEAT = 5.0
SILENCE = 120.0
"""Seconds without a heartbeat after which a process on another machine is considered dead."""
FUTURE = 3600.0
"""A lock whose modification time is more than this many seconds in the future is considered stale."""
_LARGEST = 4096


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock. Process ids are unique within ``machine``; ``token`` is unique to each lock."""

    host: str
    machine: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_this_process(self) -> bool:
        return (self.machine, self.pid, self.started) == (_machine(), os.getpid(), _started(os.getpid()))


class Held(UserError):
    """Another process holds the lock."""

    def __init__(self, folder: Path, holder: Holder | None) -> None:
        super().__init__(
            f"{folder}: is being trained by {holder or 'another process'}; wait for it to finish, or stop it first"
        )


def holder_of(folder: Path) -> Holder | None:
    """The live process that holds the lock of ``folder``, or None."""
    path = folder / LOCK_FILE
    if not os.path.lexists(path):
        return None
    try:
        holder, touched = _read(path), path.stat().st_mtime
    except OSError:
        return None
    return holder if holder is not None and _is_alive(holder, touched) else None


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock ``folder`` within this context, or raise :class:`Held`. A process may lock the same folder again."""
    folder.mkdir(parents=True, exist_ok=True)
    holder = holder_of(folder)
    if holder is not None and holder.is_this_process:
        yield
        return
    own = _acquire(folder)
    released = threading.Event()
    heartbeat = threading.Thread(target=_beat, args=(folder / LOCK_FILE, own, released), daemon=True)
    heartbeat.start()
    try:
        yield
    finally:
        released.set()
        heartbeat.join()
        _release(folder / LOCK_FILE, own)


def _acquire(folder: Path) -> Holder:
    path = folder / LOCK_FILE
    own = Holder(socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()) or "", secrets.token_hex(8))
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            if _take_over(path, own):
                return own
            continue
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            os.write(descriptor, _encode(own))
        except OSError as error:
            path.unlink()
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        finally:
            os.close(descriptor)
        return own


def _take_over(path: Path, own: Holder) -> bool:
    """Replace a stale lock by ``own``. Returns False if the file is gone; raises :class:`Held` if it is not stale."""
    with _locked(path) as descriptor:
        if descriptor is None:
            return False
        holder = _decode(os.pread(descriptor, _LARGEST, 0))
        if _is_alive(holder, os.fstat(descriptor).st_mtime):
            raise Held(path.parent, holder)
        content = _encode(own)
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        return True


def _release(path: Path, own: Holder) -> None:
    with _locked(path) as descriptor:
        if descriptor is not None and _decode(os.pread(descriptor, _LARGEST, 0)) == own:
            path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """The open file at ``path``, locked by the kernel; None if it was removed or replaced in the meantime."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise UserError(f"{path}: cannot be opened as a lock ({error.strerror}); remove it") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserError(f"{path}: cannot be a lock, because it is not a regular file; remove it")
        with contextlib.suppress(OSError):  # not supported by every file system; creation is exclusive anyway
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            is_current = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except FileNotFoundError:
            is_current = False
        yield descriptor if is_current else None
    finally:
        os.close(descriptor)


def _beat(path: Path, own: Holder, released: threading.Event) -> None:
    """Touch the lock regularly. Exit if another process has taken it over while this one was suspended."""
    while not released.wait(HEARTBEAT):
        try:
            if _read(path) not in (own, None):
                print(f"{path.parent}: taken over by {_read(path)} while this process was suspended", file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)
            os.utime(path)
        except OSError:
            continue  # the file system may be unavailable for a moment


def _read(path: Path) -> Holder | None:
    try:
        return _decode(documents.read_bytes(path, _LARGEST, follow=False))
    except UserError:
        return None


def _encode(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _decode(content: bytes) -> Holder | None:
    """The holder, or None if the file is empty or incomplete."""
    try:
        holder = Holder(**documents.parse_json(content, LOCK_FILE))
    except (UserError, TypeError):
        return None
    names = (holder.host, holder.machine, holder.started, holder.token)
    return holder if type(holder.pid) is int and all(isinstance(name, str) for name in names) else None


def _is_alive(holder: Holder | None, touched: float) -> bool:
    if holder is not None and holder.machine == _machine():
        return holder.started == _started(holder.pid)
    return -FUTURE < time.time() - touched < SILENCE


def _machine() -> str:
    """The scope within which process ids are unique: host, boot and container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """The start time of process ``pid`` as reported by the system; None if it does not exist or is a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else fields[18]
    words = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.split()
    return " ".join(words[1:]) if words and not words[0].startswith("Z") else None
