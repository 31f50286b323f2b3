"""What a run brings along to USB's constructor, and USB's own argument names filled from it."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import torch

from semilearn_ext.data.ssdg import SSDGData, load_data
from semilearn_ext.engine.device import choose_device
from semilearn_ext.engine.processes import Processes
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings import Settings
from semilearn_ext.settings.usb_options import USB_OPTIONS


@dataclass(frozen=True)
class RunContext:
    """One run: settings, data, device, processes, and the folder to write to (None: nothing is written)."""

    settings: Settings
    data: SSDGData
    device: torch.device
    processes: Processes
    folder: RunFolder | None


def make_context(
    settings: Settings, *, folder: RunFolder | None = None, processes: Processes | None = None
) -> RunContext:
    processes = processes or Processes()
    device = choose_device(settings, processes.local_rank)
    return RunContext(settings, load_data(settings, processes.world), device, processes, folder)


class UsbArgs(Namespace):
    """USB's arguments. Our context is no part of ``vars(args)``, which USB hands to its trackers."""

    __slots__ = ("context",)


def usb_args(context: RunContext) -> UsbArgs:
    """The arguments that ``semilearn.algorithms.get_algorithm`` wants, ours included as ``args.context``."""
    settings, data = context.settings, context.data
    several = context.processes.several
    ours = settings.flat()
    usb = {
        "algorithm": registry_name(settings.algorithm, settings.step),
        "context": context,
        "num_classes": len(data.classes),
        "num_labels": len(data.split.labelled),
        "ulb_num_labels": len(data.split.unlabelled),
        "epoch": data.epochs,
        "num_train_iter": data.total_steps,
        "num_eval_iter": data.eval_every,
        "use_pretrain": settings.pretrained,
        "save_name": "/".join(context.folder.path.parts[-5:]) if context.folder else settings.algorithm,
        "resume": False,
        "gpu": context.device.index,
        "rank": context.processes.rank,
        "world_size": context.processes.world,
        "distributed": several,
        "multiprocessing_distributed": several,
        "include_lb_to_ulb": False,
        "imb_algorithm": None,
        "lb_imb_ratio": 1,
        "ulb_imb_ratio": 1,
    }
    return UsbArgs(**{**ours, **usb})


def registry_name(algorithm: str, step: str = "usb") -> str:
    """The key in USB's registry. USB's own names keep USB's own classes; ours beside them are ``ssdg_<name>``."""
    name = f"ssdg_{algorithm}" if algorithm in USB_OPTIONS else algorithm
    return name if step == "usb" else f"{name}@{step}"
