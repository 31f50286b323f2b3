"""The command ``ssdg`` in a separate process that has already imported everything: a fork of the tests' process.

A new interpreter spends ten seconds of processor time on the imports of torch and USB. A fork behaves in the same way
when it is killed, runs out of disk space or holds a lock. Tests of the imports start an interpreter.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from semilearn_ext.__main__ import console

# Only reached when something hangs, however busy the machine is.
PATIENCE = 900.0


def wait_for(condition: Callable[[], object], interval: float = 0.01) -> None:
    """Wait until ``condition`` is true, checking it every ``interval`` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {condition}"
        time.sleep(interval)


class Forked:
    """``ssdg ARGUMENTS`` in the folder ``cwd``. The methods are those of :class:`subprocess.Popen`."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.args = arguments
        self.returncode: int | None = None
        importlib.import_module("semilearn_ext.training")  # torch and USB, once for all forks
        self._files = [tempfile.TemporaryFile() for _ in ("stdout", "stderr")]  # noqa: SIM115
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(cwd)

    def _run(self, cwd: Path) -> NoReturn:
        code = 70
        try:
            os.chdir(cwd)
            for number, file in enumerate(self._files, start=1):
                os.dup2(file.fileno(), number)
            sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
            sys.argv = ["ssdg", *self.args]
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = console(self.args)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise subprocess.TimeoutExpired(list(self.args), timeout, *(text.encode() for text in self.output()))
            time.sleep(0.005)
        return code

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        self.wait(timeout)
        return self.output()

    def output(self) -> tuple[str, str]:
        """Its output and errors so far."""
        texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in self._files]
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
