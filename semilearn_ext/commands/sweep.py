"""``sweep``: many runs, planned, started, watched and continued.

  sweep --c FILE --algorithms a,b --targets all --seeds 1-5 --labels 10,5 --jobs 2    run what is not done yet
  sweep --c FILE FILE --seeds 1-5 --gpus 0,1 --jobs_per_gpu 2                         several configs, on two GPUs
  sweep --c FILE --seeds 1-5 --launcher slurm --partition gpu --time 4:00:00 --gpus_per_node 1        on a cluster
  sweep ... --dry_run                                                                 list the runs, start none
  sweep status DIR                                                                    how far they are
  sweep retry DIR, or sweep retry --c FILE ...                                        run those that failed again

The same command goes on where an interrupted sweep stopped: finished runs are skipped, stopped and killed ones are
continued from their checkpoint, failed ones are left to retry. Several sweeps on one folder share the work.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from semilearn_ext.errors import UserError
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs import sweep
from semilearn_ext.runs.folder import CONSOLE_FILE, RunFolder
from semilearn_ext.runs.job import Job, State
from semilearn_ext.settings import Settings
from semilearn_ext.settings.command_line import add_settings
from semilearn_ext.settings.convert import convert
from semilearn_ext.settings.load import COMMAND_LINE

HELP = "many runs: plan, start, watch, continue, retry"
_AXES = {"algorithms": "algorithm", "targets": "target_domain", "seeds": "seed", "labels": "labels_per_class"}
_HERE = {"jobs", "gpus", "jobs_per_gpu"}
_ON_SLURM = {"partition", "time", "gpus_per_node", "cpus_per_task", "array_parallelism", "sbatch"}
_OWN = {"command", "call", "action", "folder", "c", *_AXES, "launcher", *_HERE, *_ON_SLURM, "dry_run"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "python -m semilearn_ext sweep [status | retry] [DIR] [--c FILE ...] [--key value ...]"
    parser.add_argument("action", nargs="?", choices=("run", "status", "retry"), default="run", help="what to do [run]")
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="for status and retry: a sweep's save_dir")
    which = parser.add_argument_group("sweep: which runs")
    which.add_argument("--c", nargs="+", action="extend", type=Path, default=[], metavar="FILE", help="config files")
    which.add_argument("--algorithms", type=words, default=[], metavar="A,B", help="instead of the configs' own")
    which.add_argument("--targets", type=words, default=[], metavar="A,B", help="domains to leave out, or all")
    which.add_argument("--seeds", type=numbers, default=[], metavar="1-5", help="1-5 or 1,3")
    which.add_argument("--labels", type=numbers, default=[], metavar="10,5", help="labels a class and source domain")
    where = parser.add_argument_group("sweep: where they run")
    where.add_argument("--jobs", type=positive, metavar="N", help="runs at a time [1; with --gpus all their places]")
    where.add_argument("--gpus", type=words, default=[], metavar="0,1", help="GPUs to share")
    where.add_argument("--jobs_per_gpu", type=positive, metavar="N", help="runs at a time on each of them [1]")
    where.add_argument("--launcher", choices=("local", "slurm"), default="local", help="this machine, or a cluster")
    slurm = parser.add_argument_group("sweep: what each run gets, with --launcher slurm")
    slurm.add_argument("--partition", metavar="NAME", help="SLURM's partition [the cluster's own choice]")
    slurm.add_argument("--time", type=minutes, metavar="H:M:S", help="longest time in a row; then it is queued again")
    slurm.add_argument("--gpus_per_node", type=positive, metavar="N", help="GPUs [none]")
    slurm.add_argument("--cpus_per_task", type=positive, metavar="N", help="cores [1]")
    slurm.add_argument("--array_parallelism", type=positive, metavar="N", help="runs at a time [256]")
    slurm.add_argument("--sbatch", nargs="+", type=pair, default=[], metavar="KEY=VALUE", help="more flags of sbatch's")
    add_settings(parser)
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    if arguments.action == "status":
        print(status(_folder(arguments)))
        return
    retry = arguments.action == "retry"
    plan = _plan_of_folder(arguments.folder) if retry and arguments.folder else _plan_of_grid(grid(arguments))
    wanted = {State.FAILED} if retry else {State.LEFT, State.QUEUED, State.STOPPED, State.RUNNING}
    chosen = [job for job in plan.jobs if job.status.state in wanted]
    dry_run = convert(getattr(arguments, "dry_run", False), bool, f"{COMMAND_LINE}: --dry_run")
    if dry_run:
        print("\n".join(f"{job.status.state.value:<8} {job.folder}" for job in plan.jobs))
    print(f"{sweep.count(plan.jobs)}; {len(chosen)} to run", flush=True)
    if not dry_run:
        launch = _run_on_slurm if arguments.launcher == "slurm" else _run_here
        launch(arguments, plan, chosen)


class Plan(NamedTuple):
    jobs: Sequence[Job]
    settings: Mapping[Path, Settings]
    """By the run's folder, where they are not planned there already."""
    save_dir: Path

    def write(self, chosen: Sequence[Job]) -> None:
        for job in chosen:
            if job.folder in self.settings:
                jobs.write(job.folder, self.settings[job.folder])


def _plan_of_grid(asked: sweep.Grid) -> Plan:
    experiments = sweep.experiments(asked)
    return Plan(sweep.look_at(experiments), experiments, Path(next(iter(experiments.values())).save_dir))


def _plan_of_folder(folder: Path) -> Plan:
    return Plan(sweep.find(folder), {}, folder)


