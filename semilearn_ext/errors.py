"""Errors a user can act on: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable


class UserError(Exception):
    """Bad input. Its message is shown as one line, without a traceback, and the exit code is 2."""


class Interrupted(Exception):
    """The run was asked to stop, has saved what it had, and can be continued. The exit code is 130."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, or an empty string when nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def exit_code_of(main: Callable[[], None]) -> int:
    """Run ``main`` and turn the two errors above into a line on stderr and an exit code."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        print(str(stop), file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("interrupted; the same command starts from what was saved", file=sys.stderr)
        return 130
    return 0
