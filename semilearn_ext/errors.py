"""Errors that a user can act on: one line that says what is wrong, where, and what to do about it."""

from __future__ import annotations

import contextlib
import difflib
import os
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_HOME = Path(__file__).parent


class UserError(Exception):
    """Invalid input. The message is shown on one line without a traceback, and the exit code is 2."""


class Interrupted(Exception):
    """The run was asked to stop and has saved a checkpoint to resume from. The exit code is 130."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the name in ``known`` that is closest to ``word``, or "" if none is close."""
    close = difflib.get_close_matches(word[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def counted(number: int, noun: str) -> str:
    """``"1 run"`` or ``"2 runs"``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str) -> str:
    """``text`` on one line, with escape sequences for control characters, which could manipulate a terminal, and for
    bytes that are not text."""
    line = " ".join(text.split("\n")) if "\n" in text else text
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


LONGEST = 2000
"""Maximum number of characters of a message."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """``repr(value)`` for a message, with limited length and depth."""
    return _SHORT.repr(value)


class PlainOutput:
    """A stream that escapes control characters, because names of files and methods may come from somebody else."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        lines = text.split("\n")
        self.stream.write("\n".join("\t".join(map(printable, line.split("\t"))) for line in lines))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def show_warnings_on_one_line() -> None:
    """From now on, warnings of this package are shown without the file and the line of code that they come from."""
    default_format = warnings.formatwarning

    def shown_as(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if Path(filename).is_relative_to(_HOME):
            return f"warning: {printable(str(message))}\n"
        return default_format(message, category, filename, lineno, line)

    warnings.formatwarning = shown_as


def exit_code_of(main: Callable[[], None]) -> int:
    """Run ``main`` and return its exit code. User errors and system errors are printed as one line on stderr."""
    try:
        with contextlib.redirect_stdout(PlainOutput(sys.stdout)):
            main()
            sys.stdout.flush()
    except UserError as error:
        return _failed(str(error))
    except Interrupted as stop:
        print(printable(str(stop)), file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("interrupted; re-run the same command to continue", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()  # the reader of the pipe has closed it
        return 141
    except OSError as error:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        if not place:
            _discard_output()
        return _failed(f"{place}{error.strerror or error}")
    except MemoryError as error:
        return _failed(f"out of memory ({str(error) or 'no more could be allocated'}); use smaller images or batches")
    except RuntimeError as error:
        if str(error).startswith("Symlink loop"):  # Path.resolve() before Python 3.13
            return _failed(f"{str(error).removeprefix('Symlink loop from ')}: a link that leads to itself")
        if str(error).startswith("Could not determine home"):  # '~' without HOME, or '~name' of an unknown user
            return _failed(
                "a path begins with '~', but that home directory is unknown; set HOME, or write the path in full"
            )
        if not _is_out_of_memory(error):
            raise
        reason = str(error).split("\n")[0][:200]
        return _failed(f"out of memory; lower batch_size or eval_batch_size ({reason})")
    return 0


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch, which is not imported here, ran out of memory. It has a separate exception class only for CUDA."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return type(error).__name__ == "OutOfMemoryError" or any(word in str(error) for word in words)


def _failed(message: str) -> int:
    line = printable(message)
    with contextlib.suppress(OSError):  # the exit code remains if stderr cannot be written to
        print(f"error: {line if len(line) <= LONGEST else f'{line[:LONGEST]}…'}", file=sys.stderr, flush=True)
    return 2


def _discard_output() -> None:
    """Discard buffered output, which Python would otherwise write on exit and fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
