"""Runs that are killed at chosen moments and resumed, over every algorithm, both steps and loaders with workers.

A run is a fork of this process that ends itself with SIGKILL when it reaches the n-th occurrence of a moment: before a
file is flushed or renamed, after it, before one is removed, in the middle of an appended line, before a batch, before
an update, inside an evaluation. After it was resumed as often as it was killed, it must equal a run that was not
interrupted, bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from semilearn_ext import files, training
from semilearn_ext.engine import checkpoint, evaluation
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.hooks import UpdateHook
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from
from tests.every_method import METHODS, active_loss

WITH_PLUGINS = ("fixmatch_upcsc", "fixmatch_fbcsa", "fixmatch_dgwm", "freematch_upcsc", "stylematch_upcsc")
MOMENTS = ("flush", "rename", "renamed", "remove", "append", "batch", "update", "evaluate")


class Case(NamedTuple):
    algorithm: str
    step: str
    workers: int

    def settings(self, save_dir: Path, **common: Any) -> Settings:
        values = {
            "dataset": "folder",
            "target_domain": "pen",
            "img_size": 16,
            "labels_per_class": 2,
            "batch_size": 4,
            "num_train_iter": 8,
            "num_eval_iter": 3,
            "checkpoint_every": 2,
            "num_workers": self.workers,
            "lr": 0.03,
            "device": "cpu",
            "progress": False,
            "save_dir": str(save_dir),
        }
        return settings_from(**{**values, **active_loss(self.algorithm, self.step), **common})


def cases(workers: tuple[int, ...] = (0, 2)) -> Iterator[Case]:
    """Every algorithm with every step that it supports, without plug-ins, and some with plug-ins."""
    for count in workers:
        for algorithm, step in METHODS:
            if "_" not in algorithm or algorithm in WITH_PLUGINS:
                yield Case(algorithm, step, count)


class _Killer:
    """Ends the process at the ``number``-th occurrence of ``moment``; counts all of them."""

    def __init__(self, moment: str, number: int) -> None:
        self.moment, self.number = moment, number
        self.counts: Counter[str] = Counter()

    def reach(self, moment: str) -> None:
        self.counts[moment] += 1
        if moment == self.moment and self.counts[moment] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        self._before(os, "fsync", "flush")
        self._before(os, "replace", "rename", after="renamed")
        self._before(os, "unlink", "remove")
        self._before(files, "open_to_append", "append")
        self._before(SSDGBase, "process_batch", "batch")
        self._before(UpdateHook, "after_train_step", "update")
        self._before(evaluation, "measure", "evaluate")

    def _before(self, owner: Any, name: str, moment: str, after: str = "") -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def watched(*values: Any, **named: Any) -> Any:
            self.reach(moment)
            result = original(*values, **named)
            if after:
                self.reach(after)
            return result

        setattr(owner, name, watched)


def run(settings: Settings, moment: str = "", number: int = 0, counted: Path | None = None) -> int:
    """Train in a fork; its exit code, which is -9 if it was killed. ``counted``: file for the number of occurrences."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(600)
            output = os.open(os.devnull, os.O_WRONLY)
            os.dup2(output, 1)
            killer = _Killer(moment, number)
            killer.install()
            training.run(settings)
            if counted is not None:
                counted.write_text(json.dumps(killer.counts))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_equal(first: object, second: object) -> bool:
    """Whether two states have the same bits."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.dtype == second.dtype and first.shape == second.shape and _bits(first) == _bits(second)
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(is_equal(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(is_equal, first, second))
    return type(first) is type(second) and (first == second or (first != first and second != second))


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def differences(settings: Settings, resumed: Settings) -> list[str]:
    """The parts in which two finished runs differ."""
    first, second = (RunFolder(run_path(each)) for each in (settings, resumed))
    states = [checkpoint.load(folder.checkpoint_files()[-1]) for folder in (first, second)]
    parts = [name for name in states[0] if name not in _TIMES and not is_equal(states[0][name], states[1].get(name))]
    records = [
        [{k: v for k, v in line.items() if k not in _TIMES} for line in f.read_metrics()] for f in (first, second)
    ]
    results = [_without_times(folder.read_result()) for folder in (first, second)]
    parts += ["metrics.jsonl"] if records[0] != records[1] else []
    parts += ["result.json"] if results[0] != results[1] else []
    parts += ["temporary files"] if list(second.path.glob(".*.tmp")) else []
    return parts


_TIMES = ("seconds", "metrics", "metrics_sha256", "details_sha256", "files_sha256")
"""Fields that contain times; metrics are compared without them."""


def _without_times(result: dict[str, Any]) -> dict[str, Any]:
    metrics = {name: value for name, value in result["metrics"].items() if name not in _TIMES}
    return {**{name: value for name, value in result.items() if name not in _TIMES}, "metrics": metrics}


def try_case(case: Case, kills: int, folder: Path, draw: random.Random, **common: Any) -> Counter[str]:
    """One case: an uninterrupted run, and one that is killed ``kills`` times and resumed."""
    uninterrupted = case.settings(folder / "uninterrupted", **common)
    interrupted = case.settings(folder / "interrupted", **common)
    counts = Counter[str](kills=0, late=0, runs=1, differ=0, failed=0)
    if run(uninterrupted, counted=folder / "counts.json") != 0:
        print(f"{case}: does not train")
        return counts + Counter(failed=1)
    times = json.loads((folder / "counts.json").read_text())
    occurrences = {moment: times[moment] for moment in MOMENTS if times.get(moment)}
    for kill in range(kills):
        moment = draw.choice(list(occurrences))
        # Later kills occur soon after resuming, because the run must not be finished by then.
        number = draw.randint(1, max(1, occurrences[moment] // (4 if kill else 2)))
        code = run(interrupted, moment, number)
        counts["kills"] += code == -signal.SIGKILL
        if code == 0:
            counts["late"] += 1
            break
        if code != -signal.SIGKILL:
            print(f"{case}: exit code {code} instead of being killed at {moment} {number}")
            return counts + Counter(failed=1)
    if run(interrupted) != 0:
        print(f"{case}: does not resume")
        return counts + Counter(failed=1)
    parts = differences(uninterrupted, interrupted)
    if parts:
        print(f"{case}: differs in {', '.join(parts)}")
        counts["differ"] += 1
    return counts
