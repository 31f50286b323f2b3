"""Runs a sweep's jobs on this machine: a process each, so many at a time, on the GPUs they were given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from semilearn_ext.errors import Interrupted, UserError
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs.display import Display, Tally, duration, summary_line
from semilearn_ext.runs.folder import CONSOLE_FILE
from semilearn_ext.runs.job import Job, State

TICK = 0.2
LOOK_AGAIN = 2.0
"""Seconds between two looks at what other processes are training."""

Command = Callable[[Path, int], list[str]]


class Process(Protocol):
    """A job at work, as ``subprocess.Popen`` is one."""

    def poll(self) -> int | None: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


Start = Callable[[Path, int, dict[str, str], Path], Process]
"""Starts the job planned in a folder, as its so-many-th attempt, in an environment, with a file for what it prints."""


def as_command(command: Command) -> Start:
    """Jobs as processes of their own from the beginning."""

    def start(folder: Path, attempt: int, environment: dict[str, str], console: Path) -> subprocess.Popen[bytes]:
        with console.open("ab") as said:
            return subprocess.Popen(
                command(folder, attempt),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which passes it on
            )

    return start


def job_command(folder: Path, attempt: int) -> list[str]:
    """What trains the run that was planned in ``folder``, unless somebody else has begun this attempt."""
    return [sys.executable, "-m", "semilearn_ext", "job", str(folder), "--attempt", str(attempt)]


def slots(jobs: int | None, gpus: Sequence[str], jobs_per_gpu: int | None) -> list[str | None]:
    """A place for every job that may run at a time: the GPU it gets, or None for whatever there is.

    GPUs are dealt in turn, so that fewer jobs than places still spread over all of them.
    """
    if not gpus and jobs_per_gpu is not None:
        raise UserError("--jobs_per_gpu: say which GPUs with --gpus 0,1")
    if len(set(gpus)) != len(gpus):
        raise UserError(f"--gpus: {','.join(gpus)} names one twice; several jobs share one by --jobs_per_gpu")
    if not gpus:
        return [None] * (jobs or 1)
    places: list[str | None] = [gpu for _ in range(jobs_per_gpu or 1) for gpu in gpus]
    return places[:jobs]


def environment(gpu: str | None, places: int, outside: Mapping[str, str]) -> dict[str, str]:
    """A job's environment: its GPU, and its share of the cores unless the user has said how many."""
    mine = dict(outside)
    mine.setdefault("OMP_NUM_THREADS", str(max(1, cores() // places)))
    if gpu is not None:
        mine["CUDA_VISIBLE_DEVICES"] = gpu
    return mine


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Ending:
    """How a job ended: done, failed or stopped, and why."""

    state: State
    reason: str = ""


@dataclass
class _Child:
    job: Job
    process: Process
    place: str | None
    began: float = field(default_factory=time.monotonic)


class Pool:
    """The jobs of one sweep and the processes that are at work on them.

    Other sweeps may be at work on the same ones: a job that somebody else holds is looked at again later, and one
    that somebody else has finished, or has tried in vain, is not run again.
    """

    def __init__(self, planned: Sequence[Job], places: Sequence[str | None], begin: Start) -> None:
        self.waiting = deque(planned)
        self.elsewhere: list[Job] = []
        self.free = deque(places)
        self.children: list[_Child] = []
        self.endings: dict[Path, Ending] = {}
        self.begin = begin
        self.places = len(places)
        self.looked = time.monotonic()

    @property
    def is_over(self) -> bool:
        return not (self.waiting or self.elsewhere or self.children)

    def start(self) -> Iterator[Job]:
        """Start as many jobs as there is room for."""
        while self.free and self.waiting:
            job = self.waiting.popleft()
            status = jobs.status_of(job.folder)
            if status.state is State.DONE:
                self.endings[job.folder] = Ending(State.DONE)
            elif status.state is State.RUNNING:
                self.elsewhere.append(job)
            elif status.state is State.FAILED and status.record.attempts > job.status.record.attempts:
                self.endings[job.folder] = Ending(State.FAILED, status.record.reason)
            else:
                self._spawn(job, status.record.attempts + 1)
                yield job

    def _spawn(self, job: Job, attempt: int) -> None:
        place = self.free.popleft()
        mine = environment(place, self.places, os.environ)
        process = self.begin(job.folder, attempt, mine, job.folder / CONSOLE_FILE)
        self.children.append(_Child(job, process, place))

    def reap(self) -> Iterator[tuple[Job, Ending, float]]:
        """The jobs that have ended since the last call, and how long they took."""
        for child in list(self.children):
            code = child.process.poll()
            if code is None:
                continue
            self.children.remove(child)
            self.free.append(child.place)
            if code == jobs.HELD:
                self.elsewhere.append(child.job)
                continue
            job = child.job
            self.endings[job.folder] = _ending(job.folder, code)
            yield job, self.endings[job.folder], time.monotonic() - child.began

    def look_elsewhere(self) -> None:
        """Now and then, take another look at what others hold."""
        if self.elsewhere and time.monotonic() - self.looked > LOOK_AGAIN:
            self.looked = time.monotonic()
            held: list[Job] = []
            for job in self.elsewhere:
                running = jobs.status_of(job.folder).state is State.RUNNING
                (held if running else self.waiting).append(job)
            self.elsewhere = held

    def signal(self, number: signal.Signals) -> None:
        for child in self.children:
            child.process.send_signal(number)

    def tally(self, total: int, seconds: list[float]) -> Tally:
        ended = [ending.state for ending in self.endings.values()]
        now = time.monotonic()
        return Tally(
            total=total,
            slots=self.places,
            done=ended.count(State.DONE),
            failed=ended.count(State.FAILED),
            stopped=ended.count(State.STOPPED),
            running={child.job.title: now - child.began for child in self.children},
            elsewhere=len(self.elsewhere),
            seconds=seconds,
        )


def _ending(folder: Path, code: int) -> Ending:
    status = jobs.status_of(folder)
    if status.state is State.DONE:
        return Ending(State.DONE)
    if status.state is State.FAILED:
        return Ending(State.FAILED, status.record.reason)
    if code < 0:
        return Ending(State.STOPPED, f"killed by {signal.Signals(-code).name}")
    if code == 130:
        return Ending(State.STOPPED, "stopped; it goes on from its checkpoint")
    return Ending(State.FAILED, f"its process ended with exit code {code}")


def run(
    planned: Sequence[Job],
    places: Sequence[str | None],
    display: Display,
    seconds: Sequence[float] = (),
    start: Start | None = None,
) -> dict[Path, Ending]:
    """Run all jobs and return how each ended, by folder. ``seconds``: how long such runs took before.

    The first Ctrl-C or SIGTERM asks the jobs to save and stop, the second kills them; then Interrupted is raised.
    """
    pool = Pool(planned, places, start or as_command(job_command))
    took = list(seconds)
    with _stop_requests() as stop:
        while not pool.is_over:
            if not stop.asked:
                pool.look_elsewhere()
                for job in pool.start():
                    display.line(f"started  {job.title}")
                    if stop.asked:
                        break
            for job, ending, spent in pool.reap():
                if ending.state is State.DONE:
                    took.append(spent)
                reason = f": {ending.reason}" if ending.reason else ""
                tally = pool.tally(len(planned), took)
                display.line(f"{ending.state.value:<8} {job.title} ({duration(spent)}){reason}")
                if not display.live:
                    display.line(f"         {summary_line(tally)}")
            display.show(pool.tally(len(planned), took))
            number = stop.take()
            if number is not None:
                display.line(f"stopping {len(pool.children)} runs; again to kill them")
                pool.signal(number)
            if stop.asked and not pool.children:
                break
            time.sleep(TICK)
    display.close()
    if stop.asked:
        done = sum(ending.state is State.DONE for ending in pool.endings.values())
        raise Interrupted(f"stopped; {done} of {len(planned)} runs are done; the same command goes on")
    return pool.endings


class _Stop:
    """Ctrl-C and SIGTERM, counted."""

    def __init__(self) -> None:
        self.count = 0
        self.passed_on = 0

    @property
    def asked(self) -> bool:
        return self.count > 0

    def ask(self, *_: Any) -> None:
        self.count += 1

    def take(self) -> signal.Signals | None:
        """The signal the jobs are to get now, if any: SIGTERM at first, then SIGKILL."""
        if self.count == self.passed_on:
            return None
        self.passed_on = self.count
        return signal.SIGTERM if self.count == 1 else signal.SIGKILL


@contextmanager
def _stop_requests() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
