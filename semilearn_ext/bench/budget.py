"""A table of where the time goes, a stopwatch, and a counter of how often the host waits for the device."""

from __future__ import annotations

import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from semilearn_ext.errors import UserError


class Part(NamedTuple):
    """One row of the table: a part of the work, how often it is done, and the seconds that it takes each time."""

    name: str
    times: int
    seconds: float

    @property
    def total(self) -> float:
        return self.times * self.seconds


def table(parts: Sequence[Part], device: torch.device) -> list[str]:
    """One line per part with its share of the total, and the total."""
    total = sum(part.total for part in parts)
    lines = [f"{'':28}{'times':>8}{'ms each':>11}{'seconds':>10}{'share':>8}"]
    for part in parts:
        share = part.total / total if total else 0.0
        lines.append(f"{part.name:28}{part.times:8d}{1000 * part.seconds:11.2f}{part.total:10.2f}{100 * share:7.1f}%")
    lines.append(f"{'sum':28}{'':8}{'':11}{total:10.2f}")
    return [*lines, *cpu_note(device)]


def cpu_note(device: torch.device) -> list[str]:
    """A note below numbers that were measured on a CPU."""
    return ["measured on a CPU; GPU times will differ"] if device.type == "cpu" else []


def check_floor(rate: float, floor: int | None) -> None:
    """Raise an error if ``rate`` is below ``floor`` steps per second."""
    if floor is not None and rate < floor:
        raise UserError(
            f"{rate:.2f} steps per second, but --floor is {floor}; look for the reason with ssdg doctor, or lower the "
            f"floor on a slower machine"
        )


class Stopwatch:
    """Times every call of the functions it wraps, including the work that they start on the device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: list[float] = []

    def now(self) -> float:
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()
        return time.perf_counter()

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            start = self.now()
            result = function(*arguments, **keywords)
            self.seconds.append(self.now() - start)
            return result

        return timed


@contextmanager
def host_waits(device: torch.device) -> Iterator[Counter[str]]:
    """Count how often the host waits for a CUDA device within this context, per file and line, as reported by torch."""
    waits: Counter[str] = Counter()
    if device.type != "cuda":
        yield waits
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield waits
    finally:
        torch.cuda.set_sync_debug_mode(before)
    for warning in caught:
        if "synchronizing CUDA operation" in str(warning.message):
            waits["/".join(Path(warning.filename).parts[-3:]) + f":{warning.lineno}"] += 1


def waits_lines(waits: Counter[str], device: torch.device) -> list[str]:
    if device.type != "cuda":
        return ["host waits per step: reported only on CUDA (tests/engine/test_on_pretend_cuda.py needs no GPU)"]
    lines = [f"  {place}  {count}" for place, count in sorted(waits.items())]
    return [f"host waits per step: {sum(waits.values())}", *lines]
