"""Run the jobs of a sweep on this machine, in parallel processes with one GPU assigned to each."""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from semilearn_ext.errors import Interrupted, UserError, counted, printable
from semilearn_ext.runs import progress
from semilearn_ext.runs.job import Job, State
from semilearn_ext.runs.process_pool import Outcome, Pool, Start

TICK = 0.2
REREAD = 2.0
"""Seconds between two updates of the progress of running jobs."""
SHOWN = 4
"""Number of running jobs in the live display."""


def assign_slots(jobs: int | None, gpus: Sequence[str], jobs_per_gpu: int | None) -> list[str | None]:
    """One slot per parallel run: the GPU it uses, or None for the default device.

    Slots alternate between GPUs, so that fewer runs than slots are still spread over all GPUs.
    """
    if not gpus and jobs_per_gpu is not None:
        raise UserError("--jobs_per_gpu: list the GPUs with --gpus, as in --gpus 0,1")
    if len(set(gpus)) != len(gpus):
        raise UserError(f"--gpus: {','.join(gpus)} lists a GPU twice; use --jobs_per_gpu to share one between runs")
    if not gpus:
        return [None] * (jobs or 1)
    slots: list[str | None] = [gpu for _ in range(jobs_per_gpu or 1) for gpu in gpus]
    return slots[:jobs]


def visible_gpus(gpus: Sequence[str], visible: str | None) -> list[str]:
    """The values of ``CUDA_VISIBLE_DEVICES`` for runs on ``gpus``.

    As in CUDA, numbers count visible GPUs: if only GPUs 2 and 3 are visible, 0 is GPU 2. Whatever follows a name
    that is not a GPU's, such as -1 or SLURM's NoDevFiles, is not visible.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES`` of this process; None if all GPUs are visible.
    """
    if visible is None:
        return list(gpus)
    names = list(itertools.takewhile(_names_a_gpu, (gpu.strip() for gpu in visible.split(","))))
    by_name = {**{gpu: gpu for gpu in names if not gpu.isdecimal()}, **{str(k): gpu for k, gpu in enumerate(names)}}
    for gpu in gpus:
        if gpu not in by_name:
            raise UserError(
                f"--gpus: there is no GPU {gpu}; with CUDA_VISIBLE_DEVICES={visible}, {len(names)} are "
                f"visible, numbered from 0"
            )
    return [by_name[gpu] for gpu in gpus]


def _names_a_gpu(name: str) -> bool:
    """By number, or by its UUID, which may be cut short."""
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


def threads_per_run(slots: int) -> int:
    """An equal share of the available CPU cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // slots)


def run(planned: Sequence[Job], slots: Sequence[str | None], start: Start) -> dict[Path, Outcome]:
    """Run all jobs and return the outcome of each, by folder.

    The first Ctrl-C or SIGTERM asks the jobs to save and stop, the second kills them. Both raise Interrupted.
    """
    pool = Pool(planned, slots, start)
    started = time.monotonic()
    running = _Progress()
    with _stop_requests() as stop, _progress_bar(len(planned)) as bar:
        while pool.unfinished:
            if not stop.requested:
                pool.recheck_locked()
                for job in pool.start():
                    _print(f"started  {job.title}")
                    if stop.requested:
                        break
            for job, outcome, seconds in pool.reap():
                details = outcome.reason or (progress.final(job.folder) if outcome.state is State.DONE else "")
                suffix = f": {details}" if details else ""
                _print(f"{outcome.state.value:<8} {job.title} ({tqdm.format_interval(seconds)}){suffix}")
                if bar.disable:
                    left = _time_left(pool, time.monotonic() - started)
                    _print("; ".join([f"         {summary(pool)}, about {left} left", *running.lines(pool)]))
            bar.n = len(pool.outcomes)
            if not bar.disable:
                bar.set_postfix_str("; ".join([summary(pool), *running.lines(pool)]))
            number = stop.take()
            if number is not None:
                _print(f"stopping {counted(len(pool.running), 'run')}; press Ctrl-C again to kill them")
                pool.send_signal(number)
            if stop.requested and not pool.running:
                break
            time.sleep(TICK)
    if stop.requested:
        raise Interrupted(
            f"stopped; {pool.count(State.DONE)} of {len(planned)} runs are done; re-run the same command to continue"
        )
    return pool.outcomes


def summary(pool: Pool) -> str:
    """``"2/9 done, 1 running, 1 failed, 5 pending"``."""
    counts = {
        "running": len(pool.running),
        "failed": pool.count(State.FAILED),
        "stopped": pool.count(State.STOPPED),
        "locked by other processes": len(pool.locked),
        "pending": len(pool.waiting),
    }
    done = f"{pool.count(State.DONE)}/{len(pool.outcomes) + pool.unfinished} done"
    return ", ".join([done, *(f"{count} {name}" for name, count in counts.items() if count)])


class _Progress:
    """The progress of the running jobs, read from their files every few seconds."""

    def __init__(self) -> None:
        self.read_at = -math.inf
        self.by_folder: dict[Path, str] = {}

    def lines(self, pool: Pool) -> list[str]:
        """``"pen/seed1: iteration 40, target 68.3%"`` for the first few runs that have been evaluated."""
        folders = [child.job.folder for child in pool.running[:SHOWN]]
        if time.monotonic() - self.read_at > REREAD:
            self.read_at = time.monotonic()
            self.by_folder = {folder: progress.reached(folder) for folder in folders}
        known = {folder: self.by_folder.get(folder, "") for folder in folders}
        return [f"{'/'.join(folder.parts[-3:])}: {text}" for folder, text in known.items() if text]


def _time_left(pool: Pool, elapsed: float) -> str:
    return str(tqdm.format_interval(elapsed / len(pool.outcomes) * pool.unfinished))


def _progress_bar(total: int) -> Any:
    """A progress bar on a terminal, nothing elsewhere."""
    tqdm.monitor_interval = 0  # no monitor thread, because this process forks
    bar_format = "{percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
    return tqdm(total=total, bar_format=bar_format, smoothing=0, disable=None, leave=False, dynamic_ncols=True)


def _print(line: str) -> None:
    tqdm.write(printable(line), file=sys.stderr)
    sys.stderr.flush()


class _StopRequests:
    """Counts Ctrl-C and SIGTERM."""

    def __init__(self) -> None:
        self.count = 0
        self.passed_on = 0

    @property
    def requested(self) -> bool:
        return self.count > 0

    def add(self, *_: Any) -> None:
        self.count += 1

    def take(self) -> signal.Signals | None:
        """The signal to send to the jobs now, if any: first SIGTERM, then SIGKILL."""
        if self.count == self.passed_on:
            return None
        self.passed_on = self.count
        return signal.SIGTERM if self.count == 1 else signal.SIGKILL


@contextmanager
def _stop_requests() -> Iterator[_StopRequests]:
    stop = _StopRequests()
    previous = {number: signal.signal(number, stop.add) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
