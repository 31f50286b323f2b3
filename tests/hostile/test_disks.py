"""A full and a read-only disk: no command ends in a traceback, and each names the problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import disks


def test_no_command_fails_on_a_full_or_read_only_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := disks.why_not():
        pytest.skip(f"no file system can be mounted here: {reason}")
    counts = disks.run(tmp_path)
    assert counts["disks"] >= 40
    assert sum(counts.values()) == counts["disks"], capsys.readouterr().out
