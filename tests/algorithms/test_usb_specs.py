"""The specs of USB's algorithms match the installed package."""

from __future__ import annotations

from semilearn.core.utils import ALGORITHMS

from semilearn_ext.algorithms.usb_specs import SPECS


def test_every_installed_algorithm_has_a_spec() -> None:
    names = ALGORITHMS.keys()  # USB's registry is not a mapping
    in_wheel = {name for name in names if "_" not in name and ALGORITHMS[name].__module__.startswith("semilearn.")}
    assert in_wheel == {spec.name for spec in SPECS}


def test_options_equal_those_of_the_installed_usb() -> None:
    for spec in SPECS:
        name, options = spec.name, spec.options
        declared = {entry.name.removeprefix("--"): entry for entry in ALGORITHMS[name].get_argument()}
        assert {key: option.default for key, option in options.items()} == {
            key: entry.default for key, entry in declared.items()
        }, name
        for key, entry in declared.items():
            kind = bool if entry.type.__name__ == "str2bool" else entry.type
            assert type(options[key].default) is kind, (name, key)
