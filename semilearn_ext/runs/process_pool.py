"""The processes of a local sweep, one per job, and the pool that manages them.

``concurrent.futures`` is not suitable: one killed worker breaks its whole pool, a worker cannot be sent a signal, and
workers do not outlive the process that started them.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Protocol

from semilearn_ext import files
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.job import Job, State
from semilearn_ext.settings import extensions

RECHECK = 2.0
"""Seconds between two checks of jobs that other processes have locked."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Process(Protocol):
    """The process of a running job. ``subprocess.Popen`` implements this protocol."""

    def poll(self) -> int | None: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


Start = Callable[[Path, int, dict[str, str], Path], Process]
"""Starts the job planned in a folder: ``start(folder, attempt, environment, console)``."""


def job_command(folder: Path, attempt: int) -> list[str]:
    """The command that trains the run planned in ``folder``, unless another process has started this attempt.

    It may run the same extensions as this process.
    """
    # Unlike -m, this imports nothing from the current folder, which may be somebody else's (-P is new in Python 3.11).
    # In a clone that is not installed, the package itself is in that folder.
    is_clone = Path(__file__).parents[2] == Path.cwd()
    safe = "" if is_clone else "sys.path = [folder for folder in sys.path if folder]; "
    code = f"import sys; {safe}from semilearn_ext.__main__ import console; sys.exit(console())"
    return [sys.executable, "-c", code, "job", str(folder), "--attempt", str(attempt), *extensions.flags()]


def by_command(command: Callable[[Path, int], list[str]] = job_command) -> Start:
    """Start each job as a new program."""

    def start(folder: Path, attempt: int, environment: dict[str, str], console: Path) -> Process:
        with files.open_to_append(console) as output:
            return subprocess.Popen(
                command(folder, attempt),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal only reaches the sweep, which passes it on
            )

    return start


GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/usr/lib/wsl/lib/libcuda.so.1")
"""Files that exist on Linux with a driver of an NVIDIA GPU, of an AMD GPU, or of the Windows Subsystem for Linux."""


def can_fork() -> bool:
    """Whether jobs can be forked: only without a GPU, because a process that has initialised one cannot fork safely."""
    return sys.platform == "linux" and not any(Path(path).exists() for path in GPU_DRIVERS)


def by_fork(target: Callable[[Path, int], int], preload: str) -> Start:
    """Start each job as a fork of this process, which imports the module ``preload`` first.

    Importing torch and USB can take longer than training on a small benchmark. With forks, they are imported once per
    sweep instead of once per run. ``target(folder, attempt)`` returns the exit code.
    """
    # Ctrl-C ends this process at once, because imports could swallow an exception. No job is running yet.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    importlib.import_module(preload)
    signal.signal(signal.SIGINT, handler)
    context = multiprocessing.get_context("fork")

    def start(folder: Path, attempt: int, environment: dict[str, str], console: Path) -> Process:
        process = context.Process(target=_child, args=(target, folder, attempt, environment, console))
        # Block signals until the child has its own handlers; the inherited handlers of the sweep would swallow them.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        return _Fork(process)

    return start


@dataclass(frozen=True)
class _Fork:
    process: ForkProcess

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, number)


def _child(
    target: Callable[[Path, int], int], folder: Path, attempt: int, environment: dict[str, str], console: Path
) -> None:
    os.setsid()  # Ctrl-C in the terminal only reaches the sweep, which passes it on
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    os.environ.update(environment)
    output = files.open_to_append(console)
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    sys.exit(target(folder, attempt))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: done, failed or stopped, and the reason."""

    state: State
    reason: str = ""


@dataclass(frozen=True)
class _Running:
    job: Job
    process: Process
    gpu: str | None
    started: float = field(default_factory=time.monotonic)


class Pool:
    """The jobs of one sweep and the processes that train them, one per slot. A slot is a GPU or None.

    Other sweeps may work on the same jobs. A job that is locked by another process is checked again later; one that
    another process has finished, or has attempted without success, is not run again.
    """

    def __init__(self, planned: Sequence[Job], slots: Sequence[str | None], start: Start) -> None:
        self.waiting = deque(planned)
        self.locked: list[Job] = []
        self.free = deque(slots)
        self.running: list[_Running] = []
        self.outcomes: dict[Path, Outcome] = {}
        self._start = start
        self._checked = time.monotonic()

    @property
    def unfinished(self) -> int:
        return len(self.waiting) + len(self.locked) + len(self.running)

    def count(self, state: State) -> int:
        return sum(outcome.state is state for outcome in self.outcomes.values())

    def start(self) -> Iterator[Job]:
        """Start a job in every free slot, and yield it."""
        while self.free and self.waiting:
            job = self.waiting.popleft()
            status = jobs.read_status(job.folder)
            if status.state is State.DONE:
                self.outcomes[job.folder] = Outcome(State.DONE)
            elif status.state is State.RUNNING:
                self.locked.append(job)
            elif status.state is State.FAILED and status.record.attempts > job.status.record.attempts:
                self.outcomes[job.folder] = Outcome(State.FAILED, status.record.reason)
            else:
                gpu = self.free.popleft()
                environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
                console = RunFolder(job.folder).console_file
                process = self._start(job.folder, status.record.attempts + 1, environment, console)
                self.running.append(_Running(job, process, gpu))
                yield job

    def reap(self) -> Iterator[tuple[Job, Outcome, float]]:
        """Yield the jobs that have ended since the last call, their outcomes and durations in seconds."""
        for child in list(self.running):
            code = child.process.poll()
            if code is None:
                continue
            self.running.remove(child)
            self.free.append(child.gpu)
            if code == jobs.EXIT_LOCKED:
                self.locked.append(child.job)
                continue
            outcome = self.outcomes[child.job.folder] = _outcome(child.job.folder, code)
            yield child.job, outcome, time.monotonic() - child.started

    def recheck_locked(self) -> None:
        """Every few seconds, move jobs that are no longer locked by another process back to the waiting ones."""
        if self.locked and time.monotonic() - self._checked > RECHECK:
            self._checked = time.monotonic()
            candidates, self.locked = self.locked, []
            for job in candidates:
                locked = jobs.read_status(job.folder).state is State.RUNNING
                (self.locked if locked else self.waiting).append(job)

    def send_signal(self, number: signal.Signals) -> None:
        for child in self.running:
            child.process.send_signal(number)


def _outcome(folder: Path, code: int) -> Outcome:
    status = jobs.read_status(folder)
    if status.state is State.DONE:
        return Outcome(State.DONE)
    if status.state is State.FAILED:
        return Outcome(State.FAILED, status.record.reason)
    if code < 0:
        return Outcome(State.STOPPED, f"killed by {signal.Signals(-code).name}")
    if code == 130:
        return Outcome(State.STOPPED, "will resume from its checkpoint")
    return Outcome(State.FAILED, f"the process ended with exit code {code}")
