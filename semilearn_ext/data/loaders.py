"""Batches in USB's form, with only the views that the algorithm uses.

USB passes the entries of a batch to ``train_step`` by the names of its parameters, so those names say which views are
needed: ``x_ulb_w`` and ``x_ulb_s`` for most algorithms, ``x_ulb_s_0`` and ``x_ulb_s_1`` for CoMatch, no unlabelled
image for a supervised method. Batches also contain the number of every image's source domain, ``d_lb`` and ``d_ulb``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from semilearn_ext.data import views
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.samplers import DomainBatches
from semilearn_ext.data.views import VIEW_KINDS

Batch = dict[str, torch.Tensor]
LABELLED, UNLABELLED = 0, 1


_ROTATED = "x_ulb_s_0_rot"


class BatchMaker(Dataset[Batch]):
    """Makes the batch of any (epoch, step). Its randomness depends only on the seed, epoch, step and process."""

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
        self.rotates = _ROTATED in names and stream == UNLABELLED
        # Algorithms that keep a value per image expect images to be numbered 0, 1, … within their own stream.
        self.number = np.full(len(data.items), -1)
        self.number[np.asarray(positions)] = np.arange(len(positions))
        self.targets = data.labels[torch.as_tensor(positions)].tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, at: tuple[int, int]) -> Batch:
        epoch, step = at
        positions = self.batches.batch(epoch, step)
        index = torch.from_numpy(positions)
        seed = np.random.SeedSequence([*self.batches.key, epoch, step, self.batches.rank])
        rng = torch.Generator().manual_seed(int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        with one_thread():
            images = self.data.store[index]
            batch = {name: views.make(kind, images, self.data.view, rng) for name, kind in self.kinds.items()}
        batch[f"idx_{self.suffix}"] = torch.from_numpy(self.number[positions])
        batch[f"d_{self.suffix}"] = self.data.domains[index]
        if self.stream == LABELLED:
            batch["y_lb"] = self.data.labels[index]
        if self.rotates:
            batch["rot_v"] = torch.randint(4, (len(index),), generator=rng)
            batch[_ROTATED] = _rotate(batch["x_ulb_s_0"], batch["rot_v"])
        return batch


@contextmanager
def one_thread() -> Iterator[None]:
    """Views are many small operations, which several threads make several times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rotate(images: torch.Tensor, quarters: torch.Tensor) -> torch.Tensor:
    """Every image (N, 3, H, W), rotated by its own number (N,) of quarter turns."""
    rotations = torch.stack([torch.rot90(images, k, (2, 3)) for k in range(4)])
    return rotations[quarters, torch.arange(len(images))]


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


class EpochLoader:
    """The batches of one epoch after the other, starting anywhere: what USB iterates over."""

    def __init__(self, maker: BatchMaker, total_steps: int, workers: int, pin_memory: bool) -> None:
        self.dataset = maker
        self.steps = maker.batches.steps
        self.positions = Positions(self.steps, total_steps)
        self._loader: DataLoader[Batch] | None = None
        if workers:
            self._loader = DataLoader(
                maker,
                batch_size=None,
                sampler=self.positions,
                num_workers=workers,
                pin_memory=pin_memory,
                persistent_workers=True,
            )

    def seek(self, iteration: int) -> None:
        """Continue with the batch of ``iteration``, counted over the whole run."""
        self.positions.iteration = iteration

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        if self._loader is not None:
            yield from self._loader
        else:
            yield from (self.dataset[at] for at in self.positions)


class PlainImages:
    """Un-augmented images at some positions, in batches and in order.

    Args:
        view: ``test``: as the network sees images at test (``test_view``), for everything that is evaluated;
            ``plain``: squashed to a square as in training, for prototypes and style encodings.
    """

    def __init__(
        self, data: SSDGData, positions: Sequence[int], batch_size: int, *, view: Literal["test", "plain"]
    ) -> None:
        self.data = data
        self.store = data.test_store if view == "test" else data.store
        self.positions = torch.as_tensor(positions, dtype=torch.long)
        self.labels = data.labels[self.positions]
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.positions)

    def share(self, rank: int = 0, world_size: int = 1) -> Iterator[tuple[slice, torch.Tensor]]:
        """The batches of this process: the slice of ``labels`` that belongs to each, and its images."""
        for number, start in enumerate(range(0, len(self), self.batch_size)):
            if number % world_size == rank:
                part = slice(start, start + self.batch_size)
                yield part, views.plain(self.store[self.positions[part]], self.data.view)


def batch_makers(
    data: SSDGData, names: Sequence[str], *, weak_pair: bool = False, rank: int = 0, world_size: int = 1
) -> dict[str, BatchMaker]:
    """``train_lb`` and, if the algorithm uses unlabelled images, ``train_ulb``.

    Args:
        names: the parameters of the algorithm's ``train_step``.
        weak_pair: both unlabelled views are weak (MeanTeacher and its relatives).
        rank, world_size: number of this process, and number of all processes.
    """
    settings = data.settings
    per_domain = settings.batch_size // len(data.sources)

    def make(stream: int, positions: list[int], count: int, weak: bool) -> BatchMaker:
        domains = data.by_domain(positions)
        order = DomainBatches(
            domains, count, data.steps_per_epoch, seed=settings.seed, stream=stream, rank=rank, world_size=world_size
        )
        return BatchMaker(data, order, positions, names, stream, weak_pair=weak)

    makers = {"train_lb": make(LABELLED, data.split.labelled, per_domain, False)}
    if any(name.startswith("x_ulb") for name in names):
        count = per_domain * settings.uratio
        makers["train_ulb"] = make(UNLABELLED, data.split.unlabelled, count, weak_pair)
    return makers
