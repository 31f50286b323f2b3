"""Single changed bits in the files of a run: every one is noticed, or makes no difference to any number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from semilearn_ext.engine import checkpoint
from semilearn_ext.errors import UserError


@contextmanager
def flipped(path: Path, position: int, bit: int) -> Iterator[None]:
    """``path`` with one bit changed."""
    with path.open("r+b") as file:
        file.seek(position)
        before = file.read(1)
        file.seek(position)
        file.write(bytes([before[0] ^ (1 << bit)]))
    try:
        yield
    finally:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(before)


def positions(size: int, count: int, draw: random.Random) -> list[int]:
    """Half of them anywhere, half in the first and last bytes, where the structure of a file is."""
    edge = min(size, 600)
    anywhere = [draw.randrange(size) for _ in range(count - count // 2)]
    return anywhere + [draw.choice((draw.randrange(edge), size - 1 - draw.randrange(edge))) for _ in range(count // 2)]


def in_checkpoint(path: Path, count: int, seed: int = 0) -> Counter[str]:
    """Flips in a checkpoint: loading it must raise a UserError, whichever bit it is."""
    draw, counts = random.Random(seed), Counter[str](flips=0, tracebacks=0, undetected=0)
    for position in positions(path.stat().st_size, count, draw):
        bit = draw.randrange(8)
        with flipped(path, position, bit):
            _count(counts, lambda: checkpoint.load(path), f"{path.name}: bit {bit} of byte {position}")
    return counts


def _count(counts: Counter[str], read: Callable[[], object], where: str) -> None:
    counts["flips"] += 1
    try:
        read()
    except UserError:
        return
    except Exception as error:
        counts["tracebacks"] += 1
        print(f"{where}: {type(error).__name__}: {error}")
        return
    counts["undetected"] += 1
    print(f"{where}: not noticed")


def small_checkpoint(folder: Path) -> Path:
    """A checkpoint of the usual kinds of values, small enough to flip thousands of its bits."""
    generator = torch.Generator().manual_seed(0)
    state = {
        "iteration": 6,
        "seconds": 1.5,
        "model": {f"layer{k}.weight": torch.rand(16, 4, generator=generator) for k in range(4)},
        "optimizer": {"state": {0: {"momentum_buffer": torch.zeros(16, 4)}}, "param_groups": [{"lr": 0.1}]},
        "hooks": {"MaskingHook": {"p_model": torch.full((10,), 0.1), "time_p": 0.1, "p_hist": None}},
        "random": [{"torch": torch.get_rng_state(), "python": [3, list(range(625)), None]}],
    }
    return checkpoint.save(folder, state)
