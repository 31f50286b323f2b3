"""Types of command-line values that several commands share; argparse prints their errors as one line."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import Any

from semilearn_ext.errors import shown
from semilearn_ext.settings import extensions

MAX_COUNT, MAX_SEED = 10_000, 2**32 - 1
"""The largest count of anything, and the largest seed that all random number generators accept."""


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--trust`` to a command that reads runs, which may come from somebody else."""

    class Trust(argparse.Action):
        def __call__(self, *_: Any) -> None:
            extensions.trust_files()

    parser.add_argument(
        "--trust",
        action=Trust,
        nargs=0,
        default=argparse.SUPPRESS,
        help="run the Python extensions that config files and runs refer to or contain",
    )


def words(text: str) -> list[str]:
    """Parse a list of names such as ``"a,b"``."""
    items = text.replace(",", " ").split()
    if not items:
        raise argparse.ArgumentTypeError("expected names separated by commas")
    return items


def numbers(text: str) -> list[int]:
    """Parse a list of numbers such as ``"1-5"``, ``"1,3"`` or ``"1-3,7"``."""
    values: list[int] = []
    for word in words(text):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"expected numbers such as 1-5 or 1,3, got {text!r}")
        if max(len(first), len(last)) > len(str(MAX_SEED)) or int(last or first) > MAX_SEED:
            raise argparse.ArgumentTypeError(f"expected numbers of at most {MAX_SEED}, got {shown(word)}")
        if int(last or first) - int(first) + len(values) >= MAX_COUNT:
            raise argparse.ArgumentTypeError(f"{shown(text)} contains more than {MAX_COUNT} numbers")
        values += range(int(first), int(last or first) + 1)
    if not values:
        raise argparse.ArgumentTypeError(f"{text!r} is an empty range")
    return values


def positive(text: str) -> int:
    return number_between(1, MAX_COUNT)(text)


def number_between(smallest: int, largest: int) -> Callable[[str], int]:
    """The argument type of an integer in this range."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not smallest <= int(text) <= largest:
            raise argparse.ArgumentTypeError(f"expected a number from {smallest} to {largest}, got {shown(text)}")
        return int(text)

    return number


def real_between(smallest: float, largest: float) -> Callable[[str], float]:
    """The argument type of a real number in this range."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not smallest <= value <= largest:
            raise argparse.ArgumentTypeError(f"expected a number from {smallest:g} to {largest:g}, got {shown(text)}")
        return value

    return number


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return name.removeprefix("--"), value
