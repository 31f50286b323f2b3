"""A slice of the changed bits; ``python -m tests.hostile flips`` runs thousands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from semilearn_ext.engine import checkpoint
from semilearn_ext.errors import UserError
from tests.hostile import flips


def test_every_changed_bit_of_a_checkpoint_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = flips.small_checkpoint(tmp_path)
    assert checkpoint.load(path)["iteration"] == 6
    assert flips.in_checkpoint(path, 300) == {"flips": 300, "tracebacks": 0, "undetected": 0}, capsys.readouterr().out
    assert checkpoint.load(path)["iteration"] == 6


@pytest.mark.parametrize("cut", [1, 2, 22, 64, 65, 86, 500])
def test_bytes_that_are_missing_or_too_many_are_noticed(cut: int, tmp_path: Path) -> None:
    path = flips.small_checkpoint(tmp_path)
    content = path.read_bytes()
    for changed in (content[:-cut], content + b"\0" * cut, content[cut:], content[:1000] + content[1000 + cut :]):
        path.write_bytes(changed)
        with pytest.raises(UserError, match="damaged checkpoint"):
            checkpoint.load(path)


def test_what_torch_itself_saved_can_be_read(tmp_path: Path) -> None:
    torch.save({"iteration": 1}, tmp_path / "checkpoint_00000001.pt")
    assert checkpoint.load(tmp_path / "checkpoint_00000001.pt") == {"iteration": 1}


@pytest.mark.parametrize("state", [[], 3, {"iteration": "6"}, {"iteration": 7}, {}, torch.zeros(3), None])
def test_a_file_that_is_no_state_of_this_iteration_is_damaged(state: object, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "checkpoint_00000006.pt")
    with pytest.raises(UserError, match=r"00000006\.pt: damaged checkpoint"):
        checkpoint.load(tmp_path / "checkpoint_00000006.pt")
