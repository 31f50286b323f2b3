"""One training step of stock USB in two processes, wrapped as USB's ``send_model_cuda`` wraps it; for test_wrappers."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from semilearn.core.utils import ALGORITHMS
from torch import Tensor, multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import default_collate

from tests.stock import toy

WORLD = 2


def run(configs: list[Namespace], folder: Path) -> list[list[dict[str, Tensor]]]:
    """For every config, the gradient of every parameter in each of two processes with half of the batch."""
    multiprocessing.start_processes(_process, (configs, folder), nprocs=WORLD, start_method="fork")
    return [[torch.load(folder / f"{number}_{rank}.pt") for rank in range(WORLD)] for number in range(len(configs))]


def _process(rank: int, configs: list[Namespace], folder: Path) -> None:
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    for number, config in enumerate(configs):
        config.distributed, config.multiprocessing_distributed = True, True
        config.rank, config.world_size = rank, WORLD
        algorithm = build(config)
        algorithm.model = DistributedDataParallel(algorithm.model, broadcast_buffers=False, find_unused_parameters=True)
        gradients = step(algorithm, {name: rows.chunk(WORLD)[rank] for name, rows in batch().items()})
        assert algorithm.plugins
        torch.save(
            {name.removeprefix("module."): value for name, value in gradients.items()}, folder / f"{number}_{rank}.pt"
        )
    dist.barrier()
    # Without cleaning up: the destructor of DistributedDataParallel joins gloo's threads while it holds the
    # interpreter's lock, which one of them may be waiting for.
    os._exit(0)


def build(config: Namespace) -> Any:
    registered: Any = ALGORITHMS[config.algorithm]
    # USB's own set_dataset waits forever for the other processes when the data are not USB's.
    without_data = type("WithoutData", (registered,), {"set_dataset": lambda self: None})
    torch.manual_seed(config.seed)
    algorithm: Any = without_data(config, toy.toy_net)
    algorithm.loader_dict = toy.loaders(config, toy.datasets())
    return algorithm


def batch() -> dict[str, Tensor]:
    """The joint batch, of which each process gets a share."""
    items = [default_collate([images[number] for number in range(24)]) for images in toy.datasets().values()]
    return {**items[0], **items[1]}


def step(algorithm: Any, images: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of one step."""
    toy.begin_step(algorithm, images)
    algorithm.call_hook("after_train_step", "PluginHook")
    algorithm.out_dict["loss"].backward()
    return {
        name: parameter.grad for name, parameter in algorithm.model.named_parameters() if parameter.grad is not None
    }
