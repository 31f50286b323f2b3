"""Train one run that a sweep has planned. Sweeps start this command in a separate process; it also works by hand."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

from semilearn_ext.commands.argument_types import add_trust, positive
from semilearn_ext.errors import Interrupted, UserError, exit_code_of
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.lock import Held, lock
from semilearn_ext.settings.extensions import load_extension

HELP = "train one planned run of a sweep (started by sweep)"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder of the run, which contains a job.json")
    parser.add_argument(
        "--attempt", type=positive, metavar="N", help="train only if there have been exactly N - 1 attempts so far"
    )
    parser.add_argument(
        "--extend", action="append", default=[], metavar="FILE", help="a Python extension of the plan that may be run"
    )
    add_trust(parser)
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    for file in arguments.extend:
        load_extension(file, "--extend")
    folder: Path = arguments.folder.resolve()
    try:
        with lock(folder):
            _run(folder, arguments.attempt)
    except Held:
        sys.exit(jobs.EXIT_LOCKED)


def train(folder: Path, attempt: int) -> int:
    """Run the command in a forked process. Returns the exit code."""
    return exit_code_of(lambda: run(argparse.Namespace(folder=folder, attempt=attempt, extend=[])))


def _interrupt(*_: Any) -> None:
    """Treat the first SIGTERM like Ctrl-C. Training itself has its own signal handlers."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(folder: Path, attempt: int | None) -> None:
    if RunFolder(folder).is_finished:
        return
    attempts = jobs.read_record(folder).attempts
    if attempt is not None and attempts != attempt - 1:
        sys.exit(jobs.EXIT_LOCKED)
    jobs.update_record(folder, state="started", attempts=attempts + 1, reason="")
    try:
        settings = jobs.enter_plan(folder)
        from semilearn_ext import training

        training.run(settings)
    except (Interrupted, KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        jobs.update_record(folder, state="stopped")
        raise
    except Exception as error:
        with contextlib.suppress(OSError):
            message = f"{error}" if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            jobs.update_record(folder, state="failed", reason=" ".join(message.split()))
        raise
    jobs.remove_plan(folder)
