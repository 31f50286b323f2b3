"""The table of USB's options is what the installed wheel says."""

from __future__ import annotations

from semilearn.core.utils import ALGORITHMS

import semilearn_ext.algorithms  # noqa: F401
from semilearn_ext.settings.usb_options import USB_OPTIONS


def test_every_algorithm_of_the_wheel_is_in_the_table() -> None:
    names = ALGORITHMS.keys()  # USB's registry is not a mapping
    in_wheel = {name for name in names if ALGORITHMS[name].__module__.startswith("semilearn.")}
    assert in_wheel == set(USB_OPTIONS)


def test_names_defaults_and_types_are_the_wheels() -> None:
    for name, options in USB_OPTIONS.items():
        declared = {entry.name.removeprefix("--"): entry for entry in ALGORITHMS[name].get_argument()}
        assert {key: option.default for key, option in options.items()} == {
            key: entry.default for key, entry in declared.items()
        }, name
        for key, entry in declared.items():
            kind = bool if entry.type.__name__ == "str2bool" else entry.type
            assert type(options[key].default) is kind, (name, key)
