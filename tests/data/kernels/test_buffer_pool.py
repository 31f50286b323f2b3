"""Buffers are reused once nothing refers to them, and never earlier."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from semilearn_ext.data.kernels import buffer_pool
from semilearn_ext.data.kernels.buffer_pool import empty_floats

SHAPE = (7, 3, 31, 31)


def filled(number: float) -> Tensor:
    return empty_floats(*SHAPE).fill_(number)


def test_memory_is_reused() -> None:
    first = filled(1)
    address = first.data_ptr()
    del first
    assert filled(2).data_ptr() == address


def trained(batch: Tensor) -> Tensor:
    """A loss whose autograd graph refers to the batch."""
    return (batch * torch.ones(1, requires_grad=True)).sum()


HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda batch: batch,
    "a part": lambda batch: batch[2:3, :, ::2],
    "its array": lambda batch: batch.numpy(),
    "a part of its array": lambda batch: batch.numpy()[5],
    "its storage": lambda batch: batch.untyped_storage(),
    "a graph": trained,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_is_referenced_is_not_reused(holder: str) -> None:
    first = filled(1)
    address, held = first.data_ptr(), HOLDERS[holder](first)
    del first
    gc.collect()
    others = [filled(2) for _ in range(4)]
    assert address not in {other.data_ptr() for other in others}
    del held, others
    assert address in {batch.data_ptr() for batch in [filled(3) for _ in range(5)]}


def test_memory_of_a_shape_that_is_no_longer_used_is_freed() -> None:
    filled(1)
    assert buffer_pool._spare[SHAPE]
    empty_floats(5, 3, 31, 31)
    assert not buffer_pool._spare[SHAPE]


class Filled(torch.utils.data.Dataset[Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> Tensor:
        return filled(number)


def test_batches_of_workers_are_not_overwritten() -> None:
    batches = list(DataLoader(Filled(), batch_size=None, num_workers=2))
    assert [batch.unique().tolist() for batch in batches] == [[number] for number in range(12)]
