"""The step benchmark runs, and its parts add up. The timings themselves are not asserted."""

from __future__ import annotations

from collections.abc import Callable

from semilearn_ext.bench.step import measure
from semilearn_ext.settings import Settings


def test_every_part_of_a_step_is_timed(tiny: Callable[..., Settings]) -> None:
    times = measure(tiny(algorithm="fixmatch_upcsc", num_train_iter=4))
    assert min(times.total, times.forward, times.update, times.plugins, times.usb_ema) > 0
    assert times.overhead < 1
