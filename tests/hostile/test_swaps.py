"""A sample of the values of other types; ``python -m tests.hostile swaps`` runs hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import swaps


def test_no_value_of_another_type_causes_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = swaps.run(tmp_path, count=10)
    assert counts == {"swaps": 10, "tracebacks": 0, "unreadable": 0}, capsys.readouterr().out
