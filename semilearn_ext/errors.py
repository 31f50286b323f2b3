"""Errors that a user can act on: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable


class UserError(Exception):
    """Invalid input. The message is shown on one line without a traceback, and the exit code is 2."""


class Interrupted(Exception):
    """The run was asked to stop and has saved a checkpoint to resume from. The exit code is 130."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the name in ``known`` closest to ``word``, or "" if none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def exit_code_of(main: Callable[[], None]) -> int:
    """Run ``main``, and turn the errors above into one line on stderr and an exit code."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        print(str(stop), file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("interrupted; re-run the same command to continue", file=sys.stderr)
        return 130
    return 0
