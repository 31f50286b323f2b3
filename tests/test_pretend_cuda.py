"""The pretend device obeys CUDA's rules: it refuses what a GPU refuses, and records what the host would wait for."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import nn

from semilearn_ext.bench.budget import host_waits
from tests.pretend_cuda import PretendCuda, Wait

WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "nonzero": lambda x: (x > 0).nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "bincount": lambda x: x.long().clamp(min=0).flatten().bincount(),
    "tolist": lambda x: x.tolist(),
    "index by a mask": lambda x: x[x > 0],
    "index from the CPU": lambda x: x[torch.tensor([0])],
    "copy to the CPU": lambda x: x.cpu(),
    "copy to the device": lambda x: torch.ones(2).to(x.device),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.ones(2, dtype=torch.long, device=x.device), 0),
    "synchronize": lambda x: torch.cuda.synchronize(),
}
NO_WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "arithmetic": lambda x: (x @ x.T + 1).softmax(0).argmax(0),
    "index": lambda x: x[torch.zeros(3, dtype=torch.long, device=x.device)],
    "mask": lambda x: torch.where(x > 0, x, 0),
    "number into a mask": lambda x: x.clone().__setitem__(x > 0, 0.0),
    "pinned copy": lambda x: torch.ones(2).pin_memory().to(x.device, non_blocking=True),
    "view of pinned memory": lambda x: torch.ones(2, 2).pin_memory()[0].to(x.device, non_blocking=True),
    "known size": lambda x: x.repeat_interleave(torch.ones(2, dtype=torch.long, device=x.device), 0, output_size=2),
}
REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "mixed devices": lambda x: x + torch.ones(3),
    "numpy": lambda x: x.numpy(),
    "generator of the CPU": lambda x: torch.rand(2, device="cuda", generator=torch.Generator()),
    "memory that is not pinned": lambda x: torch.ones(2).to("cuda", non_blocking=True),
}


@pytest.fixture
def x(pretend_cuda: PretendCuda) -> torch.Tensor:
    return torch.tensor([[1.0, -1.0, 2.0], [0.0, 3.0, -2.0]]).cuda()


@pytest.mark.parametrize("kind", WAITS)
def test_waits_are_recorded(kind: str, pretend_cuda: PretendCuda, x: torch.Tensor) -> None:
    with pretend_cuda.counted() as waits:
        WAITS[kind](x)
    assert waits == {Wait(kind, "elsewhere"): 1}


@pytest.mark.parametrize("kind", WAITS.keys() - {"synchronize"})
def test_waits_are_reported_as_by_torch(kind: str, pretend_cuda: PretendCuda, x: torch.Tensor) -> None:
    """``torch.cuda.synchronize`` is no mistake, so torch does not report it."""
    with host_waits(x.device) as waits:
        WAITS[kind](x)
        torch.cuda.synchronize()
    assert sum(waits.values()) == 1
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        WAITS[kind](x)


@pytest.mark.parametrize("kind", NO_WAITS)
def test_operations_on_the_device_do_not_wait(kind: str, pretend_cuda: PretendCuda, x: torch.Tensor) -> None:
    with pretend_cuda.counted() as waits:
        NO_WAITS[kind](x)
    assert not waits


@pytest.mark.parametrize("kind", REFUSED)
def test_operations_that_cuda_refuses_are_refused(kind: str, x: torch.Tensor) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"device|numpy|generator|pinned"):
        REFUSED[kind](x)


def test_a_network_trains_as_on_the_cpu(pretend_cuda: PretendCuda) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Flatten(), nn.Linear(144, 3))
    images, labels = torch.randn(5, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1])

    def learn(model: nn.Module, device: str) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            nn.functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert next(model.parameters()).device.type == device
        return [tensor.cpu() for tensor in model.state_dict().values()]

    on_device, on_cpu = learn(copy.deepcopy(network).to("cuda"), "cuda"), learn(network, "cpu")
    assert all(torch.equal(actual, expected) for actual, expected in zip(on_device, on_cpu, strict=True))


def test_random_numbers_come_from_the_devices_own_generator(x: torch.Tensor) -> None:
    before, on_host = torch.cuda.get_rng_state(), torch.get_rng_state()
    drawn = torch.randn(3, device="cuda")
    assert torch.equal(torch.get_rng_state(), on_host)
    assert not torch.equal(torch.cuda.get_rng_state(), before)
    torch.cuda.set_rng_state(before)
    assert torch.equal(torch.randn(3, device="cuda").cpu(), drawn.cpu())


def test_autocast_has_the_rules_of_cuda(x: torch.Tensor) -> None:
    """On a CPU, all of these are in half precision."""
    half = x.bfloat16().requires_grad_()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        in_float32 = (half.exp(), half.softmax(1), half.sum(), half.norm(), half**2, half.cumsum(0))
        assert {value.dtype for value in in_float32} == {torch.float32}
        assert (x @ x.T).dtype is (half + 1).dtype is torch.bfloat16
        assert half.sum(dtype=torch.bfloat16).dtype is torch.bfloat16
    in_float32[0].sum().backward()
    assert half.grad is not None
    assert half.grad.dtype is torch.bfloat16


def test_a_saved_tensor_is_read_on_the_cpu(x: torch.Tensor) -> None:
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["x"]
    assert loaded.device.type == "cpu"
    assert loaded.tolist() == x.tolist()


def test_the_device_is_removed_after_a_test() -> None:
    """This test does not use the fixture."""
    assert torch.cuda.is_available() is (torch.cuda.device_count() > 0)
    assert torch.ones(1).to("cpu").device.type == "cpu"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ones(1, dtype=torch.bfloat16).exp().dtype is torch.bfloat16
