"""Which images make up each step: the same number from every source domain, in an order fixed by the seed.

An epoch is one pass over the unlabelled images of the smallest source domain. Within a pass no image comes
twice; a label set smaller than an epoch is passed over several times. Any step of any epoch can be asked for
directly, which is what makes a run resumable at any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def iterations_per_epoch(unlabelled_by_domain: Sequence[int], per_domain: int) -> int:
    """What the smallest domain allows at ``per_domain`` images a step."""
    return min(unlabelled_by_domain) // per_domain


class DomainBatches:
    """The positions of every step's images, grouped by domain.

    Args:
        domains: for every source domain, the positions of its images.
        per_domain: images of each domain a step.
        steps: steps an epoch.
        seed, stream: what the order depends on besides the epoch; labelled and unlabelled images are two
            streams.
        rank, world: this process's share: an equal part of every domain's images.
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
        world: int = 1,
    ) -> None:
        self.domains = [np.asarray(positions) for positions in domains]
        self.per_domain = per_domain
        self.steps = steps
        self.key = (seed, stream)
        self.rank, self.world = rank, world
        self._epoch: tuple[int, np.ndarray] | None = None

    def batch(self, epoch: int, step: int) -> np.ndarray:
        """Positions of the images of one step, domain after domain."""
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, self._order(epoch))
        return self._epoch[1][step]

    def _order(self, epoch: int) -> np.ndarray:
        """(steps, images a step) positions for a whole epoch."""
        share = slice(self.rank * self.per_domain // self.world, (self.rank + 1) * self.per_domain // self.world)
        columns = []
        for number, positions in enumerate(self.domains):
            wanted = self.steps * self.per_domain
            passes = -(-wanted // len(positions))
            order = np.concatenate(
                [
                    np.random.default_rng([*self.key, epoch, number, again]).permutation(positions)
                    for again in range(passes)
                ]
            )
            columns.append(order[:wanted].reshape(self.steps, self.per_domain)[:, share])
        return np.concatenate(columns, axis=1)
