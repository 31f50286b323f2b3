"""Plan and run many experiments, on this machine or on a SLURM cluster.

  ssdg sweep --c FILE --algorithms a,b --targets all --seeds 1-5 --labels 2,5 --jobs 2     train all unfinished runs
  ssdg sweep --c FILE FILE --seeds 1-5 --gpus 0,1 --jobs_per_gpu 2                          several configs, two GPUs
  ssdg sweep --c FILE --seeds 1-5 --launcher slurm --partition gpu --time 4:00:00 --gpus_per_node 1
  ssdg sweep ... --dry_run                                                                  list the runs and exit
  ssdg sweep status DIR                                                                     show the progress
  ssdg sweep retry DIR, or ssdg sweep retry --c FILE ...                                    run failed runs again

Re-run the same command to continue an interrupted sweep: finished runs are skipped, interrupted ones resume from
their checkpoint, and failed ones are run again only with 'retry'. Several sweeps may share one folder; no run is
trained twice.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from semilearn_ext.commands.argument_types import add_trust, numbers, pair, positive, words
from semilearn_ext.errors import UserError, counted
from semilearn_ext.runs import job as jobs
from semilearn_ext.runs import progress, sweep
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.job import Job, State
from semilearn_ext.settings import Settings
from semilearn_ext.settings.command_line import add_settings
from semilearn_ext.settings.config_files import find_config
from semilearn_ext.settings.convert import convert
from semilearn_ext.settings.extensions import load_extension
from semilearn_ext.settings.load import COMMAND_LINE

HELP = "plan and run many experiments, here or on SLURM"
_AXES = {"algorithms": "algorithm", "targets": "target_domain", "seeds": "seed", "labels": "labels_per_class"}
_LOCAL_OPTIONS = {"jobs", "gpus", "jobs_per_gpu"}
_SLURM_OPTIONS = {"partition", "time", "gpus_per_node", "cpus_per_task", "array_parallelism", "sbatch"}
LAUNCHER_OPTIONS = {"command", "call", "launcher", "dry_run", *_LOCAL_OPTIONS, *_SLURM_OPTIONS}
"""Parsed arguments that are not settings, for every command that launches runs."""
_NOT_SETTINGS = {"action", "folder", "c", "trust", *_AXES, *LAUNCHER_OPTIONS}


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "ssdg sweep [status | retry] [DIR] [--c FILE ...] [--key value ...]"
    parser.add_argument(
        "action", nargs="?", choices=("run", "status", "retry"), default="run", help="what to do (default: run)"
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="for status and retry: the save_dir of a sweep"
    )
    grid = parser.add_argument_group("which runs")
    grid.add_argument(
        "--c", nargs="+", action="extend", type=find_config, default=[], metavar="FILE", help="config files"
    )
    grid.add_argument(
        "--algorithms",
        type=words,
        default=[],
        metavar="A,B",
        help="algorithms; usb stands for all of USB's, usb_upcsc for those that support UPCSC, with it "
        "(default: those of the configs)",
    )
    grid.add_argument("--targets", type=words, default=[], metavar="A,B", help="target domains, or all")
    grid.add_argument("--seeds", type=numbers, default=[], metavar="1-5", help="seeds, as in 1-5 or 1,3")
    grid.add_argument(
        "--labels", type=numbers, default=[], metavar="10,5", help="numbers of labels per class and source domain"
    )
    add_launcher(parser)
    add_trust(parser)
    add_settings(parser)
    parser.set_defaults(call=run)


def add_launcher(parser: argparse.ArgumentParser) -> None:
    """Add the options for where the planned runs are trained."""
    local = parser.add_argument_group("where they run")
    local.add_argument(
        "--launcher", choices=("local", "slurm"), default="local", help="this machine or a cluster (default: local)"
    )
    local.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="number of parallel runs (default: 1, or all GPU slots when --gpus is given)",
    )
    local.add_argument(
        "--gpus", type=words, default=[], metavar="0,1", help="GPUs to use, counted among the visible ones"
    )
    local.add_argument("--jobs_per_gpu", type=positive, metavar="N", help="parallel runs per GPU (default: 1)")
    slurm = parser.add_argument_group("resources per run with --launcher slurm")
    slurm.add_argument("--partition", metavar="NAME", help="partition (default: that of the cluster)")
    slurm.add_argument(
        "--time",
        type=minutes,
        metavar="H:M:S",
        help="time limit per job; the run is requeued when the limit is reached",
    )
    slurm.add_argument("--gpus_per_node", type=positive, metavar="N", help="GPUs per run: 1 (default: none)")
    slurm.add_argument(
        "--cpus_per_task",
        type=positive,
        metavar="N",
        help="CPU cores per run (default: as many as it can use)",
    )
    slurm.add_argument("--array_parallelism", type=positive, metavar="N", help="number of parallel runs (default: 256)")
    slurm.add_argument("--sbatch", nargs="+", type=pair, default=[], metavar="KEY=VALUE", help="further sbatch options")


def run(arguments: argparse.Namespace) -> None:
    if arguments.action == "status":
        print(status(_folder(arguments)))
        return
    retry = arguments.action == "retry"
    if arguments.folder:
        for file in words(arguments.extend) if hasattr(arguments, "extend") else ():
            load_extension(file, f"{COMMAND_LINE}: --extend")
    plan = _plan_of_folder(arguments.folder) if retry and arguments.folder else plan_of_grid(grid(arguments))
    launch(arguments, plan, retry)


def launch(arguments: argparse.Namespace, plan: Plan, retry: bool = False) -> None:
    """Train unfinished runs, on this machine or on SLURM; with ``--dry_run``, only list them."""
    states = {State.FAILED} if retry else {State.PENDING, State.QUEUED, State.STOPPED, State.RUNNING}
    chosen = [job for job in plan.jobs if job.status.state in states]
    dry_run = is_dry_run(arguments)
    if dry_run:
        print("\n".join(f"{job.status.state.value:<8} {job.folder}" for job in plan.jobs))
    print(f"{sweep.count(plan.jobs)}; {len(chosen)} to run", flush=True)
    if not dry_run:
        (_run_on_slurm if arguments.launcher == "slurm" else _run_here)(arguments, plan, chosen)


def is_dry_run(arguments: argparse.Namespace) -> bool:
    return bool(convert(getattr(arguments, "dry_run", False), bool, f"{COMMAND_LINE}: --dry_run"))


class Plan(NamedTuple):
    jobs: Sequence[Job]
    settings: Mapping[Path, Settings]
    """The settings of every run folder; empty if the runs were planned earlier."""
    save_dir: Path

    def write(self, chosen: Sequence[Job]) -> None:
        for job in chosen:
            if job.folder in self.settings:
                jobs.write_plan(job.folder, self.settings[job.folder])


def plan_of_grid(grid: sweep.Grid) -> Plan:
    return plan_of(sweep.experiments(grid))


def plan_of(experiments: Mapping[Path, Settings]) -> Plan:
    return Plan(sweep.read_jobs(experiments), experiments, Path(next(iter(experiments.values())).save_dir))


def _plan_of_folder(folder: Path) -> Plan:
    return Plan(sweep.find(folder), {}, folder)


def _run_here(arguments: argparse.Namespace, plan: Plan, chosen: Sequence[Job]) -> None:
    from semilearn_ext.commands.job import train
    from semilearn_ext.runs import local
    from semilearn_ext.runs.process_pool import by_command, by_fork, can_fork

    _refuse(arguments, _SLURM_OPTIONS, "an option of --launcher slurm")
    gpus = local.visible_gpus(arguments.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    slots = local.assign_slots(arguments.jobs, gpus, arguments.jobs_per_gpu)
    if gpus and can_fork():
        warnings.warn("--gpus: no NVIDIA or AMD GPU driver was found; the runs will use the CPU", stacklevel=1)
    plan.write(chosen)
    if chosen:
        os.environ.setdefault("OMP_NUM_THREADS", str(local.threads_per_run(len(slots))))
        local.run(chosen, slots, by_fork(train, preload="semilearn_ext.training") if can_fork() else by_command())
    report([Job.read(job.folder) for job in plan.jobs], plan.save_dir)


def _run_on_slurm(arguments: argparse.Namespace, plan: Plan, chosen: Sequence[Job]) -> None:
    """Submit the jobs that are not in the queue yet, and return."""
    from semilearn_ext.runs import slurm

    _refuse(arguments, _LOCAL_OPTIONS, "an option of --launcher local")
    if arguments.time is None:
        raise UserError(f"{COMMAND_LINE}: --launcher slurm needs a time limit per job, as in --time 4:00:00")
    if (arguments.gpus_per_node or 1) > 1:
        raise UserError(
            f"{COMMAND_LINE}: --gpus_per_node {arguments.gpus_per_node}: a run uses one GPU, so the others would be "
            f"idle; use --gpus_per_node 1, with which several runs can share a node"
        )
    queue = slurm.queued_ids()
    new = [
        job for job in chosen if job.status.state is not State.RUNNING and jobs.read_queue_id(job.folder) not in queue
    ]
    if new:
        plan.write(new)
        request = slurm.Request(
            minutes=arguments.time,
            partition=arguments.partition,
            gpus_per_node=arguments.gpus_per_node,
            cpus_per_task=arguments.cpus_per_task or max(jobs.planned_cores(job.folder) for job in new),
            array_parallelism=arguments.array_parallelism,
            sbatch=dict(arguments.sbatch),
        )
        queue_ids = slurm.submit(new, request, plan.save_dir / slurm.LOGS)
        for job, queue_id in zip(new, queue_ids, strict=True):
            jobs.write_queue_id(job.folder, queue_id)
        print(f"Queued {counted(len(new), 'run')} as SLURM job {queue_ids[0].split('_')[0]}")
        print(f"Check progress with: ssdg sweep status {plan.save_dir}")
    if len(new) < len(chosen):
        print(f"Already queued or running: {counted(len(chosen) - len(new), 'run')}")


def _refuse(arguments: argparse.Namespace, options: set[str], reason: str) -> None:
    for name in sorted(options):
        if getattr(arguments, name):
            raise UserError(f"{COMMAND_LINE}: --{name} is {reason}")


def report(planned: Sequence[Job], save_dir: Path) -> None:
    """Print unfinished runs with the reason, the counts, and what to do next. Unfinished runs are an error."""
    unfinished = [job for job in planned if job.status.state is not State.DONE]
    for job in unfinished:
        print(describe_problem(job))
    done = [job.folder for job in planned if job.status.state is State.DONE]
    if lines := progress.accuracies(done):
        print("Accuracy on the target domain after the last iteration, in percent:")
        print("\n".join(f"  {line}" for line in lines))
    print(sweep.count(planned))
    print(f"The runs are in {save_dir}")
    if done:
        print(f"Write tables with: ssdg tables {save_dir}")
    failed = sum(job.status.state is State.FAILED for job in unfinished)
    if failed:
        raise UserError(
            f"{failed} of {len(planned)} runs failed (see above); run them again with: ssdg sweep retry {save_dir}"
        )
    if unfinished:
        raise UserError(f"{len(unfinished)} of {len(planned)} runs are unfinished; re-run the same command to continue")


def describe_problem(job: Job) -> str:
    """Why a run is unfinished: its state, the reason, and the last lines of its output."""
    reason = job.status.record.reason
    lines = [f"{job.status.state.value}: {job.folder}{': ' if reason else ''}{reason}"]
    output = jobs.console_tail(job.folder)
    if output:
        lines += [f"  last lines of {RunFolder(job.folder).console_file.name}:", *(f"    {line}" for line in output)]
    return "\n".join(lines)


def status(folder: Path) -> str:
    """One line per active run, the details of failed and stopped ones, and the counts."""
    runs = sweep.find(folder)
    lines = []
    for job in runs:
        if job.status.state is State.RUNNING:
            reached = progress.reached(job.folder)
            lines.append(f"running: {job.folder} ({job.status.holder}{', ' if reached else ''}{reached})")
        elif job.status.state in (State.FAILED, State.STOPPED):
            lines.append(describe_problem(job))
    return "\n".join([*lines, sweep.count(runs)])


def _folder(arguments: argparse.Namespace) -> Path:
    if arguments.folder is None:
        raise UserError(f"{COMMAND_LINE}: {arguments.action} needs a folder: ssdg sweep {arguments.action} DIR")
    folder: Path = arguments.folder
    return folder


def grid(arguments: argparse.Namespace) -> sweep.Grid:
    if arguments.folder is not None:
        raise UserError(
            f"{COMMAND_LINE}: unexpected argument {str(arguments.folder)!r}; set the folder of the runs with --save_dir"
        )
    overrides = {name: value for name, value in vars(arguments).items() if name not in _NOT_SETTINGS}
    for plural, singular in _AXES.items():
        if getattr(arguments, plural) and singular in overrides:
            raise UserError(f"{COMMAND_LINE}: --{plural} and --{singular} are both given; use one of them")
    return sweep.Grid(
        configs=arguments.c,
        overrides=overrides,
        algorithms=arguments.algorithms,
        targets=arguments.targets,
        seeds=arguments.seeds,
        labels=arguments.labels,
    )


def check_not_given(overrides: Mapping[str, Any], names: Collection[str], command: str) -> None:
    """Raise an error for settings that ``command`` chooses itself and would ignore."""
    for name in overrides:
        if name in names:
            raise UserError(f"{COMMAND_LINE}: --{name}: {command} chooses it; drop the option (ssdg {command} --help)")


def minutes(text: str) -> int:
    from semilearn_ext.runs import slurm

    try:
        return slurm.minutes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
