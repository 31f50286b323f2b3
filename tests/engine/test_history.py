"""The evaluations of a run are part of its checkpoint, so damage to metrics.jsonl does not change results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext import training
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings
from tests.engine.test_resume import metrics_without_time

Tiny = Callable[..., Settings]


def change_accuracy(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["target/top1"] = lines[0]["source_val/top1"] = 1.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_text(""),
    "cut": lambda path: path.write_text(path.read_text()[:-20]),
    "first line lost": lambda path: path.write_text(path.read_text().partition("\n")[2]),
    "an accuracy changed": change_accuracy,
    "other text": lambda path: path.write_text("<html>\n"),
    "other lines": lambda path: path.write_text('{"iteration": "x"}\n{}\n'),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("damage", [name for name in DAMAGE if name != "a folder"])
def test_a_resumed_run_has_all_its_evaluations(
    damage: str, tinier: Tiny, stop_after: Any, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    settings = tinier(num_train_iter=4, num_eval_iter=1, algorithm="supervised")
    if not uninterrupted:
        reference = tinier(
            num_train_iter=4, num_eval_iter=1, algorithm="supervised", save_dir=str(tmp_path / "uninterrupted")
        )
        uninterrupted["result"] = training.run(reference).result
        uninterrupted["metrics"] = metrics_without_time(run_path(reference))
    stop_after(settings, 3)
    folder = RunFolder(run_path(settings))
    DAMAGE[damage](folder.metrics_file)
    with pytest.warns(UserWarning, match=r"metrics.jsonl: does not match the evaluations of this run; restored"):
        result = training.run(settings).result
    assert result["top1"] == uninterrupted["result"]["top1"]
    assert metrics_without_time(folder.path) == uninterrupted["metrics"]
    assert "restored from its checkpoint" in folder.log_file.read_text()


def test_details_lost_before_the_result_is_written_are_restored(tiny: Tiny) -> None:
    settings = tiny(num_train_iter=2, algorithm="supervised")
    before = training.run(settings).result
    folder = RunFolder(run_path(settings))
    details = folder.details_file.read_bytes()
    folder.result_file.unlink()
    folder.details_file.unlink()
    folder.metrics_file.unlink()
    with pytest.warns(UserWarning, match="restored from its checkpoint"):
        assert training.run(settings).result == before
    assert folder.details_file.read_bytes() == details


@pytest.mark.parametrize("damage", DAMAGE)
def test_changed_evaluations_of_a_finished_run_are_detected(damage: str, tinier: Tiny) -> None:
    settings = tinier(num_train_iter=2, num_eval_iter=1, algorithm="supervised")
    training.run(settings)
    folder = RunFolder(run_path(settings))
    assert len(folder.read_metrics()) == 2
    DAMAGE[damage](folder.metrics_file)
    with pytest.raises(UserError, match=r"metrics\.jsonl: does not match the result of the run"):
        folder.read_metrics()
