"""Describe what a command would do, for ``--dry_run``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from semilearn_ext import training
from semilearn_ext.algorithms import requirements
from semilearn_ext.data.experiment import SSDGData, load_data
from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine.context import RunContext
from semilearn_ext.engine.device import choose_device, choose_precision, describe
from semilearn_ext.errors import UserError, counted
from semilearn_ext.registry import PLUGINS, method_title
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.ownership import check_content
from semilearn_ext.settings import Settings, config_hash, with_values
from semilearn_ext.settings.convert import as_text
from semilearn_ext.settings.domains import domains_of, targets_of

_STEPS = {"usb": "USB's step", "reference": "the SSDG benchmark's step (reference)"}


def describe_plan(settings: Settings) -> str:
    """Describe the method, data, batch, parameters and learning rates, schedule and device, and every run."""
    runs = [with_values(settings, target_domain=target) for target in targets_of(settings)]
    data = [load_data(run) for run in runs]
    for run, part in zip(runs, data, strict=True):
        requirements.check(run, part)
    lines = [*_method(settings), *_data(settings, data[0]), *_training(runs[0], data[0]), "runs"]
    lines += [_run(run, part) for run, part in zip(runs, data, strict=True)]
    return "\n".join(lines)


def _method(settings: Settings) -> Iterator[str]:
    options = ", ".join(f"{name} {as_text(value)}" for name, value in settings.options.items()) or "none"
    yield f"method      {method_title(settings.base, settings.plugins, settings.variant)}, in {_STEPS[settings.step]}"
    yield f"  options     {options}"
    for name in settings.plugins:
        weights = [option for option in PLUGINS.get(name, "plug-in").options if option.endswith("_weight")]
        for weight in weights:
            value = settings.options[weight]
            yield (
                f"  {weight:<11} {value:g} x plugin_weight {settings.plugin_weight:.3g} = "
                f"{value * settings.plugin_weight:.3g} in the loss"
            )


def _data(settings: Settings, data: SSDGData) -> Iterator[str]:
    sources, unlabelled = len(data.sources), settings.batch_size * settings.uratio
    yield (
        f"data        {settings.dataset}: {len(domains_of(settings))} domains, {len(data.classes)} classes, "
        f"{counted(settings.labels_per_class, 'label')} per class and source domain; scale: {data.scale}"
    )
    yield (
        f"batch       {settings.batch_size} labelled + {unlabelled} unlabelled images per step, "
        f"{settings.batch_size // sources} + {unlabelled // sources} from each of {sources} source domains, "
        f"{settings.img_size} x {settings.img_size} pixels"
    )
    for note in data.notes():
        yield f"note        {note}"


def _training(settings: Settings, data: SSDGData) -> Iterator[str]:
    device = choose_device(settings)
    yield f"network     {settings.net}, {'pretrained' if settings.pretrained else 'from scratch'}"
    yield from _parameters(RunContext(settings, data, device, ProcessGroup(), folder=None))
    yield (
        f"schedule    {settings.lr_schedule}, updated every {settings.lr_step}; {settings.optim}, "
        f"weight decay {settings.weight_decay:g}"
    )
    yield f"device      {describe(device)}, {choose_precision(settings, device).name}"
    yield f"seed        {settings.seed}, config hash {config_hash(settings)}"


def _parameters(context: RunContext) -> Iterator[str]:
    """Count the parameters of the built algorithm, which may replace the classifier or add heads. Downloads nothing."""
    settings = context.settings
    if settings.pretrained and not settings.pretrain_path:
        context = replace(context, settings=with_values(settings, pretrained=False))
    for group in training.build(context, logger=training.silent_logger()).optimizer.param_groups:
        count = sum(parameter.numel() for parameter in group["params"])
        decay = "" if group["weight_decay"] else ", no weight decay"
        yield f"  {group['name']:<14} {count:,} parameters, learning rate {group['initial_lr']:g}{decay}"


def _run(settings: Settings, data: SSDGData) -> str:
    path = run_path(settings)
    return (
        f"  {settings.target_domain:<14} {data.total_steps} iterations, {data.steps_per_epoch} per "
        f"epoch; {len(data.split.labelled)} labelled, {len(data.split.unlabelled)} unlabelled, "
        f"{len(data.split.source_val)} validation, {len(data.split.target)} test images; "
        f"{_state(settings)}: {path}"
    )


def _state(settings: Settings) -> str:
    """What would happen to the run, which counts as finished only if it is the same experiment."""
    folder = RunFolder(run_path(settings))
    if settings.overwrite:
        return "will be trained"
    try:
        check_content(folder, settings)
    except UserError as error:
        return f"cannot be run, because {str(error).removeprefix(f'{folder.path}: ')}"
    if folder.is_finished:
        return "already finished"
    return "will be resumed" if folder.checkpoint_files() else "will be trained"
