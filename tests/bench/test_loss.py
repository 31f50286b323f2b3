"""The loss benchmark compares two implementations of the same loss."""

from __future__ import annotations

import torch

from semilearn_ext.bench.loss import fast_loss, main, make_batch, naive_loss, peak_extra_bytes, run


def test_both_losses_are_equal() -> None:
    batch = make_batch(24, 7, 16)
    torch.testing.assert_close(fast_loss(*batch), naive_loss(*batch))
    torch.testing.assert_close(run(fast_loss, batch), run(naive_loss, batch))


def test_peak_memory_counts_tensors_alive_at_the_same_time() -> None:
    def one_after_the_other() -> None:
        for _ in range(3):
            torch.empty(1000, dtype=torch.uint8)

    def together() -> list[torch.Tensor]:
        return [torch.empty(1000, dtype=torch.uint8) for _ in range(3)]

    assert 1000 <= peak_extra_bytes(one_after_the_other) < 2000
    assert 3000 <= peak_extra_bytes(together) < 4000


def test_report_has_a_row_for_every_size() -> None:
    rows = main(views=(8,), classes=(3, 5), dim=4, seconds=0).splitlines()[-2:]
    assert [row.split()[:2] for row in rows] == [["8", "3"], ["8", "5"]]
