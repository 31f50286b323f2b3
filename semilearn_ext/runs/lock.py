"""A run folder is held by one process at a time.

``lock.json`` in the folder names the process; while it lives it touches the file every few seconds. A lock is stale
when its process is gone from this machine, or, held from another machine, when it has not been touched for a while.
The file is created exclusively, and a stale one is rewritten in place under the kernel's file lock: of many that try
at once one wins, and all others see its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from semilearn_ext.errors import UserError

NAME = "lock.json"
HEARTBEAT = 5.0
SILENCE = 120.0
"""Seconds without a heartbeat after which a holder on another machine counts as gone."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a folder. ``machine`` is where process ids mean the same; ``token`` is new every time."""

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
    """Somebody else holds the folder."""

    def __init__(self, folder: Path, holder: Holder | None) -> None:
        super().__init__(
            f"{folder}: is being trained by {holder or 'another process'}; wait for it, or stop it and run this again"
        )


def holder_of(folder: Path) -> Holder | None:
    """The living process that holds ``folder``, or None."""
    path = folder / NAME
    try:
        holder, touched = _read(path), path.stat().st_mtime
    except FileNotFoundError:
        return None
    return holder if holder is not None and _is_alive(holder, touched) else None


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold ``folder`` within this context, or raise :class:`Held`. A process that holds it already may do so again."""
    folder.mkdir(parents=True, exist_ok=True)
    present = holder_of(folder)
    if present is not None and present.is_this_process:
        yield
        return
    mine = _acquire(folder)
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(folder / NAME, mine, done), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()
        _release(folder / NAME, mine)


def _acquire(folder: Path) -> Holder:
    path = folder / NAME
    mine = Holder(socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()) or "", secrets.token_hex(8))
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            if _take_over(path, mine):
                return mine
            continue
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            os.write(descriptor, _encode(mine))
        except OSError as error:
            path.unlink()
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        finally:
            os.close(descriptor)
        return mine


def _take_over(path: Path, mine: Holder) -> bool:
    """Put ``mine`` in a stale lock's place. False: it went away meanwhile, look again. A living one raises Held."""
    with _locked(path) as descriptor:
        if descriptor is None:
            return False
        there = _decode(os.pread(descriptor, 4096, 0))
        if _is_alive(there, os.fstat(descriptor).st_mtime):
            raise Held(path.parent, there)
        content = _encode(mine)
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        return True


def _release(path: Path, mine: Holder) -> None:
    with _locked(path) as descriptor:
        if descriptor is not None and _decode(os.pread(descriptor, 4096, 0)) == mine:
            path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """The open file at ``path``, with the kernel's lock on it; None when it is gone or was replaced meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield None
        return
    try:
        with contextlib.suppress(OSError):  # some cluster file systems have no such locks: creation is exclusive still
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            same = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except FileNotFoundError:
            same = False
        yield descriptor if same else None
    finally:
        os.close(descriptor)


def _beat(path: Path, mine: Holder, done: threading.Event) -> None:
    """Touch the lock. When it is not ours any more (this process slept too long), end before anything is written."""
    while not done.wait(HEARTBEAT):
        try:
            if _read(path) not in (mine, None):
                print(f"{path.parent}: taken over by {_read(path)} while this process slept: ended", file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)
            os.utime(path)
        except OSError:
            continue  # a file system that does not answer for a moment


def _read(path: Path) -> Holder | None:
    return _decode(path.read_bytes())


def _encode(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _decode(content: bytes) -> Holder | None:
    """The holder; None when the file is empty or half-written."""
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None


def _is_alive(holder: Holder | None, touched: float) -> bool:
    if holder is not None and holder.machine == _machine():
        return holder.started == _started(holder.pid)
    return time.time() - touched < SILENCE


def _machine() -> str:
    """Where a process id means the same process: the host, since it was booted, within one container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """When process ``pid`` began, in the system's own words; None when there is none, or only its exit code is left."""
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
