"""A full and a read-only file system for everything that a command writes: one line, exit code 2, no partial file.

The file systems are real (tmpfs), which requires permission to mount them; otherwise there are no cases.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semilearn_ext import training
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import settings_from
from tests.hostile.commands import Outcome, call
from tests.hostile.flips import SMALL
from tests.image_trees import write_images
from tests.report.write_run import domains, write_run

KINDS = ("full", "read-only")
_TRAINING = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]


def why_not() -> str:
    """Why no file system can be mounted here, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, text=True, check=False)
        if process.returncode == 0:
            subprocess.run(["umount", folder], check=True)
    return process.stderr.strip()


@contextmanager
def mounted(folder: Path, kind: str) -> Iterator[None]:
    """An empty file system in ``folder`` that is full or read-only."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    try:
        (folder / "README.md").write_text("<!-- list: methods -->\n<!-- end of list -->\n")
        (folder / "empty").mkdir()
        if kind == "full":
            _fill(folder / "filler")
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def commands(folder: Path, disk: Path) -> dict[str, list[str]]:
    """Every option that names an output location, with that location on ``disk``."""
    cache = folder / "cache"
    settings = settings_from(**SMALL, cache_dir=str(cache), save_dir=str(folder / "runs"))
    training.run(settings)
    run, runs, own = str(run_path(settings)), str(folder / "runs"), folder / "own"
    write_images(own, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "ab"], count=6)
    compared = folder / "compared"
    for plugins in ([], ["upcsc"]):
        for target in domains("digits_mini"):
            write_run(compared, 80, target_domain=target, plugins=plugins)
    image = str(next(own.rglob("*.jpg")))
    out = ["--out", str(disk / "out")]
    saved = [*_TRAINING, "--cache_dir", str(cache), "--save_dir", str(disk / "runs")]
    of_own = ["--dataset", "folder", "--data_dir", str(own), "--img_size", "16", "--labels_per_class", "1"]
    digits = ["--c", "fixmatch_digits_mini.yaml"]
    return {
        "train --save_dir": ["train", *digits, *saved],
        "train --save_dir, an existing folder": ["train", *saved, "--save_dir", str(disk / "empty")],
        "train --cache_dir": [
            *("train", *_TRAINING, *of_own, "--batch_size", "4", "--save_dir", str(folder / "other")),
            *("--cache_dir", str(disk / "cache")),
        ],
        "train with TensorBoard": ["train", *saved, "--use_tensorboard", "true"],
        "sweep --save_dir": ["sweep", *digits, *saved, "--seeds", "1-2"],
        "select --save_dir": ["select", *digits, *saved, "--grid", "lr=0.1,0.2", "--dev_seeds", "11"],
        "select --out": [
            *("select", *digits, *_TRAINING, "--cache_dir", str(cache), "--save_dir", str(folder / "trials")),
            *("--grid", "lr=0.1,0.2", "--dev_seeds", "11", *out),
        ],
        "reproduce --save_dir": [
            *("reproduce", "digits_mini", "--seeds", "1", "--methods", "fixmatch"),
            *("--cache_dir", str(cache), "--save_dir", str(disk / "runs")),
        ],
        "records": ["records", runs, *out],
        "tables": ["tables", runs, *out],
        "tables, one file": ["tables", runs, "--out", str(disk / "out.md")],
        "tables, an existing folder": ["tables", runs, "--out", str(disk / "empty")],
        "claims": ["claims", runs, "--out", str(disk / "claims.md")],
        "curves": ["analyse", "curves", runs, *out],
        "gains": ["analyse", "gains", str(compared), *out],
        "confusion": ["analyse", "confusion", runs, *out],
        "reliability": ["analyse", "reliability", runs, *out],
        "observation": ["analyse", "observation", run, *out],
        "tsne": ["analyse", "tsne", "--run", run, "--limit", "30", *out],
        "landscape": ["analyse", "landscape", "--run", run, "--images", "8", "--points", "3", "--float32", *out],
        "predict": ["predict", image, "--run", run, "--out", str(disk / "out.csv")],
        "data show": [
            *("data", "show", "folder", "--data_dir", str(own), "--out", str(disk / "a.png"), "--size", "16"),
            *("--cache_dir", str(cache)),
        ],
        "data split": ["data", "split", "folder", "--data_dir", str(own), "--labels", "1", *out],
        "list --markdown": ["list", "--markdown", str(disk / "README.md")],
    }


def run(folder: Path, kinds: tuple[str, ...] = KINDS) -> Counter[str]:
    counts = Counter[str](disks=0, tracebacks=0, accepted=0, unreadable=0)
    disk = folder / "disk"
    for name, words in commands(folder, disk).items():
        for kind in kinds:
            with mounted(disk, kind):
                outcome = call(words, folder)
                partial_files = [path for path in disk.rglob("*") if path.name.endswith(".tmp")]
            counts["disks"] += 1
            wrong = problem(outcome, kind) or ("unreadable" if partial_files else "")
            if wrong:
                counts[wrong] += 1
                print(
                    f"{wrong}: {name}, {kind}: exit code {outcome.code}: {outcome.errors[-400:]!r} {partial_files}",
                    flush=True,
                )
    return counts


def problem(outcome: Outcome, kind: str) -> str:
    """``tracebacks``, ``accepted``, ``unreadable``, or nothing: one line that says what is wrong with the disk."""
    if outcome.crashed:
        return "tracebacks"
    if outcome.code != 2:
        return "accepted"
    reason = "No space left on device" if kind == "full" else "Read-only file system"
    return "" if outcome.is_one_line and reason in outcome.errors else "unreadable"
