"""Checkpoints that are written in the background have the same guarantees as those written while training waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.checkpoint_writer import CheckpointWriter, copied
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings

Tiny = Callable[..., Settings]


def test_a_checkpoint_has_the_state_of_its_step_even_if_written_late(tmp_path: Path, monkeypatch: Any) -> None:
    go, save = threading.Event(), checkpoint.save

    def late(folder: Path, state: dict[str, Any]) -> Path:
        assert go.wait(10)
        return save(folder, state)

    monkeypatch.setattr(checkpoint, "save", late)
    weights = torch.zeros(3)
    with CheckpointWriter() as writer:
        writer.save(tmp_path, {"iteration": 1, "nested": [{"weights": weights}]})
        weights += 1  # the next step
        assert not list(tmp_path.iterdir())
        go.set()
    (file,) = tmp_path.iterdir()
    assert checkpoint.load(file)["nested"][0]["weights"].tolist() == [0, 0, 0]


def test_a_network_is_copied_with_the_versions_of_its_layers() -> None:
    network = torch.nn.BatchNorm2d(2)
    state = copied(network.state_dict())
    assert state._metadata == network.state_dict()._metadata
    network.running_mean += 1
    assert state["running_mean"].tolist() == [0, 0]


def failing(*_: Any) -> Path:
    raise UserError("no space left")


def test_an_error_while_writing_stops_the_run(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "save", failing)
    with pytest.raises(UserError, match="no space left"):
        training.run(tiny(num_train_iter=4, num_eval_iter=1))
    with pytest.raises(UserError, match="no space left"):
        training.run(tiny(num_train_iter=1, overwrite=True))
    assert not RunFolder(run_path(tiny())).is_finished


def test_a_run_that_fails_waits_for_its_checkpoint(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be written after the lock of the folder has been released."""
    save, written = checkpoint.save, []

    def slow(folder: Path, state: dict[str, Any]) -> Path:
        threading.Event().wait(0.5)
        written.append(save(folder, state))
        return written[-1]

    monkeypatch.setattr(checkpoint, "save", slow)

    def broken(self: Any, algorithm: Any) -> None:
        if algorithm.it == 2:
            raise RuntimeError("broken")

    monkeypatch.setattr("semilearn_ext.engine.hooks.LoaderSeekHook.before_train_step", broken)
    with pytest.raises(RuntimeError, match="broken"):
        training.run(tiny(num_train_iter=4, num_eval_iter=2))
    assert [path.name for path in written] == ["checkpoint_00000002.pt"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]
