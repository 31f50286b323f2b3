"""What a command would do, in words: ``--dry_run``."""

from __future__ import annotations

from collections.abc import Mapping

from semilearn_ext import training
from semilearn_ext.algorithms import requirements
from semilearn_ext.data import catalog
from semilearn_ext.data.ssdg import load_data
from semilearn_ext.engine.context import RunContext
from semilearn_ext.engine.device import choose_device, choose_precision, describe
from semilearn_ext.engine.optim import parameter_groups
from semilearn_ext.engine.processes import Processes
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, config_hash, with_values
from semilearn_ext.settings.domains import domains_of, targets_of


def describe_plan(settings: Settings) -> str:
    """Data, targets, length, images a step, parameters and learning rates, device, folders."""
    benchmark = catalog.get_benchmark(settings)
    runs = [with_values(settings, target_domain=target) for target in targets_of(settings)]
    data = [load_data(run) for run in runs]
    for run, one in zip(runs, data, strict=True):
        requirements.check(run, one)
    first, device = data[0], choose_device(settings)
    precision = choose_precision(settings, device).dtype
    unlabelled = settings.batch_size * settings.uratio
    lines = [
        f"algorithm   {settings.algorithm} ({_shown(settings.options)})",
        f"data        {benchmark.name}: {len(domains_of(settings))} domains, {len(first.classes)} classes, "
        f"{settings.labels_per_class} labels a class and source domain; scale: {first.scale}",
        f"a step      {settings.batch_size} labelled + {unlabelled} unlabelled images, "
        f"{settings.batch_size // len(first.sources)} + {unlabelled // len(first.sources)} from each domain, "
        f"{settings.img_size}x{settings.img_size} pixels",
        f"network     {settings.net}, {'ImageNet weights' if settings.pretrained else 'from scratch'}",
        *_parameter_lines(RunContext(runs[0], first, device, Processes(), folder=None)),
        f"schedule    {settings.lr_schedule}, stepped every {settings.lr_step}; {settings.optim}, "
        f"weight decay {settings.weight_decay:g}",
        f"device      {describe(device)}, {'float32' if precision is None else str(precision).split('.')[-1]}",
        f"seed        {settings.seed}, config hash {config_hash(settings)}",
        "runs",
    ]
    for run, one in zip(runs, data, strict=True):
        lines.append(
            f"  {run.target_domain:<14} {one.total_steps} iterations = {one.epochs} epochs of "
            f"{one.steps_per_epoch}; {len(one.split.labelled)} labelled, {len(one.split.unlabelled)} unlabelled, "
            f"{len(one.split.source_val)} validation, {len(one.split.target)} test images; "
            f"{'finished' if RunFolder(run_path(run)).is_finished else 'to do'}: {run_path(run)}"
        )
    return "\n".join(lines)


def _parameter_lines(context: RunContext) -> list[str]:
    """Counted on the algorithm itself: some put a classifier of their own in the network, or heads on top."""
    lines = []
    for group in parameter_groups(training.build(context, logger=training.silent_logger()).model, context.settings):
        count = sum(parameter.numel() for parameter in group["params"])
        decay = "" if group["weight_decay"] else ", no weight decay"
        lines.append(f"  {group['name']:<14} {count:,} parameters, learning rate {group['lr']:g}{decay}")
    return lines


def _shown(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "no options"
