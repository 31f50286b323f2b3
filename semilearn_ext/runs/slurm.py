"""Run the jobs of a sweep on a cluster, as one SLURM job array submitted with submitit.

Every array task is a small process that starts the job's process and forwards SLURM's signals to it. Near the time
limit, or on preemption, SLURM signals the task, which asks the job to save and stop and then requeues itself. The job
resumes from its checkpoint, possibly on another node.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semilearn_ext import files
from semilearn_ext.errors import UserError
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.job import Job, State
from semilearn_ext.runs.lock import SILENCE
from semilearn_ext.runs.process_pool import job_command
from semilearn_ext.settings import extensions

LOGS = "slurm"
"""The folder in ``save_dir`` for the files of submitit."""
_TICK = 0.5
_SAVE_TIMEOUT = 60.0
"""Seconds that a job may take to save; SLURM allows 90 seconds between its signal and the end of the job."""
_KILL_TIMEOUT = 300.0
"""Seconds to wait for SLURM to kill a task that it has asked to stop."""


@dataclass(frozen=True)
class Request:
    """The resources requested for every job. ``sbatch`` contains further sbatch options by name."""

    minutes: int
    partition: str | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    array_parallelism: int | None = None
    sbatch: dict[str, str] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """The request as submitit's parameters."""
        optional = {
            "slurm_partition": self.partition,
            "gpus_per_node": self.gpus_per_node,
            "cpus_per_task": self.cpus_per_task,
            "slurm_array_parallelism": self.array_parallelism,
        }
        return {
            "timeout_min": self.minutes,
            "name": "semilearn_ext",
            # requeue: also after a node failure or a preemption without a signal.
            "slurm_additional_parameters": {"requeue": True, **self.sbatch},
            **{name: value for name, value in optional.items() if value is not None},
        }


def submit(chosen: Sequence[Job], request: Request, logs: Path) -> list[str]:
    """Submit all jobs as one array and return their SLURM ids in the same order."""
    try:
        import submitit
    except ImportError:
        raise UserError('--launcher slurm needs submitit: pip install "semilearn_ext[slurm]"') from None
    if shutil.which("sbatch") is None:
        raise UserError("--launcher slurm: sbatch was not found; run this on a login node of the cluster")
    executor = submitit.AutoExecutor(folder=logs, cluster="slurm", slurm_max_num_timeout=10**6)
    executor.update_parameters(**request.parameters())
    try:
        with executor.batch():
            tasks = [
                executor.submit(Task(job.folder.resolve(), job.status.record.attempts, extensions.flags()))
                for job in chosen
            ]
    except submitit.core.utils.FailedJobError as error:
        raise UserError(f"SLURM rejected the jobs: {_last_line(str(error))}") from None
    return [task.job_id for task in tasks]


def _last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip()][-1]


def queued_ids() -> set[str]:
    """The ids of this user's queued and running SLURM jobs."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError("--launcher slurm: squeue was not found; run this on a login node of the cluster") from None
    if answer.returncode:
        raise UserError(f"squeue failed: {_last_line(answer.stderr or 'no reason given')}")
    return set(answer.stdout.split())


def minutes(text: str) -> int:
    """Parse SLURM's time formats (minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s), rounded up to whole minutes."""
    if not re.fullmatch(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}", text):
        raise ValueError(f"expected a time such as 90, 4:00:00 or 2-00:00:00, got {text!r}")
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, mins, secs = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, mins, secs = parts
    else:
        hours, mins, secs = 0, *(*parts, 0)[:2]
    total = int(days or 0) * 1440 + hours * 60 + mins + -(-secs // 60)
    if total < 1:
        raise ValueError(f"expected a time above zero, got {text!r}")
    return total


class Task:
    """One array task: starts the job's process and forwards SLURM's signals to it."""

    def __init__(self, folder: Path, attempts: int, flags: Sequence[str] = ()) -> None:
        self.folder = folder
        self.attempts = attempts
        """Number of attempts before this task was submitted."""
        self.flags = flags
        """Command-line options for the extensions that the job may run."""
        self.process: subprocess.Popen[bytes] | None = None
        self.told_to_stop = False

    def __call__(self) -> str:
        # SLURM sends SIGTERM to the job's own process too, which saves and stops.
        signal.signal(signal.SIGTERM, self._note_sigterm)
        deadline = time.monotonic() + 1.5 * SILENCE
        while True:
            status = jobs.read_status(self.folder)
            if status.state is State.DONE:
                return "done"
            if status.state is State.FAILED and status.record.attempts > self.attempts:
                raise RuntimeError(f"{self.folder}: failed: {status.record.reason}")
            if status.state is State.RUNNING:
                # The lock may belong to a process that was killed on another node; it becomes stale after a while.
                if time.monotonic() > deadline:
                    return f"is being trained by {status.holder}"
                time.sleep(_TICK)
                continue
            code = self._run(status.record.attempts + 1)
            if code not in (0, jobs.EXIT_LOCKED):
                raise RuntimeError(
                    f"the process ended with exit code {code}; see {RunFolder(self.folder).console_file}"
                )

    def _run(self, attempt: int) -> int:
        with files.open_to_append(RunFolder(self.folder).console_file) as console:
            self.process = subprocess.Popen(
                [*job_command(self.folder, attempt), *self.flags],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"OMP_NUM_THREADS": os.environ.get("SLURM_CPUS_PER_TASK", "1"), **os.environ},
                preexec_fn=_ignore_sigusr2,
            )
        self._wait(None)
        code = self.process.wait()
        if self.told_to_stop and code:
            # SLURM is about to kill this task, and will requeue it after a preemption.
            time.sleep(_KILL_TIMEOUT)
        return code

    def checkpoint(self) -> Any:
        """Called by submitit on SLURM's signal; the returned task is submitted again."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None:
            self.process.terminate()
            self._wait(_SAVE_TIMEOUT)
        return DelayedSubmission(Task(self.folder, self.attempts, self.flags))

    def _wait(self, seconds: float | None) -> None:
        """Wait for the process to end without reaping it, because a signal handler may call this while it waits."""
        assert self.process is not None
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            try:
                if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
            except ChildProcessError:
                return
            time.sleep(_TICK)

    def _note_sigterm(self, *_: Any) -> None:
        self.told_to_stop = True


def _ignore_sigusr2() -> None:
    """Ignore SLURM's signal near the time limit, which is meant for the task and not for the job's process."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
