"""What a sweep shows while it runs: a small block that is drawn anew on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO


@dataclass
class Tally:
    """How far a sweep is."""

    total: int
    slots: int
    done: int = 0
    failed: int = 0
    stopped: int = 0
    running: dict[str, float] = field(default_factory=dict)
    """Title -> seconds so far."""
    elsewhere: int = 0
    """Runs that another process is training."""
    seconds: list[float] = field(default_factory=list)
    """How long runs took that are done."""

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed - self.stopped - len(self.running) - self.elsewhere


def time_to_go(tally: Tally) -> float | None:
    """Seconds until the last run ends, if all take as long as those that are done took; None before there is one."""
    if not tally.seconds:
        return None
    mean = sum(tally.seconds) / len(tally.seconds)
    unfinished = sum(max(mean - seconds, 0.0) for seconds in tally.running.values())
    return (mean * tally.left + unfinished) / max(1, min(tally.slots, tally.left + len(tally.running)))


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def summary_line(tally: Tally) -> str:
    parts = [f"{tally.done}/{tally.total} done", f"{len(tally.running)} running"]
    for number, word in ((tally.failed, "failed"), (tally.stopped, "stopped"), (tally.elsewhere, "running elsewhere")):
        if number:
            parts.append(f"{number} {word}")
    parts.append(f"{tally.left} left")
    ahead = time_to_go(tally)
    if ahead is not None:
        parts.append(f"about {duration(ahead)} to go")
    return ", ".join(parts)


class Display:
    """Lines that stay, and on a terminal a block below them that is drawn anew."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.drawn = 0

    def line(self, text: str) -> None:
        self._erase()
        print(text, file=self.stream, flush=True)

    def show(self, tally: Tally) -> None:
        if not self.live:
            return
        width = shutil.get_terminal_size().columns - 1
        running = [f"  {duration(seconds):>8}  {title}" for title, seconds in tally.running.items()]
        block = [summary_line(tally), *running]
        self._erase()
        self._draw([line[:width] for line in block])

    def close(self) -> None:
        self._erase()

    def _draw(self, block: Sequence[str]) -> None:
        self.stream.write("".join(f"{line}\n" for line in block))
        self.stream.flush()
        self.drawn = len(block)

    def _erase(self) -> None:
        if self.drawn:
            self.stream.write(f"\x1b[{self.drawn}F\x1b[J")
            self.drawn = 0
