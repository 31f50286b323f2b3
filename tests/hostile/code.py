"""Untrusted run folders, configs and plans that contain code. No command may run it without permission."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from semilearn_ext.runs.folder import RunFolder
from tests.hostile.commands import call
from tests.report.write_run import write_run


class Case(NamedTuple):
    """A command line, and the file that exists once foreign code has been run."""

    name: str
    words: list[str]
    sprung: Path


def cases(folder: Path) -> Iterator[Case]:
    """Every command on a foreign run, with the code outside the run and as its copy; files with telling names."""
    for place in ("outside", "copy"):
        run, sprung = _foreign_run(folder / place, place)
        image = folder / "image.png"
        commands = {
            "predict": ["predict", str(image), "--run", str(run)],
            "tsne": ["analyse", "tsne", "--run", str(run)],
            "landscape": ["analyse", "landscape", "--run", str(run)],
            "curves": ["analyse", "curves", str(run)],
            "confusion": ["analyse", "confusion", str(run)],
            "observation": ["analyse", "observation", str(run)],
            "tables": ["tables", str(run), "--out", str(folder / "out")],
            "train": ["train", "--c", str(run / "config.yaml"), "--dry_run"],
            "train again": ["train", "--c", str(run / "config.yaml"), "--save_dir", str(folder / place)],
            "sweep": ["sweep", "--c", str(run / "config.yaml"), "--dry_run"],
            "sweep status": ["sweep", "status", str(run)],
            "bench": ["bench", "step", "--c", str(run / "config.yaml"), "--steps", "1"],
        }
        for name, words in commands.items():
            yield Case(f"{name}, code {place}", words, sprung)
        job, sprung = _foreign_job(folder / f"job {place}")
        yield Case(f"job, code {place}", ["job", str(job)], sprung)
        yield Case(f"sweep retry, code {place}", ["sweep", "retry", str(folder / f"job {place}")], sprung)
    for name in ("python", "command line"):
        config, sprung = folder / name, folder / f"sprung {name}"
        config.write_text(f"extend: {_trap(folder / f'{name}.d', sprung)}\n")
        yield Case(f"a config called {name!r}", ["train", "--c", name, "--dry_run"], sprung)


def run(folder: Path) -> dict[str, int]:
    counts = {"cases": 0, "code run": 0, "tracebacks": 0}
    for case in cases(folder):
        outcome = call(case.words, folder)
        counts["cases"] += 1
        counts["code run"] += case.sprung.exists()
        counts["tracebacks"] += outcome.crashed
        if case.sprung.exists() or outcome.crashed:
            print(f"{case.name}: {outcome.errors[-300:]}")
            case.sprung.unlink(missing_ok=True)
    return counts


def _trap(folder: Path, sprung: Path) -> Path:
    folder.mkdir(parents=True)
    trap = folder / "trap.py"
    trap.write_text(f"from pathlib import Path\nPath({str(sprung)!r}).touch()\n")
    return trap


def _foreign_run(folder: Path, place: str) -> tuple[Path, Path]:
    run, sprung = write_run(folder / "runs", 80), folder / "sprung"
    trap = _trap(run / "extensions" if place == "copy" else folder / "elsewhere", sprung)
    config = {**yaml.safe_load((run / "config.yaml").read_text()), "extend": [str(trap)], "target_domain": "pen"}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run, sprung


def _foreign_job(folder: Path) -> tuple[Path, Path]:
    run = RunFolder(folder / "digits_mini" / "10lpc" / "fixmatch" / "pen" / "seed1")
    sprung = folder / "sprung"
    trap = _trap(folder / "elsewhere", sprung)
    settings = {"target_domain": "pen", "save_dir": str(folder), "extend": [str(trap)]}
    run.path.mkdir(parents=True)
    run.job_file.write_text(json.dumps({"cwd": str(folder), "settings": settings}))
    run.state_file.write_text(json.dumps({"state": "failed", "attempts": 1, "reason": "x"}))
    return run.path, sprung
