"""Every algorithm with two processes: both have the same weights, and a stopped run resumes bit for bit."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing

from semilearn_ext import distributed, registry, training
from semilearn_ext.data import cache
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.hooks import UpdateHook
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.ownership import claim
from semilearn_ext.settings import Settings
from tests.every_method import METHODS, active_loss

Tinier = Callable[..., Settings]
WORLD = 2


def is_trained(name: str) -> bool:
    """All bases, and every plug-in on one of them."""
    method = registry.parse_method(name, "")
    return not method.plugins or method.base == "fixmatch"


def test_every_algorithm_trains_and_resumes_with_two_processes(tinier: Tinier, tmp_path: Path) -> None:
    """The same two processes, forks of this one, train all algorithms."""
    values = {"batch_size": 8, "num_train_iter": 3, "num_eval_iter": 3, "checkpoint_every": 2}
    cases = [
        tinier(save_dir=str(tmp_path / step), **values, **active_loss(name, step))
        for name, step in METHODS
        if is_trained(name)
    ]
    assert len(cases) > 20
    multiprocessing.start_processes(_process, (cases, tmp_path), nprocs=WORLD, start_method="fork")
    for number, settings in enumerate(cases):
        first, second = (torch.load(tmp_path / f"{number}_{rank}.pt") for rank in range(WORLD))
        assert _same(first["model"], second["model"]), settings.algorithm
        if settings.base == "flexmatch":
            labels = [state["own"]["hooks"]["MaskingHook"]["selected_label"] for state in (first, second)]
            assert all((label >= 0).any() for label in labels)
            assert not torch.equal(*labels), "each process must count its own images"


def test_with_two_processes_a_late_checkpoint_has_the_state_of_its_step(tinier: Tinier, tmp_path: Path) -> None:
    """The first process writes it while both take the next step, and both resume from it bit for bit."""
    settings = tinier(batch_size=8, num_train_iter=4, num_eval_iter=4, checkpoint_every=2, algorithm="flexmatch")
    multiprocessing.start_processes(_write_late, (settings, tmp_path), nprocs=WORLD, start_method="fork")
    assert (tmp_path / "late_0").read_text() == "2 after step 3"
    assert not (tmp_path / "late_1").exists(), "only the first process writes"
    files = RunFolder(run_path(settings)).checkpoint_files()
    assert [checkpoint.load(file)["iteration"] for file in files] == [2, 4]


def test_an_error_while_writing_stops_both_processes(tinier: Tinier, tmp_path: Path) -> None:
    settings = tinier(batch_size=8, num_train_iter=400, num_eval_iter=400, checkpoint_every=2)
    multiprocessing.start_processes(_fail_to_write, (settings, tmp_path), nprocs=WORLD, start_method="fork")
    assert (tmp_path / "error_0").read_text() == "UserError: no space left"
    assert (tmp_path / "error_1").exists(), "the other process must not wait forever"
    assert not RunFolder(run_path(settings)).is_finished


def _write_late(rank: int, settings: Settings, folder: Path) -> None:
    # This is a separate process, so the replacements do not affect other tests.
    _connect(rank, folder)
    save, update, taken = checkpoint.save, UpdateHook.after_train_step, threading.Event()
    last: list[int] = []

    def late(path: Path, state: dict[str, Any]) -> Path:
        if state["iteration"] == 2:
            assert taken.wait(60)
            (folder / f"late_{rank}").write_text(f"2 after step {last[0]}")
        return save(path, state)

    def noted(self: UpdateHook, algorithm: Any) -> None:
        update(self, algorithm)
        if algorithm.it == 2:
            last.append(algorithm.it + 1)
            taken.set()

    checkpoint.save, UpdateHook.after_train_step = late, noted  # type: ignore[assignment, method-assign]
    with contextlib.redirect_stdout(io.StringIO()):
        _train_twice(settings)
    distributed.destroy()


def _fail_to_write(rank: int, settings: Settings, folder: Path) -> None:
    _connect(rank, folder)

    def failing(*_: Any) -> Path:
        raise UserError("no space left")

    checkpoint.save = failing  # type: ignore[assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _train_twice(settings)
    except Exception as error:
        (folder / f"error_{rank}").write_text(f"{type(error).__name__}: {error}")


def test_only_one_process_decodes_the_images(tinier: Tinier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_build", partial(_note_build, cache._build, tmp_path / "builds"))
    settings = tinier(batch_size=8, cache_dir=str(tmp_path / "cache"))
    multiprocessing.start_processes(_load, (settings, tmp_path), nprocs=WORLD, start_method="fork")
    assert (tmp_path / "builds").read_text() == "0\n"
    sizes = [(tmp_path / f"images_{rank}").read_text() for rank in range(WORLD)]
    assert sizes == ["120", "120"]


def _note_build(build: Callable[..., Any], notes: Path, *args: Any, **kwargs: Any) -> Any:
    with notes.open("a") as file:
        file.write(f"{os.environ['RANK']}\n")
    return build(*args, **kwargs)


def _load(rank: int, settings: Settings, folder: Path) -> None:
    _connect(rank, folder)
    context = make_context(settings, group=training.join_processes(settings))
    (folder / f"images_{rank}").write_text(str(len(context.data.store)))
    distributed.destroy()


def _connect(rank: int, folder: Path) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)


def _process(rank: int, cases: list[Settings], folder: Path) -> None:
    _connect(rank, folder)
    for number, settings in enumerate(cases):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                state = _train_twice(settings)
        except Exception as error:
            raise RuntimeError(f"{settings.algorithm}, step {settings.step}: {error}") from error
        torch.save({"model": state["model"], "own": state["processes"][rank]}, folder / f"{number}_{rank}.pt")
    distributed.destroy()


def _train_twice(settings: Settings) -> dict[str, Any]:
    """Train without interruption, and again from the checkpoint after two steps; return the final state of both."""
    group = training.join_processes(settings)
    folder = RunFolder(run_path(settings))
    if group.is_main:
        claim(folder, settings)
    group.barrier()
    context = make_context(settings, folder=folder, group=group)
    algorithm: Any = training.build(context)
    if hasattr(algorithm, "warmup"):
        algorithm.warmup()
    algorithm.train()
    uninterrupted = algorithm.state(3)
    resumed = training.build(replace(context, folder=None))
    resumed.restore(checkpoint.load(folder.checkpoint_files()[0]))
    resumed.train()
    state = resumed.state(3)
    for part in ("model", "optimizer", "ema"):
        assert _same(uninterrupted[part], state[part]), f"{part} differs after resuming"
    for expected, actual in zip(uninterrupted["processes"], state["processes"], strict=True):
        for part in ("algorithm", "random"):
            assert _same(expected[part], actual[part]), f"{part} differs after resuming"
        for hook in expected["hooks"].keys() & {"MaskingHook", "DistAlignHook"}:
            assert _same(expected["hooks"][hook], actual["hooks"][hook]), f"{hook} differs after resuming"
    return state


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)
