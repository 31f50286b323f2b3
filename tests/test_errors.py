"""Every way out of a command: an exit code and one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from semilearn_ext.errors import Interrupted, UserError, did_you_mean, exit_code_of


def raising(error: BaseException) -> Callable[[], None]:
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("a.yaml: seed: wrong"), 2, "error: a.yaml: seed: wrong"),
        (Interrupted("stopped after iteration 3"), 130, "stopped after iteration 3"),
        (KeyboardInterrupt(), 130, "interrupted; re-run the same command to continue"),
    ],
)
def test_one_line_and_a_code(error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(error)) == code
    assert capsys.readouterr().err == line + "\n"


def test_other_errors_are_bugs_and_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code_of(raising(ZeroDivisionError()))


def test_nothing_near_no_hint() -> None:
    assert did_you_mean("zebra", ["seed", "lr"]) == ""
    assert did_you_mean("sede", ["seed", "lr"]) == "; did you mean 'seed'?"
