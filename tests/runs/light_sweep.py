"""A sweep whose jobs take no time to import: everything is real but for the training itself.

    light_sweep.py SAVE_DIR TARGETS SEEDS STEPS [PLACES]      plan the runs and run them
    light_sweep.py job FOLDER --attempt N                     what it starts for each

With LIGHT_PRELOAD in the environment, jobs are forks of a process that has imported the module of that name.
A light run writes down its process and every step, fails where the target is ``street``, and on SIGTERM stops as the
real one does.
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
from semilearn_ext.runs.display import Display
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.forks import forking
from semilearn_ext.runs.job import State
from semilearn_ext.settings import Settings

STEPS, STARTS = "steps.txt", "starts.txt"


def train(settings: Settings) -> None:
    folder = RunFolder(run_path(settings))
    folder.claim(settings)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    with (folder.path / STARTS).open("a") as starts:
        starts.write(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
    if settings.target_domain == "street":
        raise UserError("the street is closed")
    steps = folder.path / STEPS
    while len(steps.read_text() if steps.exists() else "") < settings.num_train_iter:
        with steps.open("a") as file:
            file.write(".")
        if asked:
            raise Interrupted("stopped and saved")
        time.sleep(0.01)
    folder.write_json("result.json", {"seconds": 1.0})


def command(folder: Path, attempt: int) -> list[str]:
    return [sys.executable, __file__, "job", str(folder), "--attempt", str(attempt)]


def lighten() -> None:
    light: Any = ModuleType("semilearn_ext.training")
    light.run = train
    sys.modules["semilearn_ext.training"] = light


def run_job() -> None:
    lighten()
    job_command.run(argparse.Namespace(folder=Path(sys.argv[2]), attempt=int(sys.argv[4])))


def train_in_fork(folder: Path, attempt: int) -> int:
    lighten()
    return job_command.train(folder, attempt)


def run_sweep() -> None:
    save_dir, targets, seeds, steps, *places = sys.argv[1:]
    overrides = {"save_dir": save_dir, "num_train_iter": steps, "algorithm": "supervised"}
    grid = sweep.Grid(overrides=overrides, targets=targets.split(","), seeds=[int(seed) for seed in seeds.split(",")])
    experiments = sweep.experiments(grid)
    chosen = [job for job in sweep.look_at(experiments) if job.status.state not in (State.DONE, State.FAILED)]
    for job in chosen:
        jobs.write(job.folder, experiments[job.folder])
    preload = os.environ.get("LIGHT_PRELOAD")
    start = forking(train_in_fork, preload) if preload else local.as_command(command)
    endings = local.run(chosen, places or [None, None], Display(), start=start)
    print(json.dumps({str(folder): [ending.state.value, ending.reason] for folder, ending in endings.items()}))


if __name__ == "__main__":
    sys.exit(exit_code_of(run_job if sys.argv[1] == "job" else run_sweep))
