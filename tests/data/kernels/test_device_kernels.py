"""The device kernels, run on the CPU, give the same views as the CPU kernels, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from semilearn_ext.data import views
from semilearn_ext.data.kernels import cpu, plans
from semilearn_ext.data.kernels import device as kernels
from semilearn_ext.data.packed import Packed
from semilearn_ext.data.randaugment import OPERATIONS_PER_IMAGE, RANGES, Operation
from semilearn_ext.data.view_spec import StrongDraws, ViewSpec, draw_strong, draw_weak

HERE = torch.device("cpu")


def images(rng: torch.Generator, count: int, size: int) -> Tensor:
    """Noise, smooth images, and edge cases of the operations: images with one or two grey levels."""
    noise = torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=rng)
    small = noise[:, :, : max(2, size // 8), : max(2, size // 8)]
    mixed = torch.where(torch.arange(count).view(-1, 1, 1, 1) % 2 == 0, noise, interpolate(small, (size, size)))
    mixed[0], mixed[1], mixed[2, :, : size // 2] = 255, 0, 7
    return mixed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("source", "size"), [(224, 224), (32, 32), (32, 64), (48, 32), (227, 96), (9, 9)])
def test_all_views_equal_those_of_the_cpu_kernels(source: int, size: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    spec = ViewSpec(size, cutout_color=("black", "mean")[seed % 2])
    batch = images(rng, 16 if size > 100 else 48, source)
    before = batch.clone()
    assert torch.equal(kernels.plain(batch, spec), cpu.plain(batch, spec))
    weak, strong = draw_weak(rng, len(batch), spec), draw_strong(rng, len(batch), spec)
    assert torch.equal(kernels.weak(batch, spec, to_device(plans.weak(weak, spec))), cpu.weak(batch, spec, weak))
    assert torch.equal(
        kernels.strong(batch, spec, to_device(plans.strong(strong, spec))), cpu.strong(batch, spec, strong)
    )
    assert torch.equal(batch, before)


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("share", [0.0, 0.37, 1.0])
def test_every_operation_at_the_ends_of_its_range(operation: Operation, share: float) -> None:
    rng = torch.Generator().manual_seed(int(operation))
    batch, spec, (low, high) = images(rng, 8, 33), ViewSpec(33, flip=False, cutout=0), RANGES[operation]
    shape = (OPERATIONS_PER_IMAGE, len(batch))
    draws = StrongDraws(
        np.full(shape, operation),
        np.full(shape, low + share * (high - low)),
        np.zeros(len(batch), bool),
        *np.zeros((2, len(batch))),
    )
    assert torch.equal(
        kernels.strong(batch, spec, to_device(plans.strong(draws, spec))), cpu.strong(batch, spec, draws)
    )


def to_device(plan: plans.Plan) -> dict[str, Tensor]:
    return Packed.of(plan).on(HERE)


def test_packed_arrays_are_unpacked_unchanged() -> None:
    arrays = {
        "bytes": np.arange(7, dtype=np.uint8),
        "none": np.empty((3, 0), np.float32),
        "flags": np.array([[True, False]]),
        "places": np.arange(-6, 6).reshape(3, 4),
        "factors": np.linspace(0, 1, 5, dtype=np.float32),
    }
    unpacked = Packed.of(arrays).on(HERE)
    assert list(unpacked) == list(arrays)
    for name, array in arrays.items():
        assert unpacked[name].shape == array.shape
        assert np.array_equal(unpacked[name].numpy(), array)
        assert unpacked[name].numpy().dtype == array.dtype


@pytest.mark.parametrize("kind", ["plain", "weak", "strong"])
def test_views_on_a_gpu_are_equal_within_one_grey_level(kind: str, device: torch.device) -> None:
    spec, batch = ViewSpec(32), images(torch.Generator().manual_seed(1), 48, 32)
    on_cpu, on_device = (
        views.make(kind, batch.to(where), spec, torch.Generator().manual_seed(2)) for where in (HERE, device)
    )
    assert on_device.device.type == device.type
    difference = views.denormalise(on_device.cpu(), spec).int() - views.denormalise(on_cpu, spec).int()
    assert difference.abs().max() <= 1
    assert (difference != 0).float().mean() < 0.01
