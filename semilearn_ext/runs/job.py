"""One run of a sweep, as files in its run folder, and the state it is in, read off those files.

job.json      what the sweep asked for: the settings, the folder that relative paths start from, its id in a queue
state.json    how often it was started, and whether the last attempt failed or was stopped
console.txt   what the process printed

A run is done when there is a ``result.json``, and running when a living process holds its lock; ``state.json`` tells a
failure from a process that was stopped or killed, which goes on when it is started again.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from semilearn_ext import files
from semilearn_ext.errors import UserError
from semilearn_ext.runs import lock
from semilearn_ext.runs.folder import CONSOLE_FILE, JOB_FILE, STATE_FILE, RunFolder, run_path
from semilearn_ext.settings import Settings
from semilearn_ext.settings.load import Raw, resolve

HELD = 75
"""The exit code of a job that somebody else holds or has run meanwhile."""


class State(Enum):
    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    QUEUED = "queued"
    LEFT = "left"


@dataclass(frozen=True)
class Record:
    """The content of ``state.json``."""

    state: str = "left"
    attempts: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Status:
    state: State
    record: Record
    holder: lock.Holder | None = None


@dataclass(frozen=True)
class Job:
    """A run's folder, and the state it was in when somebody looked."""

    folder: Path
    status: Status

    @property
    def title(self) -> str:
        """Dataset, labels, method, target and seed: the folders' own names."""
        return "/".join(self.folder.parts[-5:])


def look(folder: Path) -> Job:
    return Job(folder, status_of(folder))


def write(folder: Path, settings: Settings) -> None:
    """Plan a run: put what it needs into its folder."""
    planned = {"cwd": os.getcwd(), "settings": settings.flat(), "queued_as": queued_as(folder)}
    files.write_json(folder / JOB_FILE, planned, flush=False)


def mark_queued(folder: Path, identity: str) -> None:
    """Remember the id that a cluster's queue gave to the run planned in ``folder``."""
    planned = {**json.loads((folder / JOB_FILE).read_text()), "queued_as": identity}
    files.write_json(folder / JOB_FILE, planned, flush=False)


def queued_as(folder: Path) -> str:
    try:
        return str(json.loads((folder / JOB_FILE).read_text()).get("queued_as", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def enter(folder: Path) -> Settings:
    """The settings planned in ``folder``. Relative paths in them are made good: the current folder becomes the one
    that the sweep was planned in."""
    path = folder / JOB_FILE
    try:
        planned = json.loads(path.read_text())
        os.chdir(planned["cwd"])
        settings = resolve({name: Raw(value, str(path)) for name, value in planned["settings"].items()})
    except FileNotFoundError as error:
        raise UserError(f"{path}: {error.filename}: not there; plan it again with the sweep's own command") from None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    if run_path(settings).resolve() != folder.resolve():
        raise UserError(f"{path}: was planned for {run_path(settings)}; plan it again with the sweep's own command")
    return settings


def record_of(folder: Path) -> Record:
    """What ``state.json`` says; a file that is missing or damaged says nothing."""
    try:
        return Record(**json.loads((folder / STATE_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return Record()


def note(folder: Path, **changes: Any) -> None:
    """Change the record. While a job runs only its own process does this."""
    files.write_json(folder / STATE_FILE, asdict(replace(record_of(folder), **changes)))


def forget(folder: Path) -> None:
    """A finished run needs no record of how it came about."""
    for name in (STATE_FILE, JOB_FILE):
        (folder / name).unlink(missing_ok=True)


def status_of(folder: Path) -> Status:
    record = record_of(folder)
    if RunFolder(folder).is_finished:
        return Status(State.DONE, record)
    holder = lock.holder_of(folder)
    if holder is not None:
        return Status(State.RUNNING, record, holder)
    if record.state == "failed":
        return Status(State.FAILED, record)
    if record.attempts or RunFolder(folder).config_file.exists():
        return Status(State.STOPPED, record)
    return Status(State.QUEUED if queued_as(folder) else State.LEFT, record)


def last_words(folder: Path, lines: int = 5) -> list[str]:
    """The end of what the job's process printed."""
    try:
        said = (folder / CONSOLE_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in said if line.strip()][-lines:]
