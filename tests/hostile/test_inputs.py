"""A sample of the bad inputs; ``python -m tests.hostile inputs`` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import inputs


def test_bad_inputs_are_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = inputs.run(tmp_path, count=150)
    assert counts["inputs"] == 150
    assert (counts["tracebacks"], counts["accepted"], counts["unreadable"]) == (0, 0, 0), capsys.readouterr().out
