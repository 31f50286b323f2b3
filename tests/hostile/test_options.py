"""A sample of the options; ``python -m tests.hostile options`` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import options


def test_no_option_value_causes_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = options.run(tmp_path, count=60)
    assert counts == {"options": 60, "tracebacks": 0, "accepted": 0, "unreadable": 0}, capsys.readouterr().out
