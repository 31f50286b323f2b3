"""The step benchmark runs, and its parts add up. The timings themselves are not asserted."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from semilearn_ext.bench.step import measure
from semilearn_ext.settings import Settings
from tests.conftest import ROOT
from tests.every_method import active_loss
from tests.pretend_cuda import PretendCuda


def test_every_part_of_a_step_is_timed(tiny: Callable[..., Settings]) -> None:
    times = measure(tiny(algorithm="fixmatch_upcsc", num_train_iter=4))
    assert min(times.total, times.forward, times.update, times.plugins, times.usb_ema) > 0
    assert times.overhead < 1


@pytest.mark.parametrize(("name", "step"), [("freematch", "usb"), ("vat", "usb"), ("fixmatch_upcsc", "reference")])
def test_the_host_waits_are_those_of_the_frozen_table(
    name: str, step: str, tinier: Callable[..., Settings], pretend_cuda: PretendCuda
) -> None:
    frozen = json.loads((ROOT / "tests" / "fixtures" / "host_waits.json").read_text())[f"{name} ({step})"]
    times = measure(tinier(device="cuda", num_train_iter=3, **active_loss(name, step)))
    assert sum(times.waits.values()) == sum(frozen.values())
