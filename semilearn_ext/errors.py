"""Errors that a user can act on: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import contextlib
import difflib
import os
import reprlib
import sys
from collections.abc import Callable, Iterable
from typing import Any


class UserError(Exception):
    """Invalid input. The message is shown on one line without a traceback, and the exit code is 2."""


class Interrupted(Exception):
    """The run was asked to stop and has saved a checkpoint to resume from. The exit code is 130."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the name in ``known`` closest to ``word``, or "" if none is close."""
    close = difflib.get_close_matches(word[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def printable(text: str) -> str:
    """``text`` on one line. Control characters, which could drive a terminal, and bytes that are not text are shown as
    escape sequences."""
    line = " ".join(text.split("\n")) if "\n" in text else text
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


LONGEST = 2000
"""Characters of a message that are shown."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """``repr(value)`` for a message: of bounded length and depth, whatever the value is."""
    return _SHORT.repr(value)


class PlainOutput:
    """A stream that escapes the control characters in what is printed to it: names of files and methods may have been
    chosen by others."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        lines = text.split("\n")
        self.stream.write("\n".join("\t".join(map(printable, line.split("\t"))) for line in lines))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def exit_code_of(main: Callable[[], None]) -> int:
    """Run ``main``, and turn the errors above and those of the system into one line on stderr and an exit code."""
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
        _forget_output()  # whoever reads the output has seen enough of it
        return 141
    except OSError as error:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        if not place:
            _forget_output()
        return _failed(f"{place}{error.strerror or error}")
    except MemoryError as error:
        return _failed(f"out of memory ({str(error) or 'no more could be allocated'}); use smaller images or batches")
    except RuntimeError as error:
        if str(error).startswith("Symlink loop"):  # Path.resolve() before Python 3.13
            return _failed(f"{str(error).removeprefix('Symlink loop from ')}: a link that leads to itself")
        if not _is_out_of_memory(error):
            raise
        reason = str(error).split("\n")[0][:200]
        return _failed(f"out of memory; lower batch_size or eval_batch_size ({reason})")
    return 0


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch, which is not imported here, could not allocate: it has a class of its own for CUDA only."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return type(error).__name__ == "OutOfMemoryError" or any(word in str(error) for word in words)


def _failed(message: str) -> int:
    line = printable(message)
    print(f"error: {line if len(line) <= LONGEST else f'{line[:LONGEST]}…'}", file=sys.stderr)
    return 2


def _forget_output() -> None:
    """Python writes what is left of the output when it exits, which would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
