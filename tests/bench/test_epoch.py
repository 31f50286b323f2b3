"""The benchmark of a run reports every part with its number of repetitions. Timings are not asserted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from semilearn_ext.__main__ import main
from semilearn_ext.bench import epoch
from semilearn_ext.bench.budget import Part, host_waits, table
from semilearn_ext.data.experiment import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from tests.pretend_cuda import PretendCuda


def test_every_part_is_counted(tiny: Callable[..., Settings]) -> None:
    settings = tiny(num_train_iter=11, num_eval_iter=4, checkpoint_every=3)
    assert epoch.counts(load_data(settings)) == (11, 3, 4)
    lines, rate = epoch._report(settings, (11, 3, 4), steps=2)
    assert rate > 0
    report = "\n".join(lines)
    for name, times in (("training step", 11), ("evaluation", 3), ("checkpoint (blocking part)", 4)):
        (line,) = [line for line in report.splitlines() if line.startswith(f"{name}  ")]
        assert line.removeprefix(name).split()[0] == str(times)
    assert "measured on a CPU" in report


def test_every_part_is_measured_on_a_gpu(tinier: Callable[..., Settings], pretend_cuda: PretendCuda) -> None:
    lines, rate = epoch._report(tinier(device="cuda"), (11, 3, 4), steps=2)
    assert rate > 0
    assert "bf16, views on device" in lines[0]
    assert not any("measured on a CPU" in line for line in lines)


@pytest.mark.parametrize("part", ["step", "epoch"])
def test_too_few_steps_per_second_are_an_error_below_the_report(
    part: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"semilearn_ext.bench.{part}.main", lambda *_: ("the report", 9.5))
    for arguments in ((), ("--floor", "9")):
        main(["bench", part, *arguments])
    with pytest.raises(UserError, match=r"9\.50 steps per second, but --floor is 10"):
        main(["bench", part, "--floor", "10"])
    assert capsys.readouterr().out == "the report\n" * 3


def test_the_shares_of_a_budget_add_up() -> None:
    lines = table([Part("one", 3, 0.5), Part("two", 1, 0.5)], torch.device("cuda"))
    assert [line.split()[-1] for line in lines[1:3]] == ["75.0%", "25.0%"]
    assert lines[3].split() == ["sum", "2.00"]
    assert len(lines) == 4  # without the reminder of numbers from a CPU


def test_host_waits_are_recorded_only_on_cuda() -> None:
    with host_waits(torch.device("cpu")) as waits:
        torch.ones(1).item()
    assert not waits
