"""``ssdg`` called in this process, and its output. An exception that it does not handle is a traceback for users."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import traceback
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from semilearn_ext.__main__ import console
from semilearn_ext.settings import extensions

TIMEOUT = 120
"""Seconds after which a command counts as hanging."""


class Outcome(NamedTuple):
    code: int
    output: str
    errors: str
    crashed: bool

    @property
    def is_one_line(self) -> bool:
        """Whether this is an error in one line."""
        lines = [line for line in self.errors.splitlines() if line.startswith("error: ")]
        return self.code == 2 and len(lines) == 1


def call(words: list[str], folder: Path) -> Outcome:
    """Run ``ssdg`` with ``words`` in ``folder``."""
    output, errors = io.StringIO(), io.StringIO()
    before, code, crashed = os.getcwd(), 1, False
    handler = signal.signal(signal.SIGALRM, _hangs)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.alarm(TIMEOUT)
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = console(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        crashed = True
        errors.write(traceback.format_exc())
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        for number, known in handlers.items():
            signal.signal(number, known)
        os.chdir(before)
        extensions._trust.clear()
    return Outcome(code, output.getvalue(), errors.getvalue(), crashed or "Traceback" in errors.getvalue())


class Hanging(BaseException):
    """Not an ``Exception``, which the command would turn into one line."""


def _hangs(number: int, frame: FrameType | None) -> None:
    raise Hanging(f"still running after {TIMEOUT} s")
