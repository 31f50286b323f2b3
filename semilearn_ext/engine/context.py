"""The context of a run, and USB's own arguments, which are derived from it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from semilearn_ext.data.experiment import SSDGData, load_data
from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine.device import choose_device, choose_precision
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings import Settings
from semilearn_ext.settings.fingerprint import run_identity


@dataclass(frozen=True)
class RunContext:
    """One run: settings, data, device, process group, and the folder to write to (None to write nothing)."""

    settings: Settings
    data: SSDGData
    device: torch.device
    group: ProcessGroup
    folder: RunFolder | None
    identity: Mapping[str, Any] = field(default_factory=dict)
    """What distinguishes this run from all others. Checkpoints contain it, and one of another run is not restored."""


def make_context(
    settings: Settings, *, folder: RunFolder | None = None, group: ProcessGroup | None = None
) -> RunContext:
    group = group or ProcessGroup()
    device = choose_device(settings, group.local_rank)
    with group.one_after_another():
        data = load_data(settings, group.world_size)
    return RunContext(settings, data, device, group, folder, run_identity(settings) if folder is not None else {})


class UsbArgs(Namespace):
    """USB's arguments. Our context is not part of ``vars(args)``, which USB passes to its experiment trackers."""

    __slots__ = ("context",)


def usb_args(context: RunContext) -> UsbArgs:
    """The arguments that ``semilearn.algorithms.get_algorithm`` expects, with our context as ``args.context``."""
    settings, data = context.settings, context.data
    distributed = context.group.distributed
    usb = {
        "algorithm": registry_name(settings.algorithm, settings.step),
        "context": context,
        "num_classes": len(data.classes),
        "num_domains": len(data.sources),
        "num_labels": len(data.split.labelled),
        "ulb_num_labels": len(data.split.unlabelled),
        "epoch": data.epochs,
        "num_train_iter": data.total_steps,
        "num_eval_iter": data.eval_every,
        "use_pretrain": settings.pretrained,
        "amp": choose_precision(settings, context.device).dtype is not None,
        "save_name": "/".join(context.folder.path.parts[-5:]) if context.folder else settings.algorithm,
        "resume": False,
        "gpu": context.device.index,
        "rank": context.group.rank,
        "world_size": context.group.world_size,
        "distributed": distributed,
        "multiprocessing_distributed": distributed,
        "include_lb_to_ulb": False,
        "imb_algorithm": None,
        "lb_imb_ratio": 1,
        "ulb_imb_ratio": 1,
    }
    return UsbArgs(**{**settings.flat(), **usb})


def registry_name(algorithm: str, step: str = "usb") -> str:
    """The key in USB's registry: ``ssdg_<algorithm>``, because the names without a prefix run on stock USB."""
    return f"ssdg_{algorithm}" if step == "usb" else f"ssdg_{algorithm}@{step}"
