"""Runs a sweep's jobs on a cluster: one SLURM array, through submitit.

Every array task is a small process that starts the job's own and stands between it and SLURM. Near the time limit, or
when preempted, SLURM signals the task; it asks the job to save and stop, and has itself queued again. The job then goes
on from its checkpoint, on whichever node it gets.
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

from semilearn_ext.errors import UserError
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs.folder import CONSOLE_FILE
from semilearn_ext.runs.job import Job, State
from semilearn_ext.runs.local import job_command
from semilearn_ext.runs.lock import SILENCE

LOGS = "slurm"
"""The folder in ``save_dir`` where submitit keeps its files."""
_TICK = 0.5
_TIME_TO_SAVE = 60.0
"""Seconds that a job may take to save; SLURM gives 90 between its signal and the end."""
_TIME_TO_BE_KILLED = 300.0


@dataclass(frozen=True)
class Request:
    """What is asked of SLURM for every job. ``sbatch`` are further flags of sbatch's, by name."""

    minutes: int
    partition: str | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    array_parallelism: int | None = None
    sbatch: dict[str, str] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """As submitit calls them."""
        asked = {
            "slurm_partition": self.partition,
            "gpus_per_node": self.gpus_per_node,
            "cpus_per_task": self.cpus_per_task,
            "slurm_array_parallelism": self.array_parallelism,
        }
        return {
            "timeout_min": self.minutes,
            "name": "semilearn_ext",
            # requeue: also when a node fails, or when preemption sends no signal first.
            "slurm_additional_parameters": {"requeue": True, **self.sbatch},
            **{name: value for name, value in asked.items() if value is not None},
        }


def submit(chosen: Sequence[Job], request: Request, logs: Path) -> list[str]:
    """Put all jobs into SLURM's queue as one array; their ids there, in the same order."""
    try:
        import submitit
    except ImportError:
        raise UserError('--launcher slurm needs submitit: pip install "semilearn_ext[slurm]"') from None
    if shutil.which("sbatch") is None:
        raise UserError("--launcher slurm: there is no sbatch here; run this on the cluster's login node")
    executor = submitit.AutoExecutor(folder=logs, cluster="slurm", slurm_max_num_timeout=10**6)
    executor.update_parameters(**request.parameters())
    try:
        with executor.batch():
            queued = [executor.submit(Task(job.folder.resolve(), job.status.record.attempts)) for job in chosen]
    except submitit.core.utils.FailedJobError as error:
        raise UserError(f"SLURM refused the jobs: {_last_line(str(error))}") from None
    return [one.job_id for one in queued]


def _last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip()][-1]


def in_queue() -> set[str]:
    """The ids of this user's jobs that SLURM is to run or is running."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError("--launcher slurm: there is no squeue here; run this on the cluster's login node") from None
    if done.returncode:
        raise UserError(f"squeue does not answer: {_last_line(done.stderr or 'no reason given')}")
    return set(done.stdout.split())


def minutes(text: str) -> int:
    """SLURM's ways to write a time: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s. Rounded up to whole minutes."""
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
        raise ValueError(f"expected more than no time at all, got {text!r}")
    return total


class Task:
    """One array task: starts the job's process and passes SLURM's wishes on to it."""

    def __init__(self, folder: Path, attempts: int) -> None:
        self.folder = folder
        self.attempts = attempts
        """Attempts that had been made when it was planned."""
        self.process: subprocess.Popen[bytes] | None = None
        self.was_told = False

    def __call__(self) -> str:
        # SLURM sends SIGTERM to the job's own process too, which saves and stops.
        signal.signal(signal.SIGTERM, self._note_that_it_was_told)
        patience = time.monotonic() + 1.5 * SILENCE
        while True:
            status = jobs.status_of(self.folder)
            if status.state is State.DONE:
                return "done"
            if status.state is State.FAILED and status.record.attempts > self.attempts:
                raise RuntimeError(f"{self.folder}: failed: {status.record.reason}")
            if status.state is State.RUNNING:
                # Its last process, on another node, may be gone without a word: that shows after a while.
                if time.monotonic() > patience:
                    return f"is being trained by {status.holder}"
                time.sleep(_TICK)
                continue
            code = self._run(status.record.attempts + 1)
            if code not in (0, jobs.HELD):
                raise RuntimeError(f"{self.folder}: ended with exit code {code}; see its {CONSOLE_FILE}")

    def _run(self, attempt: int) -> int:
        with (self.folder / CONSOLE_FILE).open("ab") as console:
            self.process = subprocess.Popen(
                job_command(self.folder, attempt),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"OMP_NUM_THREADS": os.environ.get("SLURM_CPUS_PER_TASK", "1"), **os.environ},
                preexec_fn=_ignore_the_signal_for_tasks,
            )
        self._wait(None)
        code = self.process.wait()
        if self.was_told and code:
            # SLURM is about to kill this task, and to queue it again if that is what it meant.
            time.sleep(_TIME_TO_BE_KILLED)
        return code

    def checkpoint(self) -> Any:
        """submitit calls this on SLURM's signal and queues what it returns."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None:
            self.process.terminate()
            self._wait(_TIME_TO_SAVE)
        return DelayedSubmission(Task(self.folder, self.attempts))

    def _wait(self, seconds: float | None) -> None:
        """Until the process has ended, without taking its exit code: a signal may call this within itself."""
        assert self.process is not None
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            try:
                if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
            except ChildProcessError:
                return
            time.sleep(_TICK)

    def _note_that_it_was_told(self, *_: Any) -> None:
        self.was_told = True


def _ignore_the_signal_for_tasks() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
