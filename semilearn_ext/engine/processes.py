"""Several processes started by ``torchrun``: who this one is, and the few things they agree on.

Gradients are averaged by one all-reduce after the backward pass rather than by wrapping the network in
DistributedDataParallel: USB's algorithms make several forward passes a step, swap weights in between, and
save the network under its own names, and none of that has to know about other processes this way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Processes:
    """This process among all of them. One process is rank 0 of 1."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.world > 1

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum ``tensor`` over all processes, in place."""
        if self.several:
            dist.all_reduce(tensor)
        return tensor

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes; one that has none counts as zero."""
        if not self.several:
            return
        trained = [p for p in parameters if p.requires_grad]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in trained])
        self.sum(flat).div_(self.world)
        for parameter, mean in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
            parameter.grad = mean.view_as(parameter)

    def agree(self, yes: bool, device: torch.device) -> bool:
        """True everywhere when it is true in any process."""
        if not self.several:
            return yes
        return bool(self.sum(torch.tensor(float(yes), device=device)) > 0)

    def gather(self, value: Any) -> list[Any]:
        """``value`` of every process, by rank."""
        if not self.several:
            return [value]
        gathered: list[Any] = [None] * self.world
        dist.all_gather_object(gathered, value)
        return gathered

    def broadcast(self, model: nn.Module) -> None:
        """Start everywhere from rank 0's weights."""
        if self.several:
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.data, src=0)

    def wait(self) -> None:
        if self.several:
            dist.barrier()


def from_environment() -> Processes:
    """What ``torchrun`` says in the environment; a single process without it."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    return Processes(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")))


def join(processes: Processes, device: torch.device) -> None:
    """Connect to the others: NCCL between GPUs, gloo elsewhere."""
    if processes.several and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
