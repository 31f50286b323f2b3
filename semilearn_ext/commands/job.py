"""``job``: train one run that a sweep has planned. Sweeps start this in a process of its own, and so can you."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

from semilearn_ext.errors import Interrupted, UserError, exit_code_of
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.lock import Held, hold

HELP = "train one run that a sweep has planned"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the run's folder, with a job.json in it")
    parser.add_argument("--attempt", type=int, metavar="N", help="run it only if N - 1 attempts were made before")
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, _stop)
    folder: Path = arguments.folder.resolve()
    try:
        with hold(folder):
            _run(folder, arguments.attempt)
    except Held:
        sys.exit(jobs.HELD)


def train(folder: Path, attempt: int) -> int:
    """The same from Python, for a process that was forked for it: its exit code."""
    return exit_code_of(lambda: run(argparse.Namespace(folder=folder, attempt=attempt)))


def _stop(*_: Any) -> None:
    """Before and after training, which has its own way of stopping, the first SIGTERM is a Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(folder: Path, attempt: int | None) -> None:
    if RunFolder(folder).is_finished:
        return
    attempts = jobs.record_of(folder).attempts
    if attempt is not None and attempts != attempt - 1:
        sys.exit(jobs.HELD)
    jobs.note(folder, state="started", attempts=attempts + 1, reason="")
    try:
        settings = jobs.enter(folder)
        from semilearn_ext import training

        training.run(settings)
    except (Interrupted, KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        jobs.note(folder, state="stopped")
        raise
    except Exception as error:
        with contextlib.suppress(OSError):
            reason = " ".join(f"{'' if isinstance(error, UserError) else type(error).__name__ + ': '}{error}".split())
            jobs.note(folder, state="failed", reason=reason)
        raise
    jobs.forget(folder)
