"""No command runs code from untrusted files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import code


def test_code_in_untrusted_files_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = code.run(tmp_path)
    assert counts["cases"] >= 30
    assert (counts["code run"], counts["tracebacks"]) == (0, 0), capsys.readouterr().out
