"""Training with several processes, started by ``torchrun``: the rank of this process and the collective operations.

Gradients are averaged by one all-reduce after the backward pass instead of by DistributedDataParallel. USB's algorithms
make several forward passes per step, swap weights in between and save the network under its own names; in this way none
of that code has to handle other processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather

from semilearn_ext.errors import UserError, shown


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process and the number of processes. A single process is rank 0 of 1."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    """Number of processes on this machine."""

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def distributed(self) -> bool:
        return self.world_size > 1

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over all processes, in place."""
        if self.distributed:
            dist.all_reduce(tensor)
        return tensor

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes; a missing gradient counts as zero."""
        if not self.distributed:
            return
        trained = [p for p in parameters if p.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in trained if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self.all_reduce(flat).div_(self.world_size)
        # Copied, so that gradients keep the memory format of the weights, which the optimizer's fused update needs.
        means = [
            mean.view(g.shape) for mean, g in zip(flat.split([g.numel() for g in gradients]), gradients, strict=True)
        ]
        torch._foreach_copy_(gradients, means)

    def any(self, flag: bool, device: torch.device) -> bool:
        """True in every process if ``flag`` is true in at least one of them."""
        if not self.distributed:
            return flag
        return bool(self.all_reduce(torch.tensor(float(flag), device=device)) > 0)

    def all_gather(self, value: Any) -> list[Any]:
        """The ``value`` of every process, ordered by rank."""
        if not self.distributed:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered

    def broadcast(self, model: nn.Module) -> None:
        """Give every process the weights of rank 0."""
        if self.distributed:
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.data, src=0)

    @contextmanager
    def one_after_another(self) -> Iterator[None]:
        """For work that the first process does for all others, such as decoding images into a cache.

        The first process enters this context alone, then the first process of every other machine, and then all others.
        """
        own_turn = 0 if self.is_main else 1 if self.local_rank == 0 else 2
        for turn in range(3):
            if turn == own_turn:
                yield
            self.barrier()

    def barrier(self) -> None:
        if self.distributed:
            dist.barrier()


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, ordered by rank. The gradient of a row comes from the losses of all processes.

    If every process computes the same loss from the gathered rows and the gradients of the weights are averaged over
    the processes, the result is the gradient of that loss in one process with the whole batch.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return rows
    return torch.cat(list(all_gather(rows.contiguous())))


def from_environment() -> ProcessGroup:
    """The process group in the environment variables set by ``torchrun``; a single process without them."""
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return ProcessGroup()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    given = {name: os.environ.get(name, "0") for name in names}
    numbers = [int(word) if re.fullmatch(r"[0-9]{1,9}", word) else -1 for word in given.values()]
    # Processes that are already connected do not need the address of the first one.
    is_complete = dist.is_initialized() or {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    if min(numbers) < 0 or numbers[0] >= numbers[1] or not is_complete:
        described = " ".join(f"{name}={shown(word)}" for name, word in given.items())
        raise UserError(f"{described}: not the environment variables of torchrun; unset RANK, or start with torchrun")
    return ProcessGroup(*numbers)


def init(group: ProcessGroup, device: torch.device) -> None:
    """Connect to the other processes: NCCL between GPUs, gloo elsewhere."""
    if group.distributed and not dist.is_initialized():
        on_gpu = device.type == "cuda"
        # The others wait while the first process decodes a dataset, which may exceed the default of ten minutes.
        dist.init_process_group(
            "nccl" if on_gpu else "gloo", timeout=timedelta(hours=3), device_id=device if on_gpu else None
        )


def destroy() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
