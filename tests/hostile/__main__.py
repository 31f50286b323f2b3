"""Run hostile cases and print counts.

python -m tests.hostile                              all: 200 kills, 5,000 changed bits, bad inputs, disks, code, …
python -m tests.hostile kills --count 40 --seed 1    a part of it, drawn with another seed
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.image_trees import write_images

ADAIN = Path(__file__).parents[3] / "shared" / "weights" / "adain"


def run_kills(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    import torch

    from tests.hostile import kills

    torch.set_num_threads(1)
    data = folder / "images"
    write_images(data, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "abcde"], count=8)
    common = {"data_dir": str(data), "cache_dir": str(folder / "cache"), "adain_dir": str(ADAIN)}
    cases = [case for case in kills.cases() if ADAIN.is_dir() or not case.algorithm.startswith("stylematch")]
    total, draw, began = Counter[str](), random.Random(seed), time.monotonic()
    draw.shuffle(cases)
    number = 0
    while number < len(cases) or total["kills"] < count:
        case = cases[number % len(cases)]
        case_folder = folder / f"case{number}"
        case_folder.mkdir()
        # The remaining kills are distributed over the remaining cases, so that every case is reached.
        share = -(-(count - total["kills"]) // max(1, len(cases) - number))
        outcome = kills.try_case(case, min(max(share, 1), 6), case_folder, draw, **common)
        total = Counter({name: total[name] + outcome[name] for name in outcome})
        shutil.rmtree(case_folder)
        number += 1
        print(f"{time.monotonic() - began:6.0f} s  {number} of {len(cases)}  {dict(total)}  {case}", flush=True)
    return {"cases": min(number, len(cases)), **total}


def run_flips(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    import torch

    from semilearn_ext import training
    from semilearn_ext.settings import settings_from
    from tests.hostile import flips

    torch.set_num_threads(1)
    each = -(-count // 11)
    settings = settings_from(**flips.SMALL, cache_dir=str(folder / "cache"), save_dir=str(folder / "runs"))
    training.run(settings)
    kinds = {
        "checkpoint": flips.in_checkpoint(flips.small_checkpoint(folder), each, seed),
        **flips.in_records(settings, each, seed),
        "digits_mini": flips.in_digits(folder, each, seed),
        **flips.in_pixels(folder, each, seed),
    }
    for kind, counts in kinds.items():
        print(f"{kind:<18}", dict(counts))
    return {name: sum(counts[name] for counts in kinds.values()) for name in ("flips", "tracebacks", "undetected")}


def run_swaps(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    import torch

    from tests.hostile import swaps

    torch.set_num_threads(1)
    return swaps.run(folder, count, seed)


def run_inputs(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    from tests.hostile import inputs

    return inputs.run(folder, count or None, seed)


def run_options(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    from tests.hostile import options

    return options.run(folder, count, seed)


def run_disks(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    import torch

    from tests.hostile import disks

    torch.set_num_threads(1)
    if reason := disks.why_not():
        print(f"no full or read-only file system: {reason}")
        return {"disks": 0}
    return disks.run(folder)


def run_code(folder: Path, count: int, seed: int) -> Mapping[str, int]:
    from tests.hostile import code

    return code.run(folder)


PARTS: dict[str, tuple[Callable[[Path, int, int], Mapping[str, int]], int]] = {
    "kills": (run_kills, 200),
    "flips": (run_flips, 5000),
    "swaps": (run_swaps, 600),
    "inputs": (run_inputs, 0),
    "options": (run_options, 600),
    "disks": (run_disks, 0),
    "code": (run_code, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--count", type=int, help="number of cases (default: depends on the part)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choice of cases (default: 0)")
    arguments = parser.parse_args()
    table = {}
    for name in arguments.parts or PARTS:
        call, count = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            table[name] = call(Path(folder), arguments.count or count, arguments.seed)
    for name, counts in table.items():
        print(f"{name:<8}", ", ".join(f"{count} {what}" for what, count in counts.items()))
    bad = ("differ", "failed", "tracebacks", "undetected", "accepted", "unreadable", "code run")
    sys.exit(1 if any(counts.get(what, 0) for counts in table.values() for what in bad) else 0)


if __name__ == "__main__":
    main()
