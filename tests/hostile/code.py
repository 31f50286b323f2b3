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
    """A command line, and the file that untrusted code creates when it is run."""

    name: str
    words: list[str]
    created: Path


def cases(folder: Path) -> Iterator[Case]:
    """Every command on an untrusted run, with code outside the run or copied into it; configs with special names."""
    for place in ("outside", "copy"):
        run, created = _untrusted_run(folder / place, place)
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
            yield Case(f"{name}, code {place}", words, created)
        job, created = _untrusted_job(folder / f"job {place}")
        yield Case(f"job, code {place}", ["job", str(job)], created)
        yield Case(f"sweep retry, code {place}", ["sweep", "retry", str(folder / f"job {place}")], created)
    for name in ("python", "command line"):
        config, created = folder / name, folder / f"created {name}"
        config.write_text(f"extend: {_trap(folder / f'{name}.d', created)}\n")
        yield Case(f"a config called {name!r}", ["train", "--c", name, "--dry_run"], created)


def run(folder: Path) -> dict[str, int]:
    counts = {"cases": 0, "code run": 0, "tracebacks": 0}
    for case in cases(folder):
        outcome = call(case.words, folder)
        counts["cases"] += 1
        counts["code run"] += case.created.exists()
        counts["tracebacks"] += outcome.crashed
        if case.created.exists() or outcome.crashed:
            print(f"{case.name}: {outcome.errors[-300:]}")
            case.created.unlink(missing_ok=True)
    return counts


def _trap(folder: Path, created: Path) -> Path:
    folder.mkdir(parents=True)
    trap = folder / "trap.py"
    trap.write_text(f"from pathlib import Path\nPath({str(created)!r}).touch()\n")
    return trap


def _untrusted_run(folder: Path, place: str) -> tuple[Path, Path]:
    run, created = write_run(folder / "runs", 80), folder / "created"
    trap = _trap(run / "extensions" if place == "copy" else folder / "elsewhere", created)
    config = {**yaml.safe_load((run / "config.yaml").read_text()), "extend": [str(trap)], "target_domain": "pen"}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run, created


def _untrusted_job(folder: Path) -> tuple[Path, Path]:
    run = RunFolder(folder / "digits_mini" / "10lpc" / "fixmatch" / "pen" / "seed1")
    created = folder / "created"
    trap = _trap(folder / "elsewhere", created)
    settings = {"target_domain": "pen", "save_dir": str(folder), "extend": [str(trap)]}
    run.path.mkdir(parents=True)
    run.job_file.write_text(json.dumps({"cwd": str(folder), "settings": settings}))
    run.state_file.write_text(json.dumps({"state": "failed", "attempts": 1, "reason": "x"}))
    return run.path, created
