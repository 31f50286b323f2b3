"""Starts jobs as forks of one process that has done the heavy imports: they take longer than a short run does.

Only where nothing but a CPU computes: a process that has asked for its GPUs cannot be forked safely.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

Target = Callable[[Path, int], int]
"""Trains the run planned in a folder, as its so-many-th attempt, and returns an exit code."""


COULD_NOT_START = 1


def can_fork() -> bool:
    return sys.platform == "linux" and not Path("/dev/nvidiactl").exists() and not Path("/dev/kfd").exists()


class Fork:
    """A forked job, with what the sweep asks of a process.

    The first of them wait for the imports, in a thread: the sweep goes on listening. Signalled before it has begun, a
    job is called off.
    """

    def __init__(self, process: ForkServerProcess) -> None:
        self.process = process
        self.called_off = False
        self.beginning = threading.Thread(target=process.start, daemon=True)
        self.beginning.start()

    def poll(self) -> int | None:
        if self.beginning.is_alive():
            return -signal.SIGTERM if self.called_off else None
        return COULD_NOT_START if self.process.pid is None else self.process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.beginning.is_alive():
            self.called_off = True
        elif self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, number)


def forking(target: Target, preload: str) -> Callable[[Path, int, dict[str, str], Path], Fork]:
    """A function that starts ``target`` in a fork of a process that has imported the module ``preload``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])

    def start(folder: Path, attempt: int, environment: dict[str, str], console: Path) -> Fork:
        # The server starts with the first job and takes its number of threads from here.
        os.environ["OMP_NUM_THREADS"] = environment["OMP_NUM_THREADS"]
        _ensure_server()
        process = context.Process(target=_child, args=(target, folder, attempt, environment, console))
        return Fork(process)

    return start


def _ensure_server() -> None:
    """Have the server running, and deaf to Ctrl-C: it ends with the sweep, not before."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def _child(target: Target, folder: Path, attempt: int, environment: dict[str, str], console: Path) -> None:
    sweep = multiprocessing.parent_process()
    if sweep is not None and not sweep.is_alive():
        return  # it was called off
    os.setsid()  # Ctrl-C in the terminal is for the sweep, which passes it on
    os.environ.update(environment)
    said = os.open(console, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, place in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(source, place)
    sys.exit(target(folder, attempt))