def _run_here(arguments: argparse.Namespace, plan: Plan, chosen: Sequence[Job]) -> None:
    from semilearn_ext.commands.job import train
    from semilearn_ext.runs import local
    from semilearn_ext.runs.display import Display
    from semilearn_ext.runs.forks import can_fork, forking

    _refuse(arguments, _ON_SLURM, "a flag for --launcher slurm")
    places = local.slots(arguments.jobs, arguments.gpus, arguments.jobs_per_gpu)
    plan.write(chosen)
    done = [RunFolder(job.folder).read_result() for job in plan.jobs if job.status.state is State.DONE]
    start = forking(train, "semilearn_ext.training") if can_fork() else None
    local.run(chosen, places, Display(), [result["seconds"] for result in done if "seconds" in result], start)
    report([jobs.look(job.folder) for job in plan.jobs], plan.save_dir)


def _run_on_slurm(arguments: argparse.Namespace, plan: Plan, chosen: Sequence[Job]) -> None:
    """Queue the jobs that are not queued yet, and return: the cluster does the rest."""
    from semilearn_ext.runs import slurm

    _refuse(arguments, _HERE, "a flag for --launcher local")
    if arguments.time is None:
        raise UserError(f"{COMMAND_LINE}: --time: say how long a run may take in a row, as in --time 4:00:00")
    request = slurm.Request(
        minutes=arguments.time,
        partition=arguments.partition,
        gpus_per_node=arguments.gpus_per_node,
        cpus_per_task=arguments.cpus_per_task,
        array_parallelism=arguments.array_parallelism,
        sbatch=dict(arguments.sbatch),
    )
    queue = slurm.in_queue()
    wanted = [
        job for job in chosen if job.status.state is not State.RUNNING and jobs.queued_as(job.folder) not in queue
    ]
    if wanted:
        plan.write(wanted)
        identities = slurm.submit(wanted, request, plan.save_dir / slurm.LOGS)
        for job, identity in zip(wanted, identities, strict=True):
            jobs.mark_queued(job.folder, identity)
        print(f"{len(wanted)} runs queued as {identities[0].split('_')[0]}")
        print(f"how far they are: python -m semilearn_ext sweep status {plan.save_dir}")
    if len(wanted) < len(chosen):
        print(f"{len(chosen) - len(wanted)} runs are queued or running already")


def _refuse(arguments: argparse.Namespace, flags: set[str], reason: str) -> None:
    for name in sorted(flags):
        if getattr(arguments, name):
            raise UserError(f"{COMMAND_LINE}: --{name} is {reason}")


def report(planned: Sequence[Job], save_dir: Path) -> None:
    """What is done, what is not and why, and what to do next. Anything unfinished is an error."""
    unfinished = [job for job in planned if job.status.state is not State.DONE]
    for job in unfinished:
        print(obituary(job))
    print(sweep.count(planned))
    if len(unfinished) < len(planned):
        print(f"tables: python -m semilearn_ext tables {save_dir}")
    failed = sum(job.status.state is State.FAILED for job in unfinished)
    if failed:
        raise UserError(f"{failed} of {len(planned)} runs failed, see above; again: sweep retry {save_dir}")
    if unfinished:
        raise UserError(f"{len(unfinished)} of {len(planned)} runs are not done; the same command goes on")


def obituary(job: Job) -> str:
    """Why a run is not done: its state, the reason, and the end of what it printed."""
    reason = job.status.record.reason
    lines = [f"{job.status.state.value}: {job.folder}{': ' if reason else ''}{reason}"]
    said = jobs.last_words(job.folder)
    if said:
        lines += [f"  the end of its {CONSOLE_FILE}:", *(f"    {line}" for line in said)]
    return "\n".join(lines)


def status(folder: Path) -> str:
    """A line for every run at work, more for those that failed or were stopped, and the counts."""
    found = sweep.find(folder)
    lines = []
    for job in found:
        if job.status.state is State.RUNNING:
            last = RunFolder(job.folder).read_metrics()[-1:]
            at = f", iteration {last[0]['iteration']}, target {last[0]['target/top1']:.1%}" if last else ""
            lines.append(f"running: {job.folder} ({job.status.holder}{at})")
        elif job.status.state in (State.FAILED, State.STOPPED):
            lines.append(obituary(job))
    return "\n".join([*lines, sweep.count(found)])


def _folder(arguments: argparse.Namespace) -> Path:
    if arguments.folder is None:
        raise UserError(f"{COMMAND_LINE}: which folder? sweep {arguments.action} DIR")
    folder: Path = arguments.folder
    return folder


def grid(arguments: argparse.Namespace) -> sweep.Grid:
    if arguments.folder is not None:
        raise UserError(f"{COMMAND_LINE}: {str(arguments.folder)!r} stands alone; the folder of runs is --save_dir DIR")
    overrides = {name: value for name, value in vars(arguments).items() if name not in _OWN}
    for several, one in _AXES.items():
        if getattr(arguments, several) and one in overrides:
            raise UserError(f"{COMMAND_LINE}: --{several} and --{one} say the same thing; give one of them")
    return sweep.Grid(
        configs=arguments.c,
        overrides=overrides,
        algorithms=arguments.algorithms,
        targets=arguments.targets,
        seeds=arguments.seeds,
        labels=arguments.labels,
    )


def words(text: str) -> list[str]:
    found = [word for word in text.replace(",", " ").split() if word]
    if not found:
        raise argparse.ArgumentTypeError("expected words with commas between them")
    return found


def numbers(text: str) -> list[int]:
    """``"1-5"``, ``"1,3"`` or ``"1-3,7"``."""
    found: list[int] = []
    for word in words(text):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"expected numbers such as 1-5 or 1,3, got {text!r}")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names no number: the first is above the last")
    return found


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above zero, got {text!r}")
    return int(text)


def minutes(text: str) -> int:
    from semilearn_ext.runs import slurm

    try:
        return slurm.minutes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return name.removeprefix("--"), value
