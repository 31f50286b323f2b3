"""One step of two processes that share a batch, and of one process with the joint batch; for test_processes.

The processes are forks of this one, which saves each of them the import of torch. ``torchrun`` has a separate test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing

from semilearn_ext import distributed, training
from semilearn_ext.engine.context import make_context
from semilearn_ext.settings import Settings

WORLD = 2


def run(settings: list[Settings], folder: Path) -> list[list[dict[str, Any]]]:
    """For each of the settings, the result of :func:`step` in each of two processes."""
    multiprocessing.start_processes(_process, (settings, folder), nprocs=WORLD, start_method="fork")
    return [[torch.load(folder / f"{number}_{rank}.pt") for rank in range(WORLD)] for number in range(len(settings))]


def _process(rank: int, settings: list[Settings], folder: Path) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    for number, case in enumerate(settings):
        torch.save(step(case, training.join_processes(case)), folder / f"{number}_{rank}.pt")
    distributed.destroy()


def step(settings: Settings, group: distributed.ProcessGroup, batch: dict[str, Tensor] | None = None) -> dict[str, Any]:
    """The batch of one step, and the gradient that the optimizer sees."""
    algorithm: Any = training.build(make_context(settings, group=group))
    # In float64, so that batch norm and ReLU do not amplify rounding errors.
    algorithm.model.double()
    gradient: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        gradient.update({name: p.grad.clone() for name, p in algorithm.model.named_parameters()})

    algorithm.optimizer.register_step_pre_hook(keep)
    batch = batch or own_batch(algorithm)
    algorithm.step(**{name: value.double() if value.is_floating_point() else value for name, value in batch.items()})
    algorithm.call_hook("after_train_step", "ParamUpdateHook")
    return {"batch": batch, "gradient": gradient, "unsup_loss": float(algorithm.log_dict["train/unsup_loss"])}


def own_batch(algorithm: Any) -> dict[str, Tensor]:
    labelled, unlabelled = (next(iter(algorithm.loader_dict[name])) for name in ("train_lb", "train_ulb"))
    return {**labelled, **unlabelled}


def joined(shares: list[dict[str, Any]]) -> dict[str, Tensor]:
    """The joint batch."""
    return {name: torch.cat([share["batch"][name] for share in shares]) for name in shares[0]["batch"]}
