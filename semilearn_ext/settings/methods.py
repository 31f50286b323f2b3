"""The names ``algorithm`` may take and the options that go with each. Light: no torch, no USB."""

from __future__ import annotations

from collections.abc import Mapping

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.settings.usb_options import CANNOT_RUN, USB_OPTIONS, Option

# One line a method of our own: its name and its options.
OUR_OPTIONS: dict[str, dict[str, Option]] = {}

METHODS: dict[str, dict[str, Option]] = {
    **{name: options for name, options in USB_OPTIONS.items() if name not in CANNOT_RUN},
    **OUR_OPTIONS,
}


def options_of(algorithm: str, where: str) -> Mapping[str, Option]:
    """The options of ``algorithm``, or a UserError that says why there are none."""
    if algorithm in CANNOT_RUN:
        raise UserError(f"{where}: USB's {algorithm} cannot run in this setting: {CANNOT_RUN[algorithm]}")
    if algorithm not in METHODS:
        hint = did_you_mean(algorithm, METHODS) or f" (known: {', '.join(sorted(METHODS))})"
        raise UserError(f"{where}: {algorithm!r} is not a known algorithm{hint}")
    return METHODS[algorithm]


def methods_with(option: str) -> list[str]:
    """The algorithms that have ``option``, by name."""
    return sorted(name for name, options in METHODS.items() if option in options)
