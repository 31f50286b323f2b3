"""Images per second that are turned into a weak and a strong view, compared with the usual pipeline.

The usual pipeline, as in USB and the SSDG benchmark, opens every file and applies Pillow and torchvision transforms
each time. Ours keeps decoded images of the right size in a memory-mapped array and computes the views of a whole batch
at once, with the CPU kernels or the device kernels. All of them produce normalised float32 batches of the same two
views and run in turn on one thread. The times are processor times, which exclude waiting for other programs; on a GPU,
the time until the last view is computed.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Normalize, ToTensor

from semilearn_ext.bench.budget import Part, Stopwatch, table
from semilearn_ext.data import views, views_reference
from semilearn_ext.data.kernels import device as kernels
from semilearn_ext.data.kernels import plans
from semilearn_ext.data.loaders import one_thread
from semilearn_ext.data.packed import Packed
from semilearn_ext.data.randaugment import OPERATIONS_PER_IMAGE, RANGES, Operation
from semilearn_ext.data.view_spec import StrongDraws, WeakDraws, draw_strong, draw_weak

CPU = torch.device("cpu")
BATCH = 48
ROUNDS = 15
GOAL = 4.0
Resampling = Image.Resampling


class PillowViews(Dataset[tuple[Tensor, Tensor]]):
    """The usual pipeline: a weak and a strong view of one file at a time."""

    def __init__(self, files: list[Path], spec: views.ViewSpec, rng: random.Random) -> None:
        self.files, self.spec, self.rng = files, spec, rng
        normalise = Normalize(spec.mean, spec.std)
        self.finish_weak = Compose([ToTensor(), normalise])
        self.finish_strong = Compose([ToTensor(), self.cut_out, normalise])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        picture = Image.open(self.files[position]).convert("RGB")
        weak = views_reference.translate_and_flip(self.resize(picture), self.draw_weak())
        strong = views_reference.flip_and_augment(self.resize(picture), self.draw_strong())
        return self.finish_weak(weak), self.finish_strong(strong)

    def draw_weak(self) -> WeakDraws:
        uniform = self.rng.random
        return WeakDraws(uniform() < 0.5, uniform(), uniform(), uniform() < 0.5)  # type: ignore[arg-type]

    def draw_strong(self) -> StrongDraws:
        operations = self.rng.choices(list(Operation), k=OPERATIONS_PER_IMAGE)
        magnitudes = [self.rng.uniform(*RANGES[operation]) for operation in operations]
        flip = self.rng.random() < 0.5
        return StrongDraws(operations, magnitudes, flip, 0.0, 0.0)  # type: ignore[arg-type]

    def resize(self, picture: Image.Image) -> Image.Image:
        """Resize once per view, as transforms do; a picture of the right size is only copied."""
        return picture.resize((self.spec.size, self.spec.size), Resampling.BICUBIC)

    def cut_out(self, image: Tensor) -> Tensor:
        side = self.spec.cutout
        top, left = (self.rng.randrange(self.spec.size) - side // 2 for _ in range(2))
        image[:, max(top, 0) : top + side, max(left, 0) : left + side] = 0
        return image


class BatchedViews:
    """Our pipeline: the views of whole batches, computed from an array of decoded images."""

    def __init__(self, store: np.ndarray, spec: views.ViewSpec, rng: torch.Generator) -> None:
        self.store, self.spec, self.rng = torch.from_numpy(store), spec, rng

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for positions in torch.randperm(len(self.store), generator=self.rng).split(BATCH):
            images = self.store.index_select(0, positions)
            yield views.weak(images, self.spec, self.rng), views.strong(images, self.spec, self.rng)


class DeviceViews:
    """Our pipeline with the images in the memory of a device and the views computed there."""

    def __init__(self, store: np.ndarray, spec: views.ViewSpec, rng: torch.Generator, device: torch.device) -> None:
        self.store, self.spec, self.rng = torch.from_numpy(store).to(device), spec, rng
        self.plans, self.sending, self.kernels = (Stopwatch(device) for _ in range(3))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for positions in torch.randperm(len(self.store), generator=self.rng).split(BATCH):
            yield self.make(positions, lambda _, function: function())

    def make(self, positions: Tensor, timed: Callable[[Stopwatch, Callable[[], Any]], Any]) -> tuple[Tensor, Tensor]:
        """Compute one batch; ``timed`` calls each of the three parts."""
        packed = timed(self.plans, lambda: self.plan(positions))
        arrays = timed(self.sending, lambda: packed.on(self.store.device))
        views: tuple[Tensor, Tensor] = timed(self.kernels, lambda: self.views(arrays))
        return views

    def plan(self, positions: Tensor) -> Packed:
        count = len(positions)
        weak = plans.weak(draw_weak(self.rng, count, self.spec), self.spec)
        strong = plans.strong(draw_strong(self.rng, count, self.spec), self.spec)
        named = {f"weak/{key}": part for key, part in weak.items()} | {f"s/{key}": part for key, part in strong.items()}
        return Packed.of({**named, "positions": positions.numpy()})

    def views(self, arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        images = self.store.index_select(0, arrays["positions"])
        weak, strong = (
            {key.removeprefix(start): part for key, part in arrays.items() if key.startswith(start)}
            for start in ("weak/", "s/")
        )
        return kernels.weak(images, self.spec, weak), kernels.strong(images, self.spec, strong)

    def budget(self) -> list[str]:
        """A table of where the time of a batch goes, waiting for the device after each part."""
        for positions in torch.randperm(len(self.store), generator=self.rng).split(BATCH):
            self.make(positions, lambda watch, function: watch.wrap(function)())
        parts = (("draws and plans, on the host", self.plans), ("one transfer", self.sending), ("views", self.kernels))
        return table(
            [Part(name, len(watch.seconds), statistics.median(watch.seconds)) for name, watch in parts],
            self.store.device,
        )


def build_store(files: list[Path], size: int, path: Path) -> np.ndarray:
    """Decode and resize every file once into a memory-mapped array (N, 3, size, size)."""
    store = np.lib.format.open_memmap(path, "w+", np.uint8, (len(files), 3, size, size))
    for row, file in zip(store, files, strict=True):
        picture = Image.open(file).convert("RGB").resize((size, size), Resampling.BICUBIC)
        row[:] = np.asarray(picture).transpose(2, 0, 1)
    return store


def pass_over(batches: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> float:
    """Time of one pass (processor time on a CPU). As in training, a batch is released when the next one arrives."""
    now = time.process_time if device.type == "cpu" else Stopwatch(device).now
    start = now()
    for _ in batches:
        pass
    return now() - start


def main(root: Path, images: int = 512, size: int = 128, device: torch.device = CPU) -> str:
    """Measure on ``images`` files sampled from ``root/<domain>/<class>/`` and return the report."""
    files = sorted(root.glob("*/*/*.*"))
    files = random.Random(0).sample(files, min(images, len(files)))
    spec = views.ViewSpec(size)
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = build_store(files, size, Path(folder) / "images.npy")
        building = time.perf_counter() - start
        plain = DataLoader(PillowViews(files, spec, random.Random(0)), BATCH, shuffle=True, num_workers=0)
        on_cpu = BatchedViews(store, spec, torch.Generator().manual_seed(0))
        on_device = DeviceViews(store, spec, torch.Generator().manual_seed(0), device)
        seconds = [
            (pass_over(plain, CPU), pass_over(on_cpu, CPU), pass_over(on_device, device)) for _ in range(ROUNDS + 1)
        ][1:]
        budget = on_device.budget()
        del on_cpu, on_device, store
    return "\n".join([report(len(files), size, building, device, *zip(*seconds, strict=True)), *budget])


def report(
    images: int,
    size: int,
    building: float,
    device: torch.device,
    plain: tuple[float, ...],
    on_cpu: tuple[float, ...],
    on_device: tuple[float, ...],
) -> str:
    lines = [f"weak + strong view of {images} images at {size} px, one thread, {len(plain)} alternating rounds"]
    lines.append(f"{'images per second':24}{'best':>8}{'median':>8}")
    rows = (("Pillow and DataLoader", plain), ("CPU kernels", on_cpu), (f"device kernels on {device.type}", on_device))
    for name, seconds in rows:
        lines.append(f"{name:24}{images / min(seconds):8.0f}{images / statistics.median(seconds):8.0f}")
    best, middle = min(plain) / min(on_cpu), statistics.median(plain) / statistics.median(on_cpu)
    lines.append(f"{'CPU kernels vs. Pillow':24}{best:7.2f}x{middle:7.2f}x   goal: at least {GOAL:g}x")
    lines.append(f"decoding all images once took {building:.2f} s, {images / building:.0f} images per second")
    return "\n".join(lines)
