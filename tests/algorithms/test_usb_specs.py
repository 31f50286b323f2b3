"""The specs of USB's algorithms say what the installed package says."""

from __future__ import annotations

from semilearn.core.utils import ALGORITHMS

from semilearn_ext.algorithms.usb_specs import SPECS


def test_every_algorithm_of_the_wheel_is_in_the_table() -> None:
    names = ALGORITHMS.keys()  # USB's registry is not a mapping
    in_wheel = {name for name in names if "_" not in name and ALGORITHMS[name].__module__.startswith("semilearn.")}
    assert in_wheel == {spec.name for spec in SPECS}


def test_names_defaults_and_types_are_the_wheels() -> None:
    for spec in SPECS:
        name, options = spec.name, spec.options
        declared = {entry.name.removeprefix("--"): entry for entry in ALGORITHMS[name].get_argument()}
        assert {key: option.default for key, option in options.items()} == {
            key: entry.default for key, entry in declared.items()
        }, name
        for key, entry in declared.items():
            kind = bool if entry.type.__name__ == "str2bool" else entry.type
            assert type(options[key].default) is kind, (name, key)
