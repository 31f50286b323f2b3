"""No command runs code that a stranger's files name, and the user's own is run as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import code


def test_no_code_of_a_stranger_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = code.run(tmp_path)
    assert counts["cases"] >= 30
    assert (counts["code run"], counts["tracebacks"]) == (0, 0), capsys.readouterr().out
