"""Batches have equally many images of every domain, no repeats within a pass, and can be computed in any order."""

from __future__ import annotations

import numpy as np

from semilearn_ext.data.samplers import DomainBatches, iterations_per_epoch

DOMAINS = [np.arange(0, 40), np.arange(100, 150), np.arange(200, 210)]


def batches(seed: int = 1, stream: int = 0, rank: int = 0, world_size: int = 1) -> DomainBatches:
    return DomainBatches(DOMAINS, 4, 10, seed=seed, stream=stream, rank=rank, world_size=world_size)


def epoch(sampler: DomainBatches, number: int) -> np.ndarray:
    return np.stack([sampler.batch(number, step) for step in range(10)])


def test_the_smallest_domain_determines_the_length_of_an_epoch() -> None:
    assert iterations_per_epoch([100, 49, 70], 16) == 3


def test_every_batch_has_the_same_number_of_each_domain() -> None:
    for batch in epoch(batches(), 0):
        assert [int(((batch >= low) & (batch < low + 100)).sum()) for low in (0, 100, 200)] == [4, 4, 4]


def test_no_image_repeats_within_a_pass_and_small_sets_start_again() -> None:
    order = epoch(batches(), 0)
    large = order[:, :4].ravel()
    assert len(set(large)) == 40
    small = order[:, 8:].ravel()
    for start in range(0, 40, 10):
        assert set(small[start : start + 10]) == set(DOMAINS[2])


def test_order_depends_on_seed_epoch_and_stream() -> None:
    first = epoch(batches(), 0)
    for other in (epoch(batches(seed=2), 0), epoch(batches(), 1), epoch(batches(stream=1), 0)):
        assert (first != other).any()
    assert (first == epoch(batches(), 0)).all()


def test_the_batch_of_any_step_can_be_computed_directly() -> None:
    batches_of_epoch = epoch(batches(), 3)
    assert (batches().batch(3, 7) == batches_of_epoch[7]).all()


def test_two_processes_share_the_batch_of_one() -> None:
    for step in range(10):
        shares = np.concatenate([batches(rank=rank, world_size=2).batch(0, step) for rank in range(2)])
        assert sorted(shares) == sorted(batches().batch(0, step))
