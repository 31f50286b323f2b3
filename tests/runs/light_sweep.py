"""A sweep whose jobs need no slow imports: everything is real except for the training.

    light_sweep.py SAVE_DIR TARGETS SEEDS STEPS [SLOTS]       plan the runs and run them
    light_sweep.py job FOLDER --attempt N                     the process of one job

With LIGHT_PRELOAD in the environment, jobs are forked after the module of that name has been imported.
A light run records its process and every step, fails if the target is ``street``, and stops on SIGTERM like a real one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from semilearn_ext.commands import job as job_command
from semilearn_ext.errors import Interrupted, UserError, exit_code_of
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs import local, sweep
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.job import State
from semilearn_ext.runs.ownership import claim
from semilearn_ext.runs.process_pool import by_command, by_fork
from semilearn_ext.runs.result import FORMAT
from semilearn_ext.settings import Settings

STEPS, STARTS = "steps.txt", "starts.txt"


def train(settings: Settings) -> None:
    folder = RunFolder(run_path(settings))
    claim(folder, settings)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
    with (folder.path / STARTS).open("a") as starts:
        starts.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
    if settings.target_domain == "street":
        raise UserError("the street is closed")
    steps = folder.path / STEPS
    while len(steps.read_text() if steps.exists() else "") < settings.num_train_iter:
        with steps.open("a") as file:
            file.write(".")
        if signals:
            raise Interrupted("stopped and saved")
        time.sleep(0.01)
    folder.write_result({"format": FORMAT, "seconds": 1.0})


def command(folder: Path, attempt: int) -> list[str]:
    return [sys.executable, __file__, "job", str(folder), "--attempt", str(attempt)]


def lighten() -> None:
    light: Any = ModuleType("semilearn_ext.training")
    light.run = train
    sys.modules["semilearn_ext.training"] = light


def run_job() -> None:
    lighten()
    job_command.run(argparse.Namespace(folder=Path(sys.argv[2]), attempt=int(sys.argv[4]), extend=[]))


def train_in_fork(folder: Path, attempt: int) -> int:
    lighten()
    return job_command.train(folder, attempt)


def run_sweep() -> None:
    save_dir, targets, seeds, steps, *slots = sys.argv[1:]
    overrides = {"save_dir": save_dir, "num_train_iter": steps, "algorithm": "supervised"}
    grid = sweep.Grid(overrides=overrides, targets=targets.split(","), seeds=[int(seed) for seed in seeds.split(",")])
    experiments = sweep.experiments(grid)
    chosen = [job for job in sweep.read_jobs(experiments) if job.status.state not in (State.DONE, State.FAILED)]
    for job in chosen:
        jobs.write_plan(job.folder, experiments[job.folder])
    preload = os.environ.get("LIGHT_PRELOAD")
    start = by_fork(train_in_fork, preload) if preload else by_command(command)
    outcomes = local.run(chosen, slots or [None, None], start)
    print(json.dumps({str(folder): [outcome.state.value, outcome.reason] for folder, outcome in outcomes.items()}))


if __name__ == "__main__":
    sys.exit(exit_code_of(run_job if sys.argv[1] == "job" else run_sweep))
