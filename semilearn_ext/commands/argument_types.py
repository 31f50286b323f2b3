"""Types of command-line values that several commands share; argparse turns their errors into one line."""

from __future__ import annotations

import argparse
from typing import Any

from semilearn_ext.settings import extensions


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option ``--trust`` of commands that read runs, which may be somebody else's."""

    class Trust(argparse.Action):
        def __call__(self, *_: Any) -> None:
            extensions.trust_files()

    parser.add_argument(
        "--trust",
        action=Trust,
        nargs=0,
        default=argparse.SUPPRESS,
        help="run the Python code that config files and runs name or hold copies of",
    )


def words(text: str) -> list[str]:
    """``"a,b"``."""
    items = text.replace(",", " ").split()
    if not items:
        raise argparse.ArgumentTypeError("expected names separated by commas")
    return items


def numbers(text: str) -> list[int]:
    """``"1-5"``, ``"1,3"`` or ``"1-3,7"``."""
    values: list[int] = []
    for word in words(text):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"expected numbers such as 1-5 or 1,3, got {text!r}")
        values += range(int(first), int(last or first) + 1)
    if not values:
        raise argparse.ArgumentTypeError(f"{text!r} is an empty range")
    return values


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return name.removeprefix("--"), value
