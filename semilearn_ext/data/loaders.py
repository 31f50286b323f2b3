"""Batches in USB's format, with only the views that the algorithm uses.

USB passes the entries of a batch to ``train_step`` by parameter name, so the names of its parameters tell which views
are needed: ``x_ulb_w`` and ``x_ulb_s`` for most algorithms, ``x_ulb_s_0`` and ``x_ulb_s_1`` for CoMatch, no unlabelled
images for a supervised method. Batches also contain the source domain of every image as ``d_lb`` and ``d_ulb``.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from semilearn_ext.data import views
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.packed import send
from semilearn_ext.data.samplers import DomainBatches
from semilearn_ext.data.views import VIEW_KINDS
from semilearn_ext.errors import UserError

Batch = dict[str, torch.Tensor]
LABELLED, UNLABELLED = 0, 1


ROTATED = "x_ulb_s_0_rot"
ENTRIES = {*VIEW_KINDS, ROTATED, "rot_v", "y_lb", "idx_lb", "idx_ulb", "d_lb", "d_ulb"}
"""The entries that a batch can have; the parameters of ``train_step`` select from them."""
PREFETCHED = 2
"""Number of batches that every loader process prepares in advance."""
SHARED_MEMORY = Path("/dev/shm")
"""The folder in which loader processes store their batches on Linux."""


class BatchMaker(Dataset[Batch]):
    """Computes the batch of any (epoch, step). Its randomness depends only on the seed, epoch, step and process."""

    needs_workers = True
    """Whether preparing a batch takes long enough to need loader processes."""

    def __init__(
        self,
        data: SSDGData,
        batches: DomainBatches,
        positions: Sequence[int],
        names: Sequence[str],
        stream: int,
        *,
        weak_pair: bool = False,
    ) -> None:
        self.data = data
        self.batches = batches
        self.stream = stream
        self.suffix = "lb" if stream == LABELLED else "ulb"
        self.kinds = {name: VIEW_KINDS[name] for name in names if name in VIEW_KINDS and f"_{self.suffix}" in name}
        if weak_pair:
            self.kinds = dict.fromkeys(self.kinds, "weak")
        self.rotates = ROTATED in names and stream == UNLABELLED
        # Algorithms that store a value per image expect the images of each stream to be numbered 0, 1, …
        self.number = torch.full((len(data.items),), -1)
        self.number[torch.as_tensor(positions)] = torch.arange(len(positions))
        self.targets = data.labels[torch.as_tensor(positions)].tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, epoch_and_step: tuple[int, int]) -> Batch:
        return self.finish(self.prepare(epoch_and_step))

    def prepare(self, epoch_and_step: tuple[int, int]) -> Any:
        """The part of the work that a loader process does."""
        index, rng = self.draw(epoch_and_step)
        with one_thread():
            images = self.data.store[index]
            batch = {name: views.make(kind, images, self.data.view, rng) for name, kind in self.kinds.items()}
        batch |= self.numbers(index)
        if self.rotates:
            batch["rot_v"] = torch.randint(4, (len(index),), generator=rng)
            batch[ROTATED] = rotate(batch["x_ulb_s_0"], batch["rot_v"])
        return batch

    def finish(self, prepared: Any) -> Batch:
        """Turn the result of :meth:`prepare` into the batch, in the training process."""
        batch: Batch = prepared
        return batch

    def draw(self, epoch_and_step: tuple[int, int]) -> tuple[torch.Tensor, torch.Generator]:
        """The positions (N,) of the images of a step, and the random generator for their views."""
        epoch, step = epoch_and_step
        seed = np.random.SeedSequence([*self.batches.key, epoch, step, self.batches.rank])
        rng = torch.Generator().manual_seed(int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return torch.from_numpy(self.batches.batch(epoch, step)), rng

    def numbers(self, index: torch.Tensor) -> Batch:
        """The entries of a batch besides views, for the images at ``index`` (N,): their numbers, domains and labels."""
        numbers = {f"idx_{self.suffix}": self.number[index], f"d_{self.suffix}": self.data.domains[index]}
        if self.stream == LABELLED:
            numbers["y_lb"] = self.data.labels[index]
        return numbers


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: views are many small operations, which threads make several times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rotate(images: torch.Tensor, quarters: torch.Tensor) -> torch.Tensor:
    """Rotate every image (N, 3, H, W) by its own number of quarter turns (N,)."""
    rotations = torch.stack([torch.rot90(images, k, (2, 3)) for k in range(4)])
    return rotations[quarters, torch.arange(len(images), device=images.device)]


class Positions:
    """(epoch, step) of every batch from the current iteration to the end of the epoch or of the run."""

    def __init__(self, steps: int, total_steps: int) -> None:
        self.steps, self.total_steps = steps, total_steps
        self.iteration = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.iteration // self.steps
        end = min((epoch + 1) * self.steps, self.total_steps)
        return ((epoch, iteration % self.steps) for iteration in range(self.iteration, end))

    def __len__(self) -> int:
        return self.steps


@dataclass(frozen=True)
class Problem:
    """Why a loader process could not make a batch."""

    reason: str


class Prepared(Dataset[Any]):
    """The part of a batch that can be computed in another process."""

    def __init__(self, maker: BatchMaker) -> None:
        self.maker = maker

    def __getitem__(self, epoch_and_step: tuple[int, int]) -> Any:
        """The batch or a :class:`Problem`, because torch would add the traceback of the loader process to an error."""
        try:
            return self.maker.prepare(epoch_and_step)
        except UserError as error:
            return Problem(str(error))
        except OSError as error:
            return Problem(f"{error.filename or 'loader process'}: {error.strerror or error}")


class EpochLoader:
    """The loader that USB iterates over: yields the batches of an epoch, starting at any step."""

    def __init__(self, maker: BatchMaker, total_steps: int, workers: int, pin_memory: bool) -> None:
        self.dataset = maker
        self.steps = maker.batches.steps
        self.positions = Positions(self.steps, total_steps)
        self._loader: DataLoader[Any] | None = None
        if workers:
            self._loader = DataLoader(
                Prepared(maker),
                batch_size=None,
                sampler=self.positions,
                num_workers=workers,
                pin_memory=pin_memory,
                prefetch_factor=PREFETCHED,
                persistent_workers=True,
                # The loader draws seeds for its workers, which from torch's global generator would change training.
                generator=torch.Generator(),
            )

    def seek(self, iteration: int) -> None:
        """Continue with the batch of ``iteration``, which is counted over the whole run."""
        self.positions.iteration = iteration

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        if self._loader is not None:
            for prepared in self._loader:
                if isinstance(prepared, Problem):
                    raise UserError(prepared.reason)
                yield self.dataset.finish(prepared)
        else:
            yield from (self.dataset[epoch_and_step] for epoch_and_step in self.positions)


def check_shared_memory(makers: Iterable[BatchMaker], workers: int, processes: int, where: str) -> None:
    """Raise an error if the batches do not fit into shared memory, which would kill loader processes with a bus error.

    Args:
        processes: number of training processes on this machine.
        where: where the setting was given, for the error message.
    """
    if not workers or not SHARED_MEMORY.is_dir():
        return
    prepared = [maker.prepare((0, 0)) for maker in makers]
    tensors = [
        tensor for batch in prepared for tensor in (batch.values() if isinstance(batch, dict) else [batch.buffer])
    ]
    needed = processes * (workers * PREFETCHED + 1) * sum(tensor.nbytes for tensor in tensors) / 2**20
    free = shutil.disk_usage(SHARED_MEMORY).free / 2**20
    if needed > free:
        raise UserError(
            f"{where}: {workers} loader processes need about {needed:.0f} MB for batches in {SHARED_MEMORY}, but only "
            f"{free:.0f} MB are free; enlarge it (Docker: --shm-size 8g or --ipc host), or lower num_workers"
        )


class PlainImages:
    """Un-augmented images at some positions, in batches and in order.

    Args:
        view: ``test``: as the network sees images at test time (``test_view``), for evaluation;
            ``plain``: squashed to a square as in training, for prototypes and style encodings.
        device: the device on which the views are computed and stay; None for the CPU.
        threads: number of threads that read the next batches while one is in use; 0 to read a batch when it is needed.
    """

    def __init__(
        self,
        data: SSDGData,
        positions: Sequence[int],
        batch_size: int,
        *,
        view: Literal["test", "plain"],
        device: torch.device | None = None,
        threads: int = 0,
    ) -> None:
        self.data = data
        self.device = device
        self.threads = threads
        self.store = data.test_store if view == "test" else data.store
        self.positions = torch.as_tensor(positions, dtype=torch.long)
        self.labels = data.labels[self.positions]
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.positions)

    def share(self, rank: int = 0, world_size: int = 1) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield the batches of this process: the slice of ``labels`` that belongs to the batch, and its images."""
        starts = range(rank * self.batch_size, len(self), world_size * self.batch_size)
        parts = [slice(start, start + self.batch_size) for start in starts]
        for part, images in zip(parts, self._read(parts), strict=True):
            yield part, views.plain(images if self.device is None else send(images, self.device), self.data.view)

    def _read(self, parts: list[slice]) -> Iterator[torch.Tensor]:
        def read(part: slice) -> torch.Tensor:
            return self.store[self.positions[part]]

        return read_ahead(read, parts, self.threads) if self.threads else map(read, parts)


Part = TypeVar("Part")
Result = TypeVar("Result")


def read_ahead(read: Callable[[Part], Result], parts: Iterable[Part], threads: int) -> Iterator[Result]:
    """Yield ``read(part)`` for every part, in order, while threads read the next ones."""
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for part in parts:
                pending.append(pool.submit(read, part))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for left in pending:
                left.cancel()
