"""One run of a sweep: the files that a sweep writes to the run's folder, and the state that follows from them.

job.json      the plan: settings, the folder that paths are relative to, the id in a cluster's queue
state.json    the number of attempts, and whether the last one failed or was stopped
console.txt   the output of the process

A run is done when it has a ``result.json``, and running while a live process holds its lock. ``state.json``
distinguishes failed runs from stopped or killed ones, which resume when they are started again.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from semilearn_ext import documents, files
from semilearn_ext.errors import UserError, shown
from semilearn_ext.runs import lock
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.record_file import read_bytes
from semilearn_ext.settings import Settings
from semilearn_ext.settings.load import Raw, resolve

EXIT_LOCKED = 75
"""The exit code of a job that another process is training or has attempted in the meantime."""


class State(Enum):
    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    QUEUED = "queued"
    PENDING = "pending"


@dataclass(frozen=True)
class Record:
    """The content of ``state.json``."""

    state: str = "pending"
    attempts: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Status:
    state: State
    record: Record
    holder: lock.Holder | None = None
    """The process that is training the run."""


@dataclass(frozen=True)
class Job:
    """The folder of a run, and its state when it was read."""

    folder: Path
    status: Status

    @classmethod
    def read(cls, folder: Path) -> Job:
        return cls(folder, read_status(folder))

    @property
    def title(self) -> str:
        """Dataset, labels, method, target and seed, as in the path of the folder."""
        return "/".join(self.folder.parts[-5:])


def write_plan(folder: Path, settings: Settings) -> None:
    """Write ``job.json``: everything that is needed to train the run in another process."""
    plan = {"cwd": os.getcwd(), "settings": settings.flat(), "queue_id": read_queue_id(folder)}
    files.write_json(RunFolder(folder).job_file, plan, flush=False)


def write_queue_id(folder: Path, queue_id: str) -> None:
    """Add the id of the planned run in a cluster's queue."""
    plan = {**_read_plan(RunFolder(folder).job_file), "queue_id": queue_id}
    files.write_json(RunFolder(folder).job_file, plan, flush=False)


def planned_cores(folder: Path) -> int:
    """The number of CPU cores that the planned run can use: one for training and one per loader process."""
    workers = _read_plan(RunFolder(folder).job_file)["settings"].get("num_workers", 0)
    return 1 + 2 * workers if isinstance(workers, int) else 1


def read_queue_id(folder: Path) -> str:
    try:
        return str(_read_plan(RunFolder(folder).job_file).get("queue_id", ""))
    except UserError:
        return ""


def _read_plan(path: Path) -> dict[str, Any]:
    plan = documents.read_json(path, follow=False)
    if not isinstance(plan, dict) or not isinstance(plan.get("settings"), dict) or not isinstance(plan.get("cwd"), str):
        raise UserError(f"{path}: not a planned run; plan the run again with 'ssdg sweep'")
    return plan


def enter_plan(folder: Path) -> Settings:
    """Read the settings planned in ``folder``, and change to the directory that their paths are relative to."""
    path = RunFolder(folder).job_file
    if not path.exists():
        raise UserError(f"{path}: does not exist; plan the run again with 'ssdg sweep'")
    plan = _read_plan(path)
    try:
        os.chdir(plan["cwd"])
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot change to {shown(plan['cwd'])} ({error})") from None
    settings = resolve({name: Raw(value, str(path)) for name, value in plan["settings"].items()})
    if run_path(settings).resolve() != folder.resolve():
        raise UserError(f"{path}: was planned for {run_path(settings)}; plan the run again with 'ssdg sweep'")
    return settings


def read_record(folder: Path) -> Record:
    """The content of ``state.json``; the default record if the file is missing or damaged."""
    try:
        record = Record(**documents.read_json(RunFolder(folder).state_file, follow=False))
    except (UserError, TypeError):
        return Record()
    types = (str, int, str)
    fields = (record.state, record.attempts, record.reason)
    return record if all(type(field) is kind for field, kind in zip(fields, types, strict=True)) else Record()


def update_record(folder: Path, **changes: Any) -> None:
    """Change the record. While a job is running, only its own process may do this."""
    files.write_json(RunFolder(folder).state_file, asdict(replace(read_record(folder), **changes)))


def remove_plan(folder: Path) -> None:
    """Remove the files of the sweep, which a finished run no longer needs."""
    RunFolder(folder).state_file.unlink(missing_ok=True)
    RunFolder(folder).job_file.unlink(missing_ok=True)


def read_status(folder: Path) -> Status:
    record = read_record(folder)
    if RunFolder(folder).is_finished:
        return Status(State.DONE, record)
    holder = lock.holder_of(folder)
    if holder is not None:
        return Status(State.RUNNING, record, holder)
    if record.state == "failed":
        return Status(State.FAILED, record)
    if record.attempts or RunFolder(folder).config_file.exists():
        return Status(State.STOPPED, record)
    return Status(State.QUEUED if read_queue_id(folder) else State.PENDING, record)


def console_tail(folder: Path, lines: int = 5) -> list[str]:
    """The last lines of the job's output."""
    try:
        content = read_bytes(RunFolder(folder).console_file)
    except UserError:
        return []
    output = content[-100_000:].decode("utf-8", "replace").splitlines()
    return [line for line in output if line.strip()][-lines:]
