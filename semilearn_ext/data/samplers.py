"""Which images make up each step: the same number from every source domain, in an order fixed by the seed.

An epoch is one pass over the unlabelled images of the smallest source domain. No image is repeated within a pass; if an
epoch needs more labelled images than there are, it makes several passes over them. The batch of any step of any epoch
can be computed directly, so a run can resume at any step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def iterations_per_epoch(unlabelled_by_domain: Sequence[int], per_domain: int) -> int:
    """Number of steps that the smallest domain allows with ``per_domain`` images per step."""
    return min(unlabelled_by_domain) // per_domain


class DomainBatches:
    """The positions of every step's images, grouped by domain.

    Args:
        domains: the positions of the images of every source domain.
        per_domain: number of images per domain and step, over all processes.
        steps: number of steps per epoch.
        seed, stream: determine the order, together with the epoch; labelled and unlabelled images are two streams.
        rank, world_size: number of this process, and the total number of processes, which share every domain equally.
    """

    def __init__(
        self,
        domains: Sequence[np.ndarray],
        per_domain: int,
        steps: int,
        *,
        seed: int,
        stream: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.domains = [np.asarray(positions) for positions in domains]
        self.per_domain = per_domain
        self.steps = steps
        self.key = (seed, stream)
        self.rank, self.world_size = rank, world_size
        self._epoch: tuple[int, np.ndarray] | None = None

    def batch(self, epoch: int, step: int) -> np.ndarray:
        """Positions of the images of one step, sorted by domain."""
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, self._order(epoch))
        return self._epoch[1][step]

    def _order(self, epoch: int) -> np.ndarray:
        """(steps, images per step) positions for a whole epoch."""
        first, end = (part * self.per_domain // self.world_size for part in (self.rank, self.rank + 1))
        columns = []
        for number, positions in enumerate(self.domains):
            needed = self.steps * self.per_domain
            passes = -(-needed // len(positions))
            order = np.concatenate(
                [
                    np.random.default_rng([*self.key, epoch, number, repeat]).permutation(positions)
                    for repeat in range(passes)
                ]
            )
            columns.append(order[:needed].reshape(self.steps, self.per_domain)[:, first:end])
        return np.concatenate(columns, axis=1)
