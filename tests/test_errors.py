"""Every way in which a command can end: an exit code and one line."""

from __future__ import annotations

import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext import errors
from semilearn_ext.errors import (
    Interrupted,
    UserError,
    did_you_mean,
    exit_code_of,
    show_warnings_on_one_line,
    shown,
)


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
def test_an_error_is_one_line_with_an_exit_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error)) == code
    assert capsys.readouterr().err == line + "\n"


def test_warnings_of_this_package_are_one_line_and_others_name_their_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    show_warnings_on_one_line()
    of_package, of_others = (
        warnings.formatwarning("slow\nhere", UserWarning, file, 3) for file in (errors.__file__, "/other/file.py")
    )
    assert of_package == "warning: slow here\n"
    assert of_others.startswith("/other/file.py:3: UserWarning: slow")


def test_other_errors_are_bugs_and_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code_of(raising(ZeroDivisionError()))


@pytest.mark.parametrize(
    "message", ["CUDA out of memory. Tried to allocate 20 GiB.\nmore", "DefaultCPUAllocator: can't allocate memory: x"]
)
def test_torch_without_memory_is_one_line(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(RuntimeError(message))) == 2
    first = message.split("\n")[0]
    assert capsys.readouterr().err == f"error: out of memory; lower batch_size or eval_batch_size ({first})\n"
    with pytest.raises(RuntimeError, match="shapes"):
        exit_code_of(raising(RuntimeError("shapes differ")))


def test_a_hint_is_given_only_for_similar_names() -> None:
    assert did_you_mean("zebra", ["seed", "lr"]) == ""
    assert did_you_mean("sede", ["seed", "lr"]) == "; did you mean 'seed'?"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "runs/a.json"), "error: runs/a.json: No space left on device"),
        (IsADirectoryError(21, "Is a directory", "out"), "error: out: Is a directory"),
        (MemoryError(), "error: out of memory (no more could be allocated); use smaller images or batches"),
        (UserError("a\x1b[31m\nb\udcff"), "error: a\\x1b[31m b\\udcff"),
    ],
)
def test_system_errors_and_control_characters_are_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error)) == 2
    assert capsys.readouterr().err == line + "\n"


def test_output_contains_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(lambda: print("a\tb\nred \x1b[31m \u202e \x07")) == 0
    assert capsys.readouterr().out == "a\tb\nred \\x1b[31m \\u202e \\x07\n"


def test_a_value_in_a_message_is_short() -> None:
    assert len(shown("x" * 10**6)) < 100
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    assert len(shown(nested)) < 100


def test_an_unknown_home_directory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(lambda: print(Path("~nobody_of_this_name/x").expanduser())) == 2
    assert capsys.readouterr().err.startswith("error: a path begins with '~', but that home directory is unknown")


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
def test_a_command_whose_streams_are_closed(streams: str) -> None:
    done = subprocess.run(f"{shlex.quote(sys.executable)} -m semilearn_ext --version {streams}", shell=True)
    assert done.returncode == 0
