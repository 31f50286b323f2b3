"""Check that files on disk match a report. Numbers may differ by rounding errors, which depend on the processor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from semilearn_ext.errors import UserError

_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")
TOLERANCE = 1e-9
"""The largest relative difference of two numbers that are considered equal."""


def check_files(texts: Mapping[Path, str]) -> None:
    """Raise an error for the first file that is missing or differs from its text, with the line."""
    for path, text in texts.items():
        try:
            written = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; write it with the same command without --check") from None
        lines = zip_longest(text.split("\n"), written.split("\n"))
        for number, (expected, actual) in enumerate(lines, start=1):
            if not _is_same(expected, actual):
                raise UserError(
                    f"{path}:{number}: does not match the runs; write it again with the same command without --check "
                    f"(in the file: {_short(actual)}; from the runs: {_short(expected)})"
                )


def _is_same(first: str | None, second: str | None) -> bool:
    if first == second or first is None or second is None:
        return first == second
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=1e-12) for a, b in pairs)


def _short(line: str | None) -> str:
    if line is None:
        return "no such line"
    return repr(line if len(line) <= 80 else f"{line[:80]}…")
