"""Single changed bits in the files of a run: each is detected, or does not affect any number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semilearn_ext import training
from semilearn_ext.analysis.load_run import load_run
from semilearn_ext.data import digits_generator
from semilearn_ext.data.cache import open_cache
from semilearn_ext.data.digits_generator import DomainImages
from semilearn_ext.engine import checkpoint
from semilearn_ext.errors import UserError
from semilearn_ext.report.records import read_run
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings
from tests.image_trees import write_images

SMALL: dict[str, Any] = {
    "target_domain": "pen",
    "labels_per_class": 5,
    "batch_size": 6,
    "num_train_iter": 4,
    "num_eval_iter": 2,
    "device": "cpu",
    "progress": False,
    "average": "none",
}
"""Settings of a run that takes a second."""


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
    """Half of them anywhere, half among the first and last bytes, which describe the structure of a file."""
    edge = min(size, 600)
    anywhere = [draw.randrange(size) for _ in range(count - count // 2)]
    return anywhere + [draw.choice((draw.randrange(edge), size - 1 - draw.randrange(edge))) for _ in range(count // 2)]


def in_file(path: Path, count: int, seed: int, readers: Sequence[Callable[[], object]]) -> Counter[str]:
    """Flips in one file: each of ``readers`` must raise a UserError, whichever bit it is."""
    draw, counts = random.Random(seed), Counter[str](flips=0, tracebacks=0, undetected=0)
    for position in positions(path.stat().st_size, count, draw):
        bit = draw.randrange(8)
        with flipped(path, position, bit):
            counts["flips"] += 1
            for outcome in {_outcome(read, f"{path.name}: bit {bit} of byte {position}") for read in readers} - {""}:
                counts[outcome] += 1
    return counts


def _outcome(read: Callable[[], object], where: str) -> str:
    try:
        read()
    except UserError:
        return ""
    except Exception as error:
        print(f"{where}: {type(error).__name__}: {error}")
        return "tracebacks"
    print(f"{where}: not detected")
    return "undetected"


def in_checkpoint(path: Path, count: int, seed: int = 0) -> Counter[str]:
    return in_file(path, count, seed, [lambda: checkpoint.load(path)])


def in_records(settings: Settings, count: int, seed: int = 0) -> dict[str, Counter[str]]:
    """Flips in the files of a finished run, by file: tables, analyses and training detect all of them."""
    folder = RunFolder(run_path(settings))

    def train() -> object:
        return training.run(settings)

    def analyse() -> object:
        return load_run(folder.path)

    tables: dict[Path, Callable[[], Any]] = {
        folder.result_file: lambda: read_run(folder),
        folder.config_file: lambda: read_run(folder),
        folder.identity_file: lambda: read_run(folder),
        folder.environment_file: lambda: read_run(folder),
        folder.split_file: lambda: read_run(folder),
        folder.metrics_file: folder.read_metrics,
        folder.details_file: folder.read_details,
    }
    return {path.name: in_file(path, count, seed, [read, analyse, train]) for path, read in tables.items()}


def in_digits(folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Flips in the cache of digits_mini: it is not used, or its content is the same."""
    path, draw = folder / "digits.npz", np.random.default_rng(0)
    domains = {
        name: DomainImages(draw.integers(0, 256, (2, 32, 32, 3), np.uint8), np.arange(2), (f"{name}/a", f"{name}/b"))
        for name in digits_generator.DOMAINS
    }
    digits_generator._write_cache(path, domains)

    def read() -> None:
        with redirect_stderr(StringIO()):
            domains_read = digits_generator._read_cache(path)
        if domains_read is None or _same_arrays(domains_read, domains):
            raise UserError("detected, or no difference")

    return in_file(path, count, seed, [read])


def _same_arrays(first_domains: dict[str, DomainImages], second_domains: dict[str, DomainImages]) -> bool:
    first, second = (digits_generator._arrays(domains) for domains in (first_domains, second_domains))
    return all(np.array_equal(first[name], second[name]) for name in second)


def in_pixels(folder: Path, count: int, seed: int = 0) -> dict[str, Counter[str]]:
    """Flips in the cache of decoded images and in its description: the images that a run gets are the same."""
    root, cache = folder / "images", folder / "cache"
    write_images(root, ["a", "b"], count=2)
    names = [f"{label}/pic_{k:03d}.jpg" for label in "ab" for k in range(2)]
    rows = torch.arange(4)

    def open_again() -> torch.Tensor:
        with redirect_stderr(StringIO()):
            return open_cache(root, names, 16, cache, progress=False).squashed[rows]

    expected = open_again()

    def read() -> None:
        if torch.equal(open_again(), expected):
            raise UserError("repaired, or no difference")

    pixels = next(cache.glob("images-*.uint8"))
    return {
        "image cache": in_file(pixels, count, seed, [read]),
        "its description": in_file(pixels.with_suffix(".json"), count, seed, [read]),
    }


def small_checkpoint(folder: Path) -> Path:
    """A checkpoint with all kinds of values, small enough to flip thousands of its bits."""
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
