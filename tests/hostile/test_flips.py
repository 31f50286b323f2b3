"""A sample of the changed bits; ``python -m tests.hostile flips`` runs thousands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.analysis.load_run import load_run
from semilearn_ext.engine import checkpoint
from semilearn_ext.errors import UserError
from semilearn_ext.report.records import read_run
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings
from tests.hostile import flips


def test_every_changed_bit_of_a_checkpoint_is_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = flips.small_checkpoint(tmp_path)
    assert checkpoint.load(path)["iteration"] == 6
    assert flips.in_checkpoint(path, 300) == {"flips": 300, "tracebacks": 0, "undetected": 0}, capsys.readouterr().out
    assert checkpoint.load(path)["iteration"] == 6


def test_every_changed_bit_of_a_finished_run_is_detected(
    tiny: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tiny()
    result = training.run(settings).result
    for name, counts in flips.in_records(settings, 12).items():
        assert counts == {"flips": 12, "tracebacks": 0, "undetected": 0}, (name, capsys.readouterr().out)
    assert training.run(settings).result == result


def test_a_changed_digit_is_one_line_and_a_result_without_checksums_is_read(tiny: Callable[..., Settings]) -> None:
    settings = tiny(num_train_iter=2)
    folder = RunFolder(run_path(settings))
    training.run(settings)
    written = folder.result_file.read_text()
    result = json.loads(written)
    accuracy = f'"last": {result["top1"]["last"]}'
    folder.result_file.write_text(written.replace(accuracy, '"last": 0.99'))
    for read in (lambda: read_run(folder), lambda: load_run(folder.path), lambda: training.run(settings)):
        with pytest.raises(UserError, match=r"result\.json: changed since the run wrote it") as caught:
            read()
        assert "\n" not in str(caught.value)
    del result["sha256"]
    folder.result_file.write_text(json.dumps(result))
    with pytest.raises(UserError, match="changed since the run wrote it"):
        folder.read_result()
    del result["files_sha256"]
    folder.result_file.write_text(json.dumps(result))
    assert training.run(settings).was_finished


def test_every_changed_bit_of_a_cache_is_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for counts in (flips.in_digits(tmp_path, 40), *flips.in_pixels(tmp_path, 40).values()):
        assert counts == {"flips": 40, "tracebacks": 0, "undetected": 0}, capsys.readouterr().out


@pytest.mark.parametrize("cut", [1, 2, 22, 64, 65, 86, 500])
def test_missing_and_additional_bytes_are_detected(cut: int, tmp_path: Path) -> None:
    path = flips.small_checkpoint(tmp_path)
    content = path.read_bytes()
    for changed in (content[:-cut], content + b"\0" * cut, content[cut:], content[:1000] + content[1000 + cut :]):
        path.write_bytes(changed)
        with pytest.raises(UserError, match="damaged checkpoint"):
            checkpoint.load(path)


def test_files_saved_by_torch_can_be_read(tmp_path: Path) -> None:
    torch.save({"iteration": 1}, tmp_path / "checkpoint_00000001.pt")
    assert checkpoint.load(tmp_path / "checkpoint_00000001.pt") == {"iteration": 1}


@pytest.mark.parametrize("state", [[], 3, {"iteration": "6"}, {"iteration": 7}, {}, torch.zeros(3), None])
def test_a_file_without_the_state_of_its_iteration_is_damaged(state: object, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "checkpoint_00000006.pt")
    with pytest.raises(UserError, match=r"00000006\.pt: damaged checkpoint"):
        checkpoint.load(tmp_path / "checkpoint_00000006.pt")
