"""Batches whose views are computed on the device.

All random numbers are drawn on the host, from the same generator and in the same order as in :class:`BatchMaker`, so
the result does not depend on the device. A prepared batch is one block of memory. It contains the plans of the views,
image numbers, labels, and either the positions of the images in the device's memory or, where the images do not fit
there, their uint8 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from semilearn_ext.data.device_images import DeviceImages
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.kernels import device as kernels
from semilearn_ext.data.kernels import plans
from semilearn_ext.data.loaders import LABELLED, ROTATED, UNLABELLED, Batch, BatchMaker, one_thread, rotate
from semilearn_ext.data.packed import Packed
from semilearn_ext.data.samplers import DomainBatches
from semilearn_ext.data.view_spec import draw_strong, draw_weak

_SOURCES = ("images", "positions")


class DeviceBatchMaker(BatchMaker):
    """Prepares batches on the host and computes their views on ``device``."""

    def __init__(self, *args: Any, device: torch.device, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.device = device
        self.holds_pixels = self.needs_workers = not isinstance(self.data.store, DeviceImages)

    def prepare(self, epoch_and_step: tuple[int, int]) -> Packed:
        index, rng = self.draw(epoch_and_step)
        spec, count = self.data.view, len(index)
        arrays = {name: values.numpy() for name, values in self.numbers(index).items()}
        for name, kind in self.kinds.items():
            if kind == "weak":
                plan = plans.weak(draw_weak(rng, count, spec), spec)
            else:
                plan = plans.strong(draw_strong(rng, count, spec), spec) if kind == "strong" else {}
            arrays |= {f"{name}/{key}": values for key, values in plan.items()}
        if self.rotates:
            arrays["rot_v"] = torch.randint(4, (count,), generator=rng).numpy()
        if self.holds_pixels:
            arrays["images"] = self.data.store[index].numpy()
        else:
            arrays["positions"] = index.numpy()
        return Packed.of(arrays)

    def finish(self, prepared: Packed) -> Batch:
        with one_thread():
            return self._finish(prepared.on(self.device))

    def _finish(self, arrays: Batch) -> Batch:
        images = arrays["images"] if self.holds_pixels else self.data.store[arrays["positions"]]
        batch = {name: values for name, values in arrays.items() if "/" not in name and name not in _SOURCES}
        for name, kind in self.kinds.items():
            plan = {key.removeprefix(f"{name}/"): part for key, part in arrays.items() if key.startswith(f"{name}/")}
            if kind == "plain":
                batch[name] = kernels.plain(images, self.data.view)
            else:
                batch[name] = (kernels.weak if kind == "weak" else kernels.strong)(images, self.data.view, plan)
        if self.rotates:
            batch[ROTATED] = rotate(batch["x_ulb_s_0"], batch["rot_v"])
        return batch


def batch_makers(
    data: SSDGData,
    names: Sequence[str],
    *,
    weak_pair: bool = False,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | None = None,
) -> dict[str, BatchMaker]:
    """``train_lb`` and, if the algorithm uses unlabelled images, ``train_ulb``.

    Args:
        names: the parameters of the algorithm's ``train_step``.
        weak_pair: both unlabelled views are weak (MeanTeacher and its relatives).
        rank, world_size: number of this process, and the total number of processes.
        device: where views are computed; None for the CPU kernels.
    """
    settings = data.settings
    per_domain = settings.batch_size // len(data.sources)

    def make(stream: int, positions: list[int], count: int, weak: bool) -> BatchMaker:
        domains = data.by_domain(positions)
        order = DomainBatches(
            domains, count, data.steps_per_epoch, seed=settings.seed, stream=stream, rank=rank, world_size=world_size
        )
        if device is None:
            return BatchMaker(data, order, positions, names, stream, weak_pair=weak)
        return DeviceBatchMaker(data, order, positions, names, stream, weak_pair=weak, device=device)

    makers = {"train_lb": make(LABELLED, data.split.labelled, per_domain, False)}
    if any(name.startswith("x_ulb") for name in names):
        count = per_domain * settings.uratio
        makers["train_ulb"] = make(UNLABELLED, data.split.unlabelled, count, weak_pair)
    return makers
